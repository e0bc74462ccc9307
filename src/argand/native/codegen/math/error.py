"""native.codegen.math.error: erf, erfc and the normal distribution."""

from __future__ import annotations

import math

from argand.native.codegen.math import coefficients as table
from argand.native.codegen.math.builder import Body, Value
from argand.native.codegen.math.exponential import exp2_bounded


def erf(body: Body, x: Value) -> Value:
    """Float: 1 - 2^p(|x|), and a polynomial near 0. Double: the C library."""
    if body.element == "double":
        return body.each_lane("erf", x)
    magnitude = body.absolute(x)
    bounded = body.at_most(magnitude, 3.95)
    far = 1.0 - exp2_bounded(body, body.polynomial(bounded, table.LOG2_ERFC_F32))
    square = x * x
    near = body.polynomial(square, [table.ERF_F32[0] - 1, *table.ERF_F32[1:]])
    near = body.fma(near, magnitude, magnitude)
    return body.with_sign(body.select(magnitude < 0.9, near, far), x)


def erfc(body: Body, x: Value) -> Value:
    """The C library, lane by lane."""
    return body.each_lane("erfcf" if body.element == "float" else "erfc", x)


def gelu(body: Body, x: Value) -> Value:
    """x Phi(x), where Phi(-|x|) = 2^p(|x|) in floats; 0 where eager's 1 + erf is 0, too."""
    if body.element == "double":
        return x * 0.5 * (body.call("erf", x * math.sqrt(0.5)) + 1.0)
    magnitude = body.absolute(x)
    limit = 5.6
    power = body.polynomial(body.at_most(magnitude, limit), table.LOG2_NORMAL_F32)
    below = body.select(magnitude > limit, 0.0, exp2_bounded(body, power))
    return x * body.select(x < 0.0, below, 1.0 - below)
