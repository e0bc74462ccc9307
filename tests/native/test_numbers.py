"""Rounding, signed zeros, NaN, infinities, overflow: bit for bit as eager, whatever is fused."""

import functools
import math

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import argand
from argand.native.compile import compile_graph
from tests.native.tracing import aten_graph

COUNT = 19  # whole vectors and a rest
SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, 1e-40, -3e38, 1.5)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
REAL = st.one_of(st.sampled_from(SPECIAL), st.floats(width=32))


def arithmetic(x, y):
    return (
        *(x + y, x - y, x * y, x / y, -x, x.abs(), x * y + x, x * x - y * y, (x + y) * (x - y) - 1),
        *(
            torch.where(x > y, x, y),
            x.sign(),
            x.floor(),
            x.ceil(),
            x.trunc(),
            x.round(),
            x.reciprocal(),
        ),
        *(torch.copysign(x, y), x**2, x**3, torch.nan_to_num(x), x.to(torch.bool)),
        *(
            x == y,
            x != y,
            x < y,
            x <= y,
            x > y,
            x >= y,
            x.isnan(),
            x.isinf(),
            x.signbit(),
            x.logical_not(),
        ),
    )


def extremes(x, y):
    """Of 0 and -0 either may be the larger: eager's answer changes from a vector to the rest behind it."""
    chosen = (
        torch.maximum(x, y),
        torch.minimum(x, y),
        torch.fmax(x, y),
        torch.fmin(x, y),
        x.amax(),
        x.amin(),
    )
    return tuple(
        value + 0.0 for value in (*chosen, x.clamp(-1, 1), torch.relu(x), x.clamp(max=0.0))
    )


def whole(x, y):
    results = [
        x + y,
        x - y,
        x * y,
        -x,
        x & y,
        x | y,
        x ^ y,
        ~x,
        x << 1,
        x >> 2,
        x // 7,
        x % 7,
        x + 3,
        x * -3,
        x**2,
    ]
    results += [
        torch.maximum(x, y),
        torch.minimum(x, y),
        x.clamp(-9, 9) if x.dtype.is_signed else x.clamp(0, 9),
    ]
    results += [
        x == y,
        x < y,
        x >= y,
        x.sum(),
        x.amax(),
        x.amin(),
        x.argmax(),
        x.prod(),
        torch.where(x > 3, x, y),
    ]
    results += [
        x / 3,
        x.to(torch.float32) * 0.5,
        x.to(torch.int8),
        x.to(torch.uint8),
        x.to(torch.int64) * y,
    ]
    if x.dtype.is_signed:
        results += [
            x.abs(),
            x.sign(),
            x // -7,
            x % -7,
            torch.div(x, -7, rounding_mode="trunc"),
            torch.fmod(x, -7),
        ]
    return tuple(results)


def truth(a, b):
    return (
        *(
            a + b,
            a * b,
            a & b,
            a | b,
            a ^ b,
            ~a,
            a == b,
            a < b,
            a >= b,
            torch.maximum(a, b),
            torch.minimum(a, b),
        ),
        *(
            a.sum(),
            a.any(),
            a.all(),
            a + 1,
            a * 2.5,
            a / 2,
            a.to(torch.uint8) - 1,
            torch.where(a, b, ~b),
        ),
        *(
            a.amax(),
            a.long() - b.long(),
            torch.logical_xor(a, b),
            a.float().sum(),
            a * torch.arange(COUNT),
        ),
    )


@functools.cache
def compiled(function, *dtypes):
    inputs = [torch.ones(COUNT, dtype=dtype) for dtype in dtypes]
    return compile_graph(aten_graph(function, *inputs), inputs)


def assert_same_bits(function, *inputs):
    expected, got = function(*inputs), compiled(function, *(x.dtype for x in inputs))(list(inputs))
    for number, (e, g) in enumerate(zip(expected, got, strict=True)):
        assert e.dtype == g.dtype and e.shape == g.shape, number
        same = (e == g) & (e.signbit() == g.signbit()) | (e != e) & (g != g)
        assert same.all(), f"result {number} of {inputs}: {g[~same]} instead of {e[~same]}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_float_arithmetic_is_eagers(dtype, data):
    lists = st.lists(REAL, min_size=COUNT, max_size=COUNT)
    inputs = [torch.tensor(data.draw(lists), dtype=dtype) for _ in range(2)]
    assert_same_bits(arithmetic, *inputs)
    assert_same_bits(extremes, *inputs)


