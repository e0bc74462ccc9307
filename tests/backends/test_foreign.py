"""Compiled graphs that anybody may call: whatever they are called with, the answer is the graph's."""

import copy

import pytest
import torch
from torch import nn

import argand
from argand.backends import foreign
from argand.support import events

COMPILERS = {
    "compile_fx": lambda gm, inputs: argand.compile_fx(gm, inputs),
    "aot_autograd": lambda gm, inputs: argand.aot_autograd(
        fw_compiler=lambda g, i: argand.make_boxed_func(g.forward)
    )(gm, inputs),
    "aot_eager": lambda gm, inputs: argand.lookup_backend("aot_eager")(gm, inputs),
}


def compile_by_hand(way, function, *examples):
    gm = torch.fx.symbolic_trace(function)
    return COMPILERS[way](gm, list(examples))


def facts(value):
    return (
        value.dtype,
        value.shape,
        value.stride(),
        value.requires_grad,
        value.is_conj(),
        value.is_neg(),
    )


def check(run, function, *inputs):
    """Results, gradients and changed inputs are those of the function itself."""
    answers = []
    for f in (run, function):
        torch.manual_seed(0)
        given = copy.deepcopy(inputs)
        results = f(*given)
        trained = [r for r in results if r.requires_grad]
        if trained:
            sum(r.sum() for r in trained).backward()
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        answers.append(([*results], tensors, [x.grad for x in tensors]))
    for got, wanted in zip(*answers, strict=True):
        for a, b in zip(got, wanted, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert facts(a) == facts(b)
                torch.testing.assert_close(a, b, equal_nan=True)


def rows(x):
    return (torch.tanh(x @ x.t()).sum(0), x.reshape(-1) * 2)


def inputs_of_all_kinds():
    x = torch.randn(4, 6)
    yield "another batch", torch.randn(5, 6)
    yield "another width", torch.randn(4, 7)
    yield "one row", torch.randn(1, 6)
    yield "no rows", torch.randn(0, 6)
    yield "transposed", torch.randn(6, 4).t()
    yield "every second column", torch.randn(4, 12)[:, ::2]
    yield "a slice", torch.randn(9, 6)[2:6]
    yield "double", torch.randn(4, 6, dtype=torch.double)
    yield "gradients", torch.randn(4, 6, requires_grad=True)
    yield "a parameter", nn.Parameter(torch.randn(4, 6))
    yield "negative", torch.randn(4, 6, dtype=torch.complex64).conj().imag
    yield "conjugate", torch.randn(4, 6, dtype=torch.complex64).conj()
    yield "expanded", torch.randn(1, 6).expand(4, 6)
    yield "the same", x


@pytest.mark.parametrize("way", COMPILERS)
def test_inputs_of_another_kind_than_the_examples(way):
    run = compile_by_hand(way, rows, torch.randn(4, 6))
    for name, x in inputs_of_all_kinds():
        if name == "negative":  # a deep copy would resolve it
            torch.testing.assert_close(run(x), rows(x))
        else:
            check(run, rows, x)


@pytest.mark.parametrize("way", COMPILERS)
def test_many_sizes_are_compiled_twice(way):
    run = compile_by_hand(way, rows, torch.randn(4, 6))
    for size in (5, 9, 3, 17, 64, 2):
        check(run, rows, torch.randn(size, 6))
    assert len(run._variants) == 2
    check(run, rows, torch.randn(1, 6))
    assert len(run._variants) == 3


def test_sizes_of_two_inputs_that_must_agree():
    def program(x, y, w):
        return (torch.cat([x, y], 0) @ w, x + y)

    run = compile_by_hand(
        "compile_fx", program, torch.randn(3, 4), torch.randn(3, 4), torch.randn(4, 2)
    )
    for n, k in ((5, 4), (7, 4), (7, 9), (8, 9), (3, 4)):
        check(run, program, torch.randn(n, k), torch.randn(n, k), torch.randn(k, 2))
    with pytest.raises(RuntimeError, match="must match|expected size"):
        run(torch.randn(5, 4), torch.randn(6, 4), torch.randn(4, 2))
    check(run, program, torch.randn(5, 4), torch.randn(1, 4), torch.randn(4, 2))  # it is broadcast


@pytest.mark.parametrize("train", [False, True])
def test_training_with_other_sizes(train):
    def program(x, w, b):
        return (torch.nn.functional.gelu(x @ w + b).mean(0),)

    make = lambda n: (
        torch.randn(n, 6),
        torch.randn(6, 3, requires_grad=train),
        torch.zeros(3, requires_grad=train),
    )  # noqa: E731
    run = compile_by_hand("compile_fx", program, *make(4))
    for n in (4, 8, 12, 1, 30):
        check(run, program, *make(n))


@pytest.mark.parametrize("way", COMPILERS)
def test_numbers_are_inputs_too(way):
    def program(x, n, scale):
        return (x[:n] * scale, x.reshape(n, -1).sum(0))

    run = compile_by_hand(way, program, torch.randn(12), 3, 2.0)
    for size, n, scale in (
        (12, 3, 2.0),
        (12, 4, 2.0),
        (12, 6, 0.5),
        (24, 6, 0.5),
        (24, 6, -0.0),
        (24, 1, 3),
    ):
        check(run, program, torch.randn(size), n, scale)


@pytest.mark.parametrize("way", COMPILERS)
def test_inputs_that_share_memory(way):
    def program(x, y):
        x.add_(1)
        return (y * 2, x.sum())

    run = compile_by_hand(way, program, torch.ones(4), torch.ones(4))

    def call(f, split):
        base = torch.arange(8.0)
        x, y = split(base)
        return [*f(x, y), base]

    for split in (
        lambda base: (base[:4], base[4:]),
        lambda base: (base[:4], base[:4]),
        lambda base: (base[:4], base[2:6]),
        lambda base: (base, base),
        lambda base: (base[::2], base[1::2]),
    ):
        for got, wanted in zip(call(run, split), call(program, split), strict=True):
            assert torch.equal(got, wanted)


@pytest.mark.parametrize("way", COMPILERS)
def test_one_tensor_twice_is_not_two(way):
    def program(x, y):
        return (x * y.sum(), x - y)

    x, y = torch.randn(3), torch.randn(3)
    gm = torch.fx.symbolic_trace(program)
    run = COMPILERS[way](gm, [x, x])
    for pair in ((x, x), (x, y), (y, x), (y, y)):
        for got, wanted in zip(run(*pair), program(*pair), strict=True):
            torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("way", COMPILERS)
def test_global_state_at_the_call(way):
    def program(x, w):
        return (x @ w, (x > 0).sum() / 3)

    run = compile_by_hand(way, program, torch.randn(3, 3), torch.randn(3, 3))
    inputs = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)
    check(run, program, *inputs)
    with torch.no_grad():
        check(run, program, *inputs)
    with torch.inference_mode():
        assert run(*inputs)[0].is_inference()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(run, program, *inputs)
    torch.set_default_dtype(torch.double)
    try:
        check(run, program, *inputs)
    finally:
        torch.set_default_dtype(torch.float)
    check(run, program, *inputs)


