"""native.codegen.math.error: erf, erfc and the normal distribution."""

from __future__ import annotations

import math

from argand.native.codegen.math import coefficients as table
from argand.native.codegen.math.builder import FunctionBody, Lanes
from argand.native.codegen.math.exponential import exp2_bounded, exp_clamped
from argand.native.codegen.math.power import exp2_double


def erf(body: FunctionBody, x: Lanes) -> Lanes:
    """1 - erfc|x|, and a polynomial near 0; floats take erfc|x| = 2^p(|x|)."""
    magnitude = body.absolute(x)
    if body.element == "float":
        bounded = body.at_most(magnitude, 3.95)
        far = 1.0 - exp2_bounded(body, body.polynomial(bounded, table.LOG2_ERFC_F32))
    else:
        bounded = body.at_most(body.at_least(magnitude, 0.9), 6.0)
        scaled = body.polynomial((bounded - 4.0) / (bounded + 4.0), table.ERFCX_F64)
        far = 1.0 - scaled * exp_clamped(body, -(bounded * bounded))
    first, *rest = table.ERF_F32 if body.element == "float" else table.ERF_F64
    near = body.fma(body.polynomial(x * x, [first - 1, *rest]), magnitude, magnitude)
    return body.with_sign(body.select(magnitude < 0.9, near, far), x)


def _erfc_of_magnitude(body: FunctionBody, a: Lanes) -> Lanes:
    """e^(-a^2) G(t) / (1 + 2a), t = (a - 4) / (a + 4); a is a double in any body, up to 28."""
    mills = table.MILLS_F32 if body.element == "float" else table.MILLS_F64
    ratio = body.polynomial((a - 4.0) / (a + 4.0), mills) / body.fma(a, 2.0, 1.0)
    square = a * a
    if body.element == "float":
        return ratio * exp2_double(body, square * (-1 / math.log(2)))
    # What rounding the square lost matters where e^(-a^2) is small.
    lost = body.fma(a, a, -square)
    power = body.call("exp", -square)
    return ratio * body.fma(power, -lost, power)


def erfc(body: FunctionBody, x: Lanes) -> Lanes:
    """Floats are computed in double; denormal results are rounded once."""
    if body.element == "double":
        value = _erfc_of_magnitude(body, body.at_most(body.absolute(x), 28.0))
        return body.select(x < 0.0, 2.0 - value, value)
    wide = body.convert("fpext", body.at_most(body.absolute(x), 11.0), "double")
    value = _erfc_of_magnitude(body, wide)
    negative = body.convert("fpext", x, "double") < 0.0
    return body.convert("fptrunc", body.select(negative, 2.0 - value, value), "float")


def gelu(body: FunctionBody, x: Lanes) -> Lanes:
    """x Phi(x), where Phi(-|x|) = 2^p(|x|) in floats; 0 where eager's 1 + erf is 0, too."""
    if body.element == "double":
        return x * 0.5 * (body.call("erf", x * math.sqrt(0.5)) + 1.0)
    magnitude = body.absolute(x)
    limit = 5.6
    power = body.polynomial(body.at_most(magnitude, limit), table.LOG2_NORMAL_F32)
    below = body.select(magnitude > limit, 0.0, exp2_bounded(body, power))
    return x * body.select(x < 0.0, below, 1.0 - below)
