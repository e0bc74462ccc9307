"""native.codegen.math.exponential: exp and what is made of it.

exp(x) = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2; e^r is a polynomial. Rounding to an
integer is adding and subtracting 1.5 * 2^(mantissa bits), which leaves n in the low bits.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from argand.native.codegen.math import coefficients as table
from argand.native.codegen.math.builder import FunctionBody, Lanes


class Format(NamedTuple):
    """The constants of one floating-point format."""

    mantissa: int
    bias: int
    magic: float  # 1.5 * 2^mantissa
    ln2_high: float  # ln 2 with trailing zeros, so that n * ln2_high is exact
    ln2_low: float
    largest: float  # exp overflows above
    smallest: float  # exp is 0 below
    normal: float  # exp is denormal below, with a margin
    tail: tuple[float, ...]  # (e^r - 1 - r) / r^2


F32: Final = Format(
    mantissa=23,
    bias=127,
    magic=1.5 * 2.0**23,
    ln2_high=0.693359375,
    ln2_low=-2.12194440e-4,
    largest=89.0,
    smallest=-105.0,
    normal=-86.0,
    tail=table.EXP_F32,
)
F64: Final = Format(
    mantissa=52,
    bias=1023,
    magic=1.5 * 2.0**52,
    ln2_high=0.6931471803691238,
    ln2_low=1.9082149292705877e-10,
    largest=710.0,
    smallest=-746.0,
    normal=-707.0,
    tail=table.EXP_F64,
)


def format_of(body: FunctionBody) -> Format:
    """The constants for the body's element type."""
    return F32 if body.element == "float" else F64


class Reduced(NamedTuple):
    """x = n ln 2 + r."""

    n_bits: Lanes  # an integer whose low bits are n
    n: Lanes
    r: Lanes


def reduce_exponent(body: FunctionBody, x: Lanes) -> Reduced:
    """Split x, which lies where exp neither overflows nor vanishes."""
    form = format_of(body)
    shifted = body.fma(x, 1 / math.log(2), form.magic)
    n = shifted - form.magic
    r = body.fma(n, -form.ln2_low, body.fma(n, -form.ln2_high, x))
    return Reduced(body.bits_of(shifted), n, r)


def power_of_two(body: FunctionBody, n_bits: Lanes, less: int = 0) -> Lanes:
    """2^(n - less), where that is a normal number."""
    form = format_of(body)
    exponent = n_bits.integer("shl", form.mantissa)
    return body.float_of(exponent.integer("add", (form.bias - less) << form.mantissa))


def exp_twice(body: FunctionBody, r: Lanes) -> Lanes:
    """2 e^r: twice, so that scaling by 2^(n-1) reaches the largest numbers."""
    return body.polynomial(r, [2.0, 2.0, *(2 * c for c in format_of(body).tail)])


def exp_clamped(body: FunctionBody, x: Lanes) -> Lanes:
    """exp where a result below the normal numbers may be anything tiny: sums with 1 use it."""
    form = format_of(body)
    bounded = body.at_most(body.at_least(x, form.normal), form.largest)
    reduced = reduce_exponent(body, bounded)
    return exp_twice(body, reduced.r) * power_of_two(body, reduced.n_bits, less=1)


def exp(body: FunctionBody, x: Lanes) -> Lanes:
    """Denormal results are reached in two steps, by 2^64 too much and then 2^-64."""
    form = format_of(body)
    bounded = body.at_most(body.at_least(x, form.smallest), form.largest)
    reduced = reduce_exponent(body, bounded)
    first, second = _scale(body, bounded, reduced.n_bits)
    return exp_twice(body, reduced.r) * first * second


def _scale(body: FunctionBody, x: Lanes, n_bits: Lanes) -> tuple[Lanes, Lanes]:
    """2^(n-1) as a product of two normal numbers."""
    form = format_of(body)
    tiny = body.convert("sext", x < form.normal, body.whole)
    boost = tiny.integer("and", 64 << form.mantissa)
    exponent = n_bits.integer("shl", form.mantissa)
    first = exponent.integer("add", (form.bias - 1) << form.mantissa).integer("add", boost)
    second = body.constant(form.bias << form.mantissa, body.whole).integer("sub", boost)
    return body.float_of(first), body.float_of(second)


