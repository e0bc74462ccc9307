"""native.codegen.math.power: x^y and 1/sqrt(x)."""

from __future__ import annotations

import math

from argand.native.codegen.math import coefficients as table
from argand.native.codegen.math.builder import FunctionBody, Lanes
from argand.native.codegen.math.exponential import F64


def rsqrt(body: FunctionBody, x: Lanes) -> Lanes:
    """1 / sqrt(x), two correctly rounded steps as in eager."""
    return 1.0 / body.sqrt(x)


def log2_double(body: FunctionBody, x: Lanes) -> Lanes:
    """log2 of a positive normal double, to about 2^-38; -inf at 0, inf at infinity."""
    bits = body.bits_of(x)
    high = bits.integer("sub", 0x3FE6A09E667F3BCD).integer("and", -(1 << 52))
    m = body.float_of(bits.integer("sub", high))
    # The exponent as a double without a 64-bit conversion, which AVX2 lacks.
    e32 = body.convert("trunc", high.integer("ashr", 52), "i32")
    e = body.convert("sitofp", e32, "double")
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    series = body.polynomial(square, [1.0, *table.LOG_F64[:6]])
    result = body.fma(series, s * (2 / math.log(2)), e)
    result = body.select(x.equals(0.0), -math.inf, result)
    return body.select(x < math.inf, result, x)


def exp2_double(body: FunctionBody, y: Lanes) -> Lanes:
    """2^y in double for |y| <= 1000, to about 2^-44."""
    shifted = y + F64.magic
    r = (y - (shifted - F64.magic)) * math.log(2)
    value = body.fma(body.polynomial(r, table.EXP2_F64), r * r, r + 1.0)
    exponent = body.bits_of(shifted).integer("shl", F64.mantissa)
    return body.float_of(body.bits_of(value).integer("add", exponent))


def pow(body: FunctionBody, x: Lanes, y: Lanes) -> Lanes:
    """Float: 2^(y log2|x|) in double, rounded once. Double: the C library, lane by lane."""
    if body.element == "double":
        return body.each_lane("pow", x, y)
    magnitude = body.convert("fpext", body.absolute(x), "double")
    wide = body.convert("fpext", y, "double")
    exponent = wide * log2_double(body, magnitude)
    bounded = body.at_most(body.at_least(exponent, -300.0), 300.0)
    value = body.convert("fptrunc", exp2_double(body, bounded), "float")
    half = y * 0.5
    whole = body.intrinsic("llvm.rint", y).equals(y)
    odd = whole.integer("and", body.compare("une", body.intrinsic("llvm.rint", half), half))
    negative = body.compare("slt", body.bits_of(x), 0)
    value = body.select(negative.integer("and", odd), -value, value)
    fraction = whole.integer("xor", 1).integer("and", x < 0.0)
    finite = fraction.integer("and", x > -math.inf)
    value = body.select(finite, math.nan, value)
    ones = body.absolute(x).equals(1.0).integer("and", body.absolute(y).equals(math.inf))
    ones = ones.integer("or", y.equals(0.0)).integer("or", x.equals(1.0))
    return body.select(ones, 1.0, value)
