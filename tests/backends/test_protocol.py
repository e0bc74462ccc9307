"""What a backend gets and gives: compiled graphs as values, plain functions adapted once, at the border."""

import contextlib

import pytest
import torch

import argand
from argand.backends.bind import bind_backend
from argand.protocol import (
    PLAIN,
    Backend,
    Bypass,
    CompiledGraph,
    Described,
    OpenSizes,
    adapt,
    adapted,
    context_of,
)
from argand.support.errors import OptionError


def add_and_double(a, b):
    return (a + b, b * 2)


def test_a_plain_function_takes_its_inputs_one_by_one():
    compiled = adapt(add_and_double)
    assert compiled.takes_inputs is add_and_double
    values = [1, 2]
    assert compiled.takes_list(values) == (3, 4)
    assert values == []  # so that inputs can be freed early


def test_a_boxed_function_is_known_by_the_mark_of_torch():
    boxed = argand.make_boxed_func(add_and_double)
    compiled = adapt(boxed)
    assert compiled.takes_list is boxed
    assert compiled.takes_inputs(1, 2) == (3, 4)


def test_what_a_plain_function_returns_has_no_key():
    graph = torch.fx.symbolic_trace(add_and_double)
    assert isinstance(adapted(lambda gm, inputs: add_and_double)(graph, [], PLAIN).key, Bypass)


@pytest.mark.parametrize("boxed", [False, True])
def test_a_backend_may_return_either_kind(boxed):
    def backend(gm, example_inputs):
        return argand.make_boxed_func(gm.forward) if boxed else gm.forward

    x = torch.randn(3)
    assert torch.equal(argand.compile(lambda a: a.sin() + 1, backend=backend)(x), x.sin() + 1)


def test_a_described_backend_observes_frames():
    frames = []

    class Mine(Described):
        def describe(self):
            return Backend(
                name="mine",
                compile=lambda gm, inputs, context: CompiledGraph(gm.forward),
                open_sizes=OpenSizes.ALWAYS,
                observe=lambda: contextlib.nullcontext(frames.append),
            )

    f = argand.compile(lambda a: a.sin() + 1, backend=Mine())
    for size in (3, 4, 5, 6):
        f(torch.ones(size))
    assert len(frames) == 2  # the second leaves the size open


def test_names_do_not_make_a_backend_ours():
    """A function of the user's that is called like one of ours is the user's."""

    def argand_named(gm, example_inputs, **keywords):
        assert keywords == {"options": {"mine": 1}}
        return gm.forward

    argand_named.__name__ = "argand"
    bound = bind_backend(argand_named, options={"mine": 1})
    assert bound.restore is None and bound.open_sizes is OpenSizes.ALWAYS
    f = argand.compile(lambda a: a + 1, backend=argand_named, options={"mine": 1})
    assert f(torch.ones(2)).tolist() == [2, 2]


def test_our_function_is_ours_by_name_and_by_itself():
    by_name, by_function = bind_backend("argand"), bind_backend(argand.lookup_backend("argand"))
    assert by_name == by_function and by_function.restore is not None
    assert bind_backend(argand.lookup_backend("eager")).open_sizes is OpenSizes.ALWAYS


def test_a_list_of_backends_has_no_options():
    with pytest.raises(OptionError, match="no options"):
        argand.compile(torch.sin, backend=["eager", "argand"], options={"fusion": False})


def test_results_that_are_nested_tuples_keep_their_shape():
    """((a, b), ()) has as many leaves as members, and is no flat tuple."""
    gm = torch.fx.symbolic_trace(lambda a: ((a + 1, a + 2), ()))
    x = torch.ones(2)
    (one, two), nothing = argand.compile_fx(gm, [x])(x)
    assert (one.tolist(), two.tolist(), nothing) == ([2, 2], [3, 3], ())


def test_open_sizes_are_an_argument_and_a_plain_function_hands_them_on_without_knowing():
    told, found = [], []

    def typed(gm, inputs, context):
        told.append(context.sizes)
        assert not gm.meta  # nothing travels on the graph
        return CompiledGraph(gm.forward)

    def plain(gm, inputs):
        found.append(context_of(gm).sizes)
        return argand.compile_fx(gm, inputs)

    for backend in (Backend(name="typed", compile=typed, open_sizes=OpenSizes.ALWAYS), plain):
        f = argand.compile(lambda a: a.sin() + a.shape[0], backend=backend, dynamic=True)
        for size in (3, 4, 5):
            torch.testing.assert_close(f(torch.ones(size)), torch.ones(size).sin() + size)
    for (sizes,) in (told, found):  # one graph for all three
        assert len(sizes.samples) == 1 and sizes.relied == ()
