"""native.codegen.math.logarithm: log and what is made of it.

x = 2^e m with m in [sqrt(1/2), sqrt(2)); log(m) is a polynomial in f = m - 1 (float) or in
s = f / (2 + f) (double). Denormals are scaled up first.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, NamedTuple

from argand.native.codegen.math import coefficients as table
from argand.native.codegen.math.builder import FunctionBody, Lanes
from argand.native.codegen.math.exponential import format_of

_LOG10_2: Final = Fraction("0.30102999566398119521373889472449302676818988146211")


class SplitNumber(NamedTuple):
    """x = 2^e (1 + f)."""

    e: Lanes
    f: Lanes


def _exponent_bits(body: FunctionBody, bits: Lanes) -> Lanes:
    """e << mantissa, for the m nearest to 1."""
    root_half = 0x3F3504F3 if body.element == "float" else 0x3FE6A09E667F3BCD
    mantissa = format_of(body).mantissa
    return bits.integer("sub", root_half).integer("and", -(1 << mantissa))


def _split(body: FunctionBody, x: Lanes) -> SplitNumber:
    form = format_of(body)
    smallest = 2.0**-126 if body.element == "float" else 2.0**-1022
    shift = form.mantissa + 2
    tiny = x < smallest
    bits = body.bits_of(body.select(tiny, x * 2.0**shift, x))
    high = _exponent_bits(body, bits)
    m = body.float_of(bits.integer("sub", high))
    e = body.convert("sitofp", high.integer("ashr", form.mantissa), body.element)
    return SplitNumber(e - body.select(tiny, float(shift), 0.0), m - 1.0)


def _log1p_near(body: FunctionBody, f: Lanes) -> tuple[Lanes, Lanes]:
    """log(1 + f) = f + rest for f in [-0.293, 0.415]; the two parts."""
    if body.element == "float":
        square = f * f
        tail = body.polynomial(f, table.LOG_F32)
        return f, body.fma(square, -0.5, square * f * tail)
    s = f / (f + 2.0)
    square = s * s
    half = f * f * 0.5
    tail = body.polynomial(square, [2 * c for c in table.LOG_F64]) * square
    return f, s * (half + tail) - half


def _finish(body: FunctionBody, x: Lanes, result: Lanes) -> Lanes:
    """The values at 0, below 0, and at infinity."""
    edge = body.select(x.equals(0.0), -math.inf, math.nan)
    return body.select(x.equals(math.inf), x, body.select(x > 0.0, result, edge))


def log(body: FunctionBody, x: Lanes) -> Lanes:
    """e ln 2 + log(1 + f)."""
    form, (e, f) = format_of(body), _split(body, x)
    first, rest = _log1p_near(body, f)
    low = body.fma(e, form.ln2_low, rest)
    return _finish(body, x, body.fma(e, form.ln2_high, first + low))


def _log_base(body: FunctionBody, x: Lanes, scale: float, e_high: float, e_low: float) -> Lanes:
    """log to another base: (f + rest) * scale with scale in two parts, + e * (e_high + e_low)."""
    e, f = _split(body, x)
    first, rest = _log1p_near(body, f)
    # A short scale_high makes first_high * scale_high exact.
    keep = -(1 << 12) if body.element == "float" else -(1 << 27)
    head = body.float_of(body.bits_of(first).integer("and", keep))
    scale_high = _short(scale, 12 if body.element == "float" else 26)
    scale_low = scale - scale_high
    low = body.fma(rest, scale, body.fma(first - head, scale, head * scale_low))
    low = body.fma(e, e_low, low) if e_low else low
    return _finish(body, x, body.fma(e, e_high, body.fma(head, scale_high, low)))


def _short(value: float, bits: int) -> float:
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.floor(mantissa * 2.0**bits), exponent - bits)


def log2(body: FunctionBody, x: Lanes) -> Lanes:
    """e + log(1 + f) / ln 2."""
    return _log_base(body, x, 1 / math.log(2), 1.0, 0.0)


def log10(body: FunctionBody, x: Lanes) -> Lanes:
    """e log10(2) + log(1 + f) / ln 10."""
    high = _short(math.log10(2), 12 if body.element == "float" else 40)
    low = float(_LOG10_2 - Fraction(high))
    return _log_base(body, x, 1 / math.log(10), high, low)


def log1p(body: FunctionBody, x: Lanes) -> Lanes:
    """f = 2^-e x + (2^-e - 1), so that 1 + x is never rounded; e comes from (1 + x) / 4.

    The quarter keeps 2^(2-e) a normal number for the largest x.
    """
    form = format_of(body)
    high = _exponent_bits(body, body.bits_of(body.fma(x, 0.25, 0.25)))
    down = body.float_of(body.constant(form.bias << form.mantissa, body.whole).integer("sub", high))
    down = down * 0.25
    first, rest = _log1p_near(body, body.fma(x, down, down - 1.0))
    e = body.convert("sitofp", high.integer("ashr", form.mantissa), body.element) + 2.0
    low = body.fma(e, form.ln2_low, rest)
    result = body.fma(e, form.ln2_high, first + low)
    edge = body.select(x.equals(-1.0), -math.inf, math.nan)
    result = body.select(x.equals(math.inf), x, body.select(x > -1.0, result, edge))
    return body.select(x.equals(0.0), x, result)


def asinh(body: FunctionBody, x: Lanes) -> Lanes:
    """log1p(a + a^2 / (1 + sqrt(a^2 + 1))), a = |x|; log(a) + ln 2 for large a."""
    a = body.absolute(x)
    limit = 1e9 if body.element == "float" else 1e18
    bounded = body.at_most(a, limit)
    square = bounded * bounded
    inner = bounded + square / (body.sqrt(square + 1.0) + 1.0)
    near = body.call("log1p", inner)
    far = body.call("log", a) + math.log(2)
    return body.with_sign(body.select(a > limit / 10, far, near), x)


def acosh(body: FunctionBody, x: Lanes) -> Lanes:
    """log1p(t + sqrt(2 t + t^2)), t = x - 1; log(x) + ln 2 for large x."""
    limit = 1e9 if body.element == "float" else 1e18
    t = body.at_most(x, limit) - 1.0
    near = body.call("log1p", t + body.sqrt(body.fma(t, t, t * 2.0)))
    far = body.call("log", x) + math.log(2)
    return body.select(x < 1.0, math.nan, body.select(x > limit / 10, far, near))


def atanh(body: FunctionBody, x: Lanes) -> Lanes:
    """log1p(2 a / (1 - a)) / 2, a = |x|."""
    a = body.absolute(x)
    result = body.call("log1p", (a * 2.0) / (1.0 - a)) * 0.5
    return body.with_sign(body.select(a > 1.0, math.nan, result), x)