@pytest.mark.parametrize("dtype", INTEGERS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_integers_wrap_around_as_in_eager(dtype, data):
    info = torch.iinfo(dtype)
    edge = st.sampled_from((info.min, info.max, 0, 1, info.max - 1, info.max // 2))
    lists = st.lists(
        st.one_of(edge, st.integers(info.min, info.max)), min_size=COUNT, max_size=COUNT
    )
    assert_same_bits(whole, *(torch.tensor(data.draw(lists), dtype=dtype) for _ in range(2)))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=COUNT, max_size=COUNT))
def test_bool_arithmetic_is_eagers(pairs):
    assert_same_bits(
        truth, torch.tensor([a for a, _ in pairs]), torch.tensor([b for _, b in pairs])
    )


def chain(x, y):
    """No result in between: eager rounds to half after each op, a kernel of ours once, at the end."""
    return (((x * y + x) * 0.3 - y) * (x - y),)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_fused_bfloat16_arithmetic_rounds_once(dtype, data):
    lists = st.lists(st.floats(-16, 16, width=16), min_size=COUNT, max_size=COUNT)
    x, y = (torch.tensor(data.draw(lists)).to(dtype) for _ in range(2))
    (got,) = compiled(chain, dtype, dtype)([x, y])
    # float16 overflows, so it is rounded after every operation
    (wanted,) = chain(x, y) if dtype is torch.float16 else chain(x.float(), y.float())
    assert torch.equal(got, wanted.to(dtype))


def test_roots_and_remainders_are_exact_where_eager_is_not():
    """Eager's sqrt is off by one unit at times (MKL), its fmod of floats is NaN for large quotients (SLEEF)."""
    x = torch.rand(1000) * 100
    root, rest = compile_graph(
        aten_graph(lambda x: (x.sqrt(), torch.fmod(x * 1e30, 0.75)), x), [x]
    )([x])
    assert torch.equal(root, torch.from_numpy(numpy.sqrt(x.numpy())))
    assert torch.equal(rest, torch.from_numpy(numpy.fmod((x * 1e30).numpy(), numpy.float32(0.75))))


def test_products_are_rounded_before_they_are_subtracted():
    x = torch.randn(1000)
    (got,) = compile_graph(aten_graph(lambda x, y: (x * x - y * y,), x, x.clone()), [x, x])(
        [x, x.clone()]
    )
    assert not got.any()


ALL = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, *INTEGERS)


@pytest.mark.parametrize("source", ALL)
def test_every_cast_after_every_other_is_eagers(source):
    """Also in the rest behind whole vectors, and between computations, where LLVM likes to make one cast of two."""

    def casts(x):
        wide = (x.double() * 1.37).erf() * 99.3 if source.is_floating_point else x
        return tuple(wide.to(middle).to(last) for middle in ALL for last in ALL)

    x = (
        torch.linspace(0, 3, COUNT, dtype=torch.float64) * (1 if source.is_floating_point else 41)
    ).to(source)
    compiled = compile_graph(aten_graph(casts, x), [x])
    for position, (got, wanted) in enumerate(zip(compiled([x]), casts(x), strict=True)):
        middle, last = ALL[position // len(ALL)], ALL[position % len(ALL)]
        if not source.is_floating_point:
            assert torch.equal(got, wanted), (source, middle, last)
        elif last.is_floating_point:
            torch.testing.assert_close(
                got, wanted, rtol=2e-3 if middle is torch.float16 else 1e-2, atol=1e-2
            )
        assert got.dtype == last, (source, middle, last)


def test_doubles_are_rounded_to_float_before_half():
    """As eager does, which matters for what lies just above the middle between two halves."""
    x = torch.tensor(
        [1 + 2**-11 + 2**-40, -(1 + 2**-11 + 2**-40), 2048 + 1 + 2**-30] * 7, dtype=torch.float64
    )

    def rounded(x):
        return (x * 1.0).half(), (x * 1.0).half().float().tanh().half()

    compiled = compile_graph(aten_graph(rounded, x), [x])
    for got, wanted in zip(compiled([x]), rounded(x), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_stored_maximum_is_equal_to_the_element_computed_again(dtype):
    def program(x):
        return torch.max(torch.tan(torch.cumsum(x, 0)).view(-1))

    torch.manual_seed(0)
    compiled = argand.compile(program)
    for _ in range(3):
        x = torch.randn(2, 3, 4).to(dtype).requires_grad_()
        (gradient,) = torch.autograd.grad(compiled(x), x)
        (expected,) = torch.autograd.grad(program(x), x)
        torch.testing.assert_close(gradient, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("length", [1, 3, 19])
@pytest.mark.parametrize("target", [torch.int64, torch.int32])
def test_numbers_that_no_integer_has_are_the_machines_after_the_way_back(target, length):
    values = torch.tensor([math.nan, 1e30, -1e30, 2.5] * length)[: 4 * length - 1]

    def function(x):
        return x.to(target).to(x.dtype) + 0.5, x.to(target) <= x.new_zeros(())

    graph = aten_graph(function, values)
    for part, wanted in zip(compile_graph(graph, [values])([values]), function(values)):
        torch.testing.assert_close(part, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_limits_leave_negative_zeros(dtype):
    values = torch.tensor([-0.0, 0.0, -1.0, 2.0, math.nan] * 5, dtype=dtype)

    def function(x):
        return x.relu(), x.clamp_min(0), x.clamp(0, 1), x.clamp_max(0), torch.nn.functional.relu6(x)

    for part, wanted in zip(
        compile_graph(aten_graph(function, values), [values])([values]), function(values)
    ):
        torch.testing.assert_close(part, wanted, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(part.signbit() & ~part.isnan(), wanted.signbit() & ~wanted.isnan())
