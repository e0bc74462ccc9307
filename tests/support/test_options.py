"""One options object: validated, hashable, read from the environment in one place."""

import dataclasses

import pytest

from argand.support import options
from argand.support.errors import OptionError
from argand.support.options import MODES, Options, make_options


@pytest.fixture
def environment(monkeypatch):
    def set_variable(name, text):
        monkeypatch.setenv(name, text)
        options.read_environment.cache_clear()

    yield set_variable
    monkeypatch.undo()
    options.read_environment.cache_clear()


def test_defaults():
    assert make_options() == Options()
    assert len(dataclasses.fields(Options)) <= 21


def test_options_are_hashable_and_frozen():
    made = make_options(given={"fusion": False})
    assert hash(made) == hash(make_options(given={"fusion": False}))
    assert made != make_options()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.fusion = True


def test_unknown_option_lists_the_valid_ones_and_guesses():
    with pytest.raises(OptionError, match="unknown option 'fuson'") as caught:
        make_options(given={"fuson": True})
    assert "did you mean 'fusion'?" in str(caught.value)
    for field in dataclasses.fields(Options):
        assert field.name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("fusion", 1), ("max_fusion", True), ("max_fusion", "3"), ("dynamic", 2), ("cache_dir", None)],
)
def test_wrong_type_is_refused(name, value):
    with pytest.raises(OptionError, match=f"option '{name}' must be"):
        make_options(given={name: value})


def test_an_integer_serves_as_a_float():
    made = make_options(given={"memory_budget": 0})
    assert type(made.memory_budget) is float


def test_dashes_are_underscores():
    assert make_options(given={"max-fusion": 7}).max_fusion == 7


def test_modes():
    for mode in MODES:
        assert isinstance(make_options(mode), Options)
    assert make_options("fast-compile").opt_level == 1
    with pytest.raises(OptionError, match="unknown mode 'quick'") as caught:
        make_options("quick")
    assert "fast-compile" in str(caught.value)


def test_mode_and_options_exclude_each_other():
    with pytest.raises(OptionError, match="cannot be given together"):
        make_options("default", {"fusion": True})


def test_given_mapping_is_not_changed():
    given = {"max-fusion": 7}
    make_options(given=given)
    assert given == {"max-fusion": 7}


def test_environment_sets_defaults_that_arguments_override(environment):
    environment("ARGAND_OPTIONS", "verify=1, max_fusion=9,memory_budget=0.5,dynamic=none")
    made = make_options()
    assert (made.verify, made.max_fusion, made.memory_budget) == ("forms", 9, 0.5)
    assert made.dynamic is None
    assert make_options(given={"max_fusion": 3}).max_fusion == 3
    assert make_options(fullgraph=True).fullgraph


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fuson=1", "unknown option 'fuson'"),
        ("fusion=perhaps", "option 'fusion' cannot be 'perhaps'"),
        ("fusion", "option 'fusion' cannot be ''"),
        ("max_fusion=many", "option 'max_fusion' must be int, got 'many'"),
    ],
)
def test_a_wrong_environment_is_refused(environment, text, message):
    environment("ARGAND_OPTIONS", text)
    with pytest.raises(OptionError, match=message):
        make_options()


def test_the_other_variables(environment):
    environment("ARGAND_DISABLE", "1")
    environment("ARGAND_LOGS", "guards")
    assert options.read_environment().disable
    assert options.read_environment().logs == "guards"
