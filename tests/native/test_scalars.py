"""Numbers beside tensors, and results in another type: as eager converts and rounds them, and refuses them."""

import pytest
import torch

import argand

F = torch.nn.functional
HALF = (torch.float16, torch.bfloat16)
TYPES = (
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
)


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return error


def assert_same(function, *args):
    expected, actual = (
        outcome(function, *args),
        outcome(argand.compile(function, options={"cache": False}), *args),
    )
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        assert (type(actual), str(actual)) == (type(expected), str(expected))
        return
    for a, b in (
        zip(actual, expected, strict=True) if isinstance(expected, tuple) else ((actual, expected),)
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        assert a.stride() == b.stride()


@pytest.mark.parametrize("kind", HALF)
def test_numbers_are_elements_of_half_types(kind):
    def numbers(x):
        compared = (x == 0.1, x != 0.3, x < 0.3, x >= 0.1, x == 1e6, x > 1e6)
        summed = (
            x + 0.1,
            x - 0.1,
            torch.rsub(x, 0.3, alpha=0.1),
            x * 0.1,
            x / 0.3,
            x // 0.3,
            x * 1e6,
        )
        others = (
            x.remainder(0.3),
            x.fmod(0.3),
            x**0.3,
            torch.where(x > 0.2, x, 0.1),
            torch.xlogy(x, 0.3),
        )
        shrunk = (
            F.hardshrink(x, 0.1),
            F.softshrink(x, 0.1),
            torch.logit(x.clamp(0, 1), 0.3),
            x.clamp(0.1, 0.3),
        )
        return *compared, *summed, *others, *shrunk

    assert_same(numbers, torch.tensor([0.1, 0.3, 1e3, float("inf"), -0.0], dtype=kind))


@pytest.mark.parametrize("result", TYPES)
@pytest.mark.parametrize("kind", TYPES)
def test_sums_convert_before_they_add(kind, result):
    x = torch.tensor([[1.75, 2.75, 0.5], [0.25, 1.125, 2.5]]).to(kind)
    assert_same(lambda x: (x.sum(dtype=result), x.sum(0, dtype=result), x.prod(1, dtype=result)), x)


def test_integers_take_the_whole_part_of_a_factor():
    assert_same(lambda x: (x.addcmul(x, x, value=0.5), x.addcmul(x, x, value=2.5)), torch.arange(5))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: x & 1.5, torch.float32),
        (lambda x: x & x, torch.float32),
        (lambda x: x < x, torch.complex64),
        (lambda x: x.add(x, alpha=0.5), torch.int64),
        (lambda x: x - 1, torch.bool),
        (lambda x: x.clamp(False, True), torch.bool),
        (lambda x: x.clamp(max=1e6), torch.float16),
        (lambda x: x % 2**40, torch.int32),
        (lambda x: x.fill_(1e6), torch.uint8),
        (lambda x: F.elu(x), torch.int64),
        (lambda x: F.hardtanh(x), torch.bool),
        (lambda x: F.leaky_relu(x, 0.5), torch.int64),
        (lambda x: torch.gcd(x, x), torch.float32),
        (lambda x: torch.addcdiv(x, x, x), torch.int64),
        (lambda x: x.masked_fill(x, 1.0), torch.uint8),
        (lambda x: x.masked_fill(x > 0, x), torch.float32),
        (lambda x: F.gelu(x, approximate="tan"), torch.float32),
        (lambda x: torch.ops.aten._safe_softmax(x, 0, dtype=torch.int64), torch.float32),
        (lambda x: F.avg_pool2d(x[None, None, None], 1, divisor_override=0), torch.float32),
        (
            lambda x: torch.gather(x, 0, x.long() * 0, out=torch.empty(3, dtype=torch.float64)),
            torch.float32,
        ),
        (lambda x: torch.amax(x, 0, out=torch.empty((), dtype=torch.float64)), torch.float32),
        (lambda x: x.lerp(x, 0.5), torch.int64),
        (lambda x: x.amax(), torch.complex64),
        (lambda x: torch.bernoulli(x, 1.5), torch.float32),
        (lambda x: x.uniform_(2, 1), torch.float32),
        (lambda x: x.normal_(0, -1), torch.float32),
    ],
)
def test_eager_refuses_types_and_numbers(function, kind):
    with pytest.raises((RuntimeError, NotImplementedError)):
        function(torch.ones(3, dtype=kind))
    assert_same(function, torch.ones(3, dtype=kind))


@pytest.mark.parametrize("shape", [(3, 0, 4, 5), (3, 2, 0, 5), (3, 2, 4, 0)])
def test_products_of_nothing(shape):
    assert_same(lambda x: x @ x.mT, torch.randn(shape))


def test_attention_over_every_second_column():
    query = torch.randn(5, 16, 3, 9)[..., 1::2]

    def attention(query):
        return F.scaled_dot_product_attention(query, query, query)

    actual = argand.compile(attention, options={"cache": False})(query)
    torch.testing.assert_close(actual, attention(query))


def test_hypot_does_not_overflow():
    assert_same(lambda x: torch.hypot(x, x), torch.tensor([1e30, 3.0, 1e-30, float("inf")]))


def test_flip_of_nothing():
    assert_same(lambda x: x[:0].cumsum(0).flip(0)[None], torch.ones(1, 8, 5))


def test_ldexp_keeps_the_type_of_floats():
    assert_same(lambda x: x.ldexp(torch.tensor(2)), torch.tensor(1.5, dtype=torch.half))


@pytest.mark.filterwarnings("ignore:Use of index_put_ on expanded")
def test_a_write_to_elements_that_share_memory():
    def part(x):
        x[[4, 0]] = 1
        return x + 1

    expected, actual = torch.zeros(1).expand(7), torch.zeros(1).expand(7)
    torch.testing.assert_close(
        argand.compile(part, options={"cache": False})(actual), part(expected)
    )
    torch.testing.assert_close(actual, expected)