def exp2(body: FunctionBody, x: Lanes) -> Lanes:
    """2^x = 2^n e^(r ln 2), |r| <= 1/2."""
    form = format_of(body)
    low, high = (-150.0, 129.0) if body.element == "float" else (-1076.0, 1025.0)
    bounded = body.at_most(body.at_least(x, low), high)
    shifted = bounded + form.magic
    r = (bounded - (shifted - form.magic)) * math.log(2)
    first, second = _scale(body, bounded * math.log(2), body.bits_of(shifted))
    return exp_twice(body, r) * first * second


def expm1(body: FunctionBody, x: Lanes) -> Lanes:
    """2^n (e^r - 1) + (2^n - 1), in halves for the largest n."""
    form = format_of(body)
    lowest = -18.0 if body.element == "float" else -38.0
    bounded = body.at_most(body.at_least(x, lowest), form.largest)
    reduced = reduce_exponent(body, bounded)
    r = reduced.r
    half = power_of_two(body, reduced.n_bits, less=1)
    near = body.fma(body.polynomial(r, form.tail), r * r, r)
    result = body.fma(half, near, half - 0.5) * 2.0
    # n = 0: the formula is `near`, and near keeps the sign of zero and of denormals.
    return body.select(reduced.n.equals(0.0), body.select(x.equals(0.0), x, near), result)


def sigmoid(body: FunctionBody, x: Lanes) -> Lanes:
    """1 / (1 + e^-x), with what the sum lost in rounding."""
    power = exp_clamped(body, -x)
    total = power + 1.0
    lost = 1.0 - (total - power)
    result = 1.0 / total
    return body.select(total < math.inf, body.fma(-result, result * lost, result), result)


def silu(body: FunctionBody, x: Lanes) -> Lanes:
    """x / (1 + e^-x); NaN at -inf, as in eager."""
    return x / (exp_clamped(body, -x) + 1.0)


def gelu_tanh(body: FunctionBody, x: Lanes) -> Lanes:
    """x/2 (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    scale = -2 * math.sqrt(2 / math.pi)
    inner = body.fma(x * x, 0.044715 * scale, scale) * x
    return x / (exp_clamped(body, inner) + 1.0)


def softplus(body: FunctionBody, x: Lanes) -> Lanes:
    """log(1 + e^x) = max(x, 0) + log1p(e^-|x|)."""
    small = body.call("log1p", body.call("exp", -body.absolute(x)))
    return body.at_least(x, 0.0) + small


def exp2_bounded(body: FunctionBody, y: Lanes) -> Lanes:
    """2^y for floats |y| <= 120, to about 2^-23."""
    shifted = y + F32.magic
    r = y - (shifted - F32.magic)
    mantissa = body.bits_of(body.polynomial(r, table.EXP2_F32))
    exponent = body.bits_of(shifted).integer("shl", F32.mantissa)
    return body.float_of(mantissa.integer("add", exponent))


def tanh(body: FunctionBody, x: Lanes) -> Lanes:
    """Float: 1 - 2 / (e^2|x| + 1), and a polynomial near 0. Double: by expm1."""
    magnitude = body.absolute(x)
    if body.element == "float":
        power = exp2_bounded(body, body.at_most(magnitude, 9.02) * (2 / math.log(2)))
        far = 1.0 - 2.0 / (power + 1.0)
        near = body.polynomial(x * x, table.TANH_F32[1:]) * (x * x)
        near = body.fma(near, magnitude, magnitude)
        result = body.select(magnitude < 0.625, near, far)
    else:
        twice = body.call("expm1", body.at_most(magnitude, 22.0) * 2.0)
        result = twice / (twice + 2.0)
    return body.with_sign(result, x)


def sinh(body: FunctionBody, x: Lanes) -> Lanes:
    """(e + e / (e + 1)) / 2 with e = expm1|x|; twice e^|x|/2 where expm1 would overflow."""
    magnitude = body.absolute(x)
    small = body.call("expm1", body.at_most(magnitude, 40.0))
    near = (small + small / (small + 1.0)) * 0.5
    far = _half_exp(body, magnitude)
    return body.with_sign(body.select(magnitude > 30.0, far, near), x)


def cosh(body: FunctionBody, x: Lanes) -> Lanes:
    """h + 1 / (4 h) with h = e^|x| / 2."""
    half = _half_exp(body, body.absolute(x))
    return half + 0.25 / half


def _half_exp(body: FunctionBody, x: Lanes) -> Lanes:
    """e^x / 2 for x >= 0, finite a little beyond where e^x overflows."""
    form = format_of(body)
    reduced = reduce_exponent(body, body.at_most(x, form.largest + 1.0))
    return exp_twice(body, reduced.r) * power_of_two(body, reduced.n_bits, less=2)