def test_functional_transforms_see_the_graph():
    run = compile_by_hand("compile_fx", lambda x: (x.sin() * x,), torch.randn(3))
    x = torch.randn(5, 3)
    torch.testing.assert_close(torch.func.vmap(lambda a: run(a)[0])(x), x.sin() * x)
    torch.testing.assert_close(
        torch.func.grad(lambda a: run(a)[0].sum())(x[0]), x[0].cos() * x[0] + x[0].sin()
    )


def test_offsets_in_storages():
    def program(x):
        return (torch.as_strided(x, (2, 2), (1, 2), 1) + 1,)

    run = compile_by_hand("compile_fx", program, torch.arange(8.0))
    base = torch.arange(20.0)
    for x in (base[:8], base[4:12], base[8:16]):
        assert torch.equal(run(x)[0], program(x)[0])


def test_many_kinds_end_in_eager():
    def program(x, s):
        return (x * s,)

    run = compile_by_hand("compile_fx", program, torch.ones(3), 0.0)
    with events.collect() as seen:
        for k in range(20):
            assert run(torch.ones(3), float(k))[0].tolist() == [k] * 3
    assert len(run._variants) == foreign.MOST_VARIANTS
    assert seen.total("foreign.eager") == 20 - foreign.MOST_VARIANTS


def test_a_graph_that_cannot_be_compiled_for_some_inputs():
    """What raises for one kind of inputs raises as eager does, and leaves the others alone."""
    run = compile_by_hand("compile_fx", lambda x: (x.reshape(2, -1) + 1,), torch.ones(4))
    with pytest.raises(RuntimeError, match="invalid for input of size 5"):
        run(torch.ones(5))
    assert run(torch.ones(6))[0].shape == (2, 3)


def test_sizes_for_which_eager_raises():
    """Code with open sizes is not run where eager would refuse."""

    def program(x, w):
        return (torch.nn.functional.max_pool2d(torch.nn.functional.conv2d(x, w), 3),)

    w = torch.randn(2, 1, 5, 5)
    run = compile_by_hand("compile_fx", program, torch.randn(1, 1, 20, 20), w)
    for size in (24, 30, 7, 19):
        check(run, program, torch.randn(1, 1, size, size), w)
    for size in (3, 6):
        with pytest.raises(RuntimeError) as wanted:
            program(torch.randn(1, 1, size, size), w)
        with pytest.raises(RuntimeError) as found:
            run(torch.randn(1, 1, size, size), w)
        assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("name", ["argand", "aot_eager"])
def test_a_backend_of_the_user_hands_graphs_on(name):
    """Under our own capture, with sizes that it left open."""
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return argand.lookup_backend(name)(gm, inputs)

    def program(x, w):
        return torch.relu(x @ w) + x.shape[0]

    f = argand.compile(program, backend=backend, dynamic=True)
    w = torch.randn(6, 3)
    for size in (4, 7, 9, 1, 2):
        x = torch.randn(size, 6)
        torch.testing.assert_close(f(x, w), program(x, w))
    assert len(graphs) <= 2


def test_a_backend_of_the_user_calls_with_other_inputs():
    """A captured graph with open sizes, called with padded inputs and pieces of them."""

    def backend(gm, inputs):
        run = argand.lookup_backend("argand")(gm, inputs)

        def twice(*values):
            tensors = [
                k for k, v in enumerate(values) if isinstance(v, torch.Tensor) and v.dim() == 2
            ]
            wide = [v.double() if k in tensors else v for k, v in enumerate(values)]
            return [a.double() + b for a, b in zip(run(*values), run(*wide), strict=True)]

        return twice

    f = argand.compile(lambda x: torch.softmax(x, -1) * 3, backend=backend, dynamic=True)
    for size in (4, 7, 9):
        x = torch.randn(size, 6)
        torch.testing.assert_close(f(x).float(), torch.softmax(x, -1) * 6)
