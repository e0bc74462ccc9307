"""native.codegen.math.error: erf, erfc and the normal distribution."""

from __future__ import annotations

import math

from argand.native.codegen.math import coefficients as table
from argand.native.codegen.math.builder import Body, Value


def erf(body: Body, x: Value) -> Value:
    """Float: a rational function up to where erf rounds to 1. Double: the C library."""
    if body.element == "double":
        return body.each_lane("erf", x)
    bounded = body.at_most(body.at_least(x, -3.93), 3.93)
    return _rational(body, bounded, 1.0)


def _rational(body: Body, x: Value, scale: float) -> Value:
    square = x * x
    top = body.polynomial(square, [scale * c for c in table.ERF_F32_TOP]) * x
    ratio = top / body.polynomial(square, table.ERF_F32_BOTTOM)
    return body.at_most(body.at_least(ratio, -scale), scale)


def erfc(body: Body, x: Value) -> Value:
    """The C library, lane by lane."""
    return body.each_lane("erfcf" if body.element == "float" else "erfc", x)


def gelu(body: Body, x: Value) -> Value:
    """x/2 (1 + erf(x / sqrt 2))."""
    scaled = x * math.sqrt(0.5)
    if body.element == "double":
        return x * 0.5 * (body.call("erf", scaled) + 1.0)
    bounded = body.at_most(body.at_least(scaled, -3.93), 3.93)
    return x * (_rational(body, bounded, 0.5) + 0.5)
