"""The registry: names, tags, entry points, errors (counterparts of features.md 1a)."""

import importlib.metadata

import pytest
import torch

from argand.backends import registry
from argand.backends.bind import bind_backend
from argand.backends.compose import FirstThatTakes
from argand.protocol import PLAIN
from argand.support.errors import BackendCompilerFailed, InvalidBackend, OptionError

GRAPH = torch.fx.symbolic_trace(torch.nn.ReLU())


@pytest.fixture
def named():
    names = []

    def add(name, function, **keywords):
        names.append(name)
        return registry.register_backend(function, name=name, **keywords)

    yield add
    for name in names:
        registry.unregister_backend(name)


def backend(gm, example_inputs):
    return gm


def test_default_list_hides_debug_backends():
    assert {"argand", "inductor"} <= set(registry.list_backends())
    assert "eager" not in registry.list_backends()
    assert "eager" not in registry.list_backends(["debug"])
    assert "eager" in registry.list_backends([])
    assert {"argand", "inductor", "eager"} <= set(registry.list_backends(None))
    assert registry.list_backends(None) == sorted(registry.list_backends(None))


def test_register_as_call_and_lookup(named):
    named("mine", backend, tags=("experimental",))
    assert registry.lookup_backend("mine") is backend
    assert "mine" not in registry.list_backends()
    assert "mine" in registry.list_backends(("debug",))


def test_register_as_decorator_with_and_without_arguments():
    try:

        @registry.register_backend
        def decorated_plain(gm, inputs):
            return gm

        @registry.register_backend(name="decorated_named")
        def other(gm, inputs):
            return gm

        assert registry.lookup_backend("decorated_plain") is decorated_plain
        assert registry.lookup_backend("decorated_named") is other
    finally:
        registry.unregister_backend("decorated_plain")
        registry.unregister_backend("decorated_named")


def test_duplicate_name_is_refused(named):
    named("twice", backend)
    with pytest.raises(InvalidBackend, match="'twice' is registered already"):
        registry.register_backend(backend, name="twice")


def test_non_callable_is_refused():
    with pytest.raises(InvalidBackend, match="must be callable, got int 3"):
        registry.register_backend(3)
    with pytest.raises(InvalidBackend, match="name or a callable, got int 123"):
        registry.lookup_backend(123)


def test_unknown_name_offers_near_matches():
    with pytest.raises(InvalidBackend, match="did you mean 'argand'"):
        registry.lookup_backend("argnad")


def test_callable_is_given_back():
    assert registry.lookup_backend(backend) is backend


class FakePoint:
    def __init__(self, name, load):
        self.name, self._load = name, load
        self.value, self.dist = "somewhere:there", None

    def load(self):
        return self._load()


@pytest.fixture
def entry_points(monkeypatch):
    groups = {}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: groups.get(group, []))
    registry._entry_points.cache_clear()
    yield groups
    registry._entry_points.cache_clear()


@pytest.mark.parametrize("group", registry.ENTRY_POINT_GROUPS)
def test_entry_points_of_both_groups_are_found(entry_points, group):
    entry_points[group] = [FakePoint("theirs", lambda: backend)]
    try:
        assert "theirs" in registry.list_backends()
        assert registry.lookup_backend("theirs") is backend
    finally:
        registry.unregister_backend("theirs")


def test_registered_name_wins_over_entry_point(entry_points, named):
    def other(gm, inputs):
        return gm

    entry_points["argand_backends"] = [FakePoint("clash", lambda: other)]
    named("clash", backend)
    assert registry.lookup_backend("clash") is backend


def test_broken_entry_point_names_its_package(entry_points):
    def fail():
        raise ImportError("no module named missing")

    entry_points["argand_backends"] = [FakePoint("broken", fail)]
    assert "broken" in registry.list_backends()
    with pytest.raises(InvalidBackend, match=r"'broken' of package 'somewhere:there'.*missing"):
        registry.lookup_backend("broken")


def test_default_backend():
    assert registry.get_default_backend() == "argand"
    registry.set_default_backend("eager")
    try:
        assert registry.get_default_backend() == "eager"
    finally:
        registry.set_default_backend(None)
    assert registry.get_default_backend() == "argand"
    with pytest.raises(TypeError):
        registry.set_default_backend(3)


def test_bound_backends_are_equal_when_they_do_the_same():
    one, same = (bind_backend(backend, options={"a": [1, 2]}) for _ in range(2))
    assert one == same and hash(one) == hash(same)
    assert one != bind_backend(backend, options={"a": [1, 3]})
    assert one != bind_backend(backend, mode="x")


def test_options_reach_the_backend_and_the_dict_is_not_mutated():
    seen = {}

    def recording(gm, inputs, **keywords):
        seen.update(keywords)
        return lambda: None

    given = {"a": 1}
    bound = bind_backend(recording, options=given)
    bound.compile(GRAPH, [], PLAIN)
    seen["options"]["a"] = 2
    assert given == {"a": 1}
    bound.compile(GRAPH, [], PLAIN)
    assert seen["options"] == {"a": 1}
    bind_backend(recording, mode="fast").compile(GRAPH, [], PLAIN)
    assert seen["mode"] == "fast"


def test_mode_and_options_together():
    with pytest.raises(OptionError, match="together"):
        bind_backend(backend, mode="a", options={"b": 1})


def test_own_backend_validates_at_once():
    with pytest.raises(OptionError, match="unknown option 'max_fusoin'"):
        bind_backend("argand", options={"max_fusoin": 3})
    with pytest.raises(OptionError, match="unknown mode"):
        bind_backend("argand", mode="fastest")


def test_errors_are_wrapped():
    def failing(gm, inputs):
        raise ValueError("inner words")

    with pytest.raises(BackendCompilerFailed, match="'failing' raised:\nValueError: inner words"):
        bind_backend(failing).compile(GRAPH, [], PLAIN)
    with pytest.raises(BackendCompilerFailed, match="NoneType, which is not callable"):
        bind_backend(lambda gm, inputs: None).compile(GRAPH, [], PLAIN)
    with pytest.raises(BackendCompilerFailed, match="TypeError"):
        bind_backend(backend, mode="x").compile(GRAPH, [], PLAIN)


def test_list_of_backends_takes_the_first_that_works():
    def declines(gm, inputs):
        raise RuntimeError("not my graph")

    chosen = FirstThatTakes(("nonexistent", declines, backend))
    assert chosen.compile(GRAPH, [], PLAIN).call is GRAPH
    (choice,) = chosen.choices
    assert choice.taken_by == "backend"
    assert [name for name, _ in choice.declined] == ["nonexistent", "declines"]
    assert "not my graph" in str(choice)
    with pytest.raises(InvalidBackend, match="every backend"):
        FirstThatTakes((declines,)).compile(GRAPH, [], PLAIN)
    with pytest.raises(InvalidBackend, match="empty"):
        FirstThatTakes(())
