"""native.codegen.math.trigonometric: sin, cos, tan and their inverses.

x = n pi/2 + r, |r| <= pi/4, with pi/2 in three parts and one fma for each. Beyond the reach of
that (1e5 in float, 1e8 in double) the C library is asked, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, NamedTuple

from argand.native.codegen.math import coefficients as table
from argand.native.codegen.math.builder import FunctionBody, Lanes
from argand.native.codegen.math.exponential import format_of
from argand.native.codegen.text import rounded

_PI: Final = Fraction(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899"
)


def parts(body: FunctionBody, value: Fraction, count: int) -> list[float]:
    """`value` as an unevaluated sum of numbers of the body's type."""
    found = []
    for _ in range(count):
        found.append(rounded(float(value), body.element))
        value -= Fraction(found[-1])
    return found


class Quadrant(NamedTuple):
    """x = n pi/2 + r: sin r, cos r, and the bits of n."""

    n: Lanes
    sine: Lanes
    cosine: Lanes


def _reduce(body: FunctionBody, x: Lanes) -> Quadrant:
    form = format_of(body)
    shifted = body.fma(x, 2 / math.pi, form.magic)
    n, r = shifted - form.magic, x
    for part in parts(body, _PI / 2, 3):
        r = body.fma(n, -part, r)
    short = body.element == "float"
    square = r * r
    tail = body.polynomial(square, table.SIN_F32 if short else table.SIN_F64)
    sine = body.fma(square * r, tail, r)
    tail = body.polynomial(square, table.COS_F32 if short else table.COS_F64)
    cosine = body.fma(square * square, tail, body.fma(square, -0.5, 1.0))
    return Quadrant(body.bits_of(shifted), sine, cosine)


def _is_large(body: FunctionBody, x: Lanes) -> Lanes:
    return body.absolute(x) > (1e5 if body.element == "float" else 1e8)


def _wave(body: FunctionBody, quadrant: Quadrant, turn: int) -> Lanes:
    """sin(r + (n + turn) pi/2)."""
    n = quadrant.n.integer("add", turn)
    odd = body.compare("ne", n.integer("and", 1), 0)
    value = body.select(odd, quadrant.cosine, quadrant.sine)
    sign = n.integer("and", 2).integer("shl", body.bits - 2)
    return body.float_of(body.bits_of(value).integer("xor", sign))


def sin(body: FunctionBody, x: Lanes) -> Lanes:
    """Sine; keeps -0."""
    value = body.select(x.equals(0.0), x, _wave(body, _reduce(body, x), 0))
    return body.unless_any(_is_large(body, x), value, "sin_large", x)


def bounded_cos(body: FunctionBody, x: Lanes) -> Lanes:
    """Cosine of what is not large."""
    return _wave(body, _reduce(body, x), 1)


def cos(body: FunctionBody, x: Lanes) -> Lanes:
    """Cosine."""
    return body.unless_any(_is_large(body, x), bounded_cos(body, x), "cos_large", x)


def tan(body: FunctionBody, x: Lanes) -> Lanes:
    """sin r / cos r, or -cos r / sin r in odd quadrants."""
    n, sine, cosine = _reduce(body, x)
    odd = body.compare("ne", n.integer("and", 1), 0)
    ratio = body.select(odd, -cosine, sine) / body.select(odd, sine, cosine)
    value = body.select(x.equals(0.0), x, ratio)
    return body.unless_any(_is_large(body, x), value, "tan_large", x)


def by_libm(name: str) -> Callable[[FunctionBody, Lanes], Lanes]:
    """A function of anything, however large, by the C library."""
    return lambda body, x: body.each_lane(name + "f" if body.element == "float" else name, x)


def _arc_tail(body: FunctionBody, z: Lanes) -> Lanes:
    """(atan(z) - z) / z for 0 <= z <= 1."""
    square = z * z
    return body.polynomial(
        square, table.ATAN_F32 if body.element == "float" else table.ATAN_F64
    ) * (square)


def atan(body: FunctionBody, x: Lanes) -> Lanes:
    """atan|x| = pi/2 - atan(1/|x|) above 1."""
    a = body.absolute(x)
    steep = a > 1.0
    z = body.select(steep, 1.0, a) / body.select(steep, a, 1.0)
    arc = body.fma(_arc_tail(body, z), z, z)
    high, low = parts(body, _PI / 2, 2)
    return body.with_sign(body.select(steep, high - (arc - low), arc), x)


def atan2(body: FunctionBody, y: Lanes, x: Lanes) -> Lanes:
    """The angle of (x, y), from the ratio of the smaller to the greater."""
    ax, ay = body.absolute(x), body.absolute(y)
    steep = ay > ax
    small, great = body.select(steep, ax, ay), body.select(steep, ay, ax)
    ratio = body.select(
        small.equals(great), body.select(great.equals(0.0), 0.0, 1.0), small / great
    )
    arc = body.fma(_arc_tail(body, ratio), ratio, ratio)
    high, low = parts(body, _PI / 2, 2)
    arc = body.select(steep, high - (arc - low), arc)
    negative = body.compare("slt", body.bits_of(x), 0)
    high, low = parts(body, _PI, 2)
    arc = body.select(negative, high - (arc - low), arc)
    return body.with_sign(arc, y)


class Arc(NamedTuple):
    """asin(s) in two cases: s = |x| up to 1/2; above, s = sqrt((1 - |x|) / 2)."""

    large: Lanes
    s: Lanes
    rest: Lanes  # asin(s) - s


def _arc(body: FunctionBody, x: Lanes) -> Arc:
    a = body.absolute(x)
    large = a > 0.5
    z = body.select(large, body.fma(a, -0.5, 0.5), a * a)
    s = body.select(large, body.sqrt(z), a)
    tail = body.polynomial(z, table.ASIN_F32 if body.element == "float" else table.ASIN_F64)
    return Arc(large, s, s * z * tail)


def asin(body: FunctionBody, x: Lanes) -> Lanes:
    """asin|x| = pi/2 - 2 asin(sqrt((1 - |x|) / 2)) above 1/2."""
    large, s, rest = _arc(body, x)
    high, low = parts(body, _PI / 2, 2)
    far = high - ((s + rest) * 2.0 - low)
    return body.with_sign(body.select(large, far, s + rest), x)


def acos(body: FunctionBody, x: Lanes) -> Lanes:
    """pi/2 - asin(x); near 1, 2 asin(sqrt((1 - x) / 2)); near -1, pi less that."""
    large, s, rest = _arc(body, x)
    twice = (s + rest) * 2.0
    high, low = parts(body, _PI, 2)
    far = body.select(x < 0.0, high - (twice - low), twice)
    middle_high, middle_low = parts(body, _PI / 2, 2)
    signed = body.with_sign(s + rest, x)
    return body.select(large, far, middle_high - (signed - middle_low))
