"""Fit the polynomials of argand.native.codegen.math.coefficients.

    python tools/fit_polynomials.py            prints every table with its error
    python tools/fit_polynomials.py TANH_F32   prints one

Polynomials are interpolated in Chebyshev points in 200-bit arithmetic (within a bit of minimax);
weighted ones are fitted by reweighted least squares. Needs mpmath, which torch brings along.
"""

from __future__ import annotations

import struct
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from mpmath import mp, mpf
from numpy.polynomial import chebyshev

mp.prec = 200
Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Polynomial:
    """`target(x)` on [low, high]; its error counts `weight(x)` in the result."""

    target: Function
    low: str
    high: str
    degree: int
    weight: Function
    bits: int


@dataclass(frozen=True)
class Weighted:
    """A float polynomial for `target(x)`, least greatest value of |error * weight(x)|."""

    target: Function
    low: float
    high: float
    degree: int
    weight: Function


def fit_polynomial(fit: Polynomial) -> tuple[list[mpf], mpf]:
    """Monomial coefficients, lowest first, and the greatest weighted error on a fine grid."""
    low, high, size = mpf(fit.low), mpf(fit.high), fit.degree + 1
    nodes = [
        (low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * size))
        for k in range(size)
    ]
    matrix = mp.matrix([[x**i for i in range(size)] for x in nodes])
    solution = list(mp.lu_solve(matrix, mp.matrix([fit.target(x) for x in nodes])))
    grid = [low + (high - low) * k / 300 for k in range(301)]
    errors = [abs((mp.polyval(solution[::-1], x) - fit.target(x)) * fit.weight(x)) for x in grid]
    return solution, max(errors)


def fit_weighted(fit: Weighted, rounds: int = 600, points: int = 3000) -> tuple[list, float]:
    """Monomial coefficients and the greatest weighted error."""
    t = np.cos(np.pi * (np.arange(points) + 0.5) / points)
    x = (fit.low + fit.high) / 2 + (fit.high - fit.low) / 2 * t
    target = np.array([float(fit.target(mpf(v))) for v in x])
    scale = np.array([float(fit.weight(mpf(v))) for v in x])
    basis, weight, best = chebyshev.chebvander(t, fit.degree), np.ones(points), (np.inf, target)
    for _ in range(rounds):
        rows = np.sqrt(weight) * scale
        solution = np.linalg.lstsq(basis * rows[:, None], target * rows, rcond=None)[0]
        error = np.abs(basis @ solution - target) * scale
        if error.max() < best[0]:
            best = (error.max(), solution)
        weight = weight * np.sqrt(error / error.max() + 1e-3)
        weight /= weight.mean()
    change = np.poly1d([2 / (fit.high - fit.low), -(fit.high + fit.low) / (fit.high - fit.low)])
    return list(np.poly1d(chebyshev.cheb2poly(best[1])[::-1])(change).c[::-1]), float(best[0])


def _rounded(value: mpf, bits: int) -> float:
    return struct.unpack("f", struct.pack("f", float(value)))[0] if bits == 32 else float(value)


def _tail(function: Function, terms: int, step: int) -> Function:
    """(f(x) - its first `terms` Taylor terms) / x^(step * terms), as a function of x^step."""
    taylor = mp.taylor(function, 0, 160)

    def tail(s: mpf) -> mpf:
        rest = taylor[terms * step + (1 if step == 2 and taylor[0] == 0 else 0) :: step]
        return mp.polyval(rest[::-1], s)

    return tail


def _log_tail(f: mpf) -> mpf:
    """(log(1+f) - f + f^2/2) / f^3."""
    if abs(f) < mpf("1e-15"):
        return mpf(1) / 3 - f / 4
    return (mp.log1p(f) - f + f * f / 2) / f**3


def _odd_tail(function: Function, limit: str) -> Function:
    """(f(x)/x - 1) / x^2 as a function of x^2."""

    def tail(s: mpf) -> mpf:
        x = mp.sqrt(s)
        return (function(x) / x - 1) / s if s > mpf("1e-25") else mpf(limit)

    return tail


def _even(function: Function) -> Function:
    """f(x) / x as a function of x^2."""
    return lambda s: function(mp.sqrt(s)) / mp.sqrt(s)


def _log2_normal(a: mpf) -> mpf:
    """log2 of the normal distribution below -a."""
    return mp.log(mp.erfc(a / mp.sqrt(2)) / 2, 2)


def _normal_weight(a: mpf) -> mpf:
    """Absolute error of x * Phi(x) down to 1e-4 of x, relative below."""
    return max(mpf(2) ** _log2_normal(a), mpf("1e-4")) * max(min(a, mpf(1)), mpf("0.05"))


def _erfcx(t: mpf) -> mpf:
    """erfc(a) e^(a^2) in t = (a - 4) / (a + 4), for a from 0.9 to 6."""
    a = 4 * (1 + t) / (1 - t)
    return mp.erfc(a) * mp.exp(a * a)


def _mills(t: mpf) -> mpf:
    """erfc(a) e^(a^2) (1 + 2a) in t = (a - 4) / (a + 4)."""
    a = 4 * (1 + t) / (1 - t)
    return mp.erfc(a) * mp.exp(a * a) * (1 + 2 * a)


EXP = _tail(mp.exp, 2, 1)
SIN = _odd_tail(mp.sin, "-0.1666666666666666666666666666666667")
ASIN = _odd_tail(mp.asin, "0.1666666666666666666666666666666667")
ATAN = _odd_tail(mp.atan, "-0.3333333333333333333333333333333333")
ATANH = _odd_tail(mp.atanh, "0.3333333333333333333333333333333333")
COS = _tail(mp.cos, 2, 2)

FITS: dict[str, Polynomial | Weighted] = {
    "EXP_F32": Polynomial(EXP, "-0.3468", "0.3468", 4, lambda r: r * r, 32),
    "EXP_F64": Polynomial(EXP, "-0.3468", "0.3468", 10, lambda r: r * r, 64),
    "EXP2_F64": Polynomial(EXP, "-0.3468", "0.3468", 7, lambda r: r * r, 64),
    "LOG_F32": Polynomial(_log_tail, "-0.29290", "0.41425", 7, lambda f: f * f, 32),
    "LOG_F64": Polynomial(ATANH, "0", "0.02944", 7, lambda s: s, 64),
    "EXP2_F32": Weighted(lambda r: mpf(2) ** r, -0.501, 0.501, 5, lambda r: mpf(2) ** -r),
    "TANH_F32": Weighted(_even(mp.tanh), 1e-9, 0.625**2, 5, lambda s: 1 / _even(mp.tanh)(s)),
    "ERF_F32": Weighted(_even(mp.erf), 1e-9, 0.9**2, 5, lambda s: 1 / _even(mp.erf)(s)),
    "LOG2_ERFC_F32": Weighted(lambda a: mp.log(mp.erfc(a), 2), 0.9, 3.95, 6, mp.erfc),
    "ERF_F64": Polynomial(_even(mp.erf), "1e-12", "1", 13, lambda s: mpf(1), 64),
    "ERFCX_F64": Polynomial(_erfcx, "-0.634", "0.201", 16, lambda t: mpf(1), 64),
    "MILLS_F32": Polynomial(_mills, "-1", "0.45", 10, lambda t: mpf(1), 64),
    "MILLS_F64": Polynomial(_mills, "-1", "0.75", 24, lambda t: mpf(1), 64),
    "LOG2_NORMAL_F32": Weighted(_log2_normal, 0.0, 5.6, 9, _normal_weight),
    "SIN_F32": Polynomial(SIN, "0", "0.6169", 2, lambda s: s, 32),
    "SIN_F64": Polynomial(SIN, "0", "0.6169", 6, lambda s: s, 64),
    "COS_F32": Polynomial(COS, "0", "0.6169", 2, lambda s: s * s, 32),
    "COS_F64": Polynomial(COS, "0", "0.6169", 6, lambda s: s * s, 64),
    "ASIN_F32": Polynomial(ASIN, "0", "0.25", 5, lambda s: s, 32),
    "ASIN_F64": Polynomial(ASIN, "0", "0.25", 13, lambda s: s, 64),
    "ATAN_F32": Polynomial(ATAN, "0", "1", 8, lambda s: s, 32),
    "ATAN_F64": Polynomial(ATAN, "0", "1", 20, lambda s: s, 64),
}


def main() -> None:
    """Print the tables named on the command line, or all."""
    for name in sys.argv[1:] or FITS:
        fit = FITS[name]
        if isinstance(fit, Polynomial):
            values, error = fit_polynomial(fit)
        else:
            values, error = fit_weighted(fit)
        bits = fit.bits if isinstance(fit, Polynomial) else 32
        print(f"# {name}: error below 2^{float(mp.log(error, 2)):.2f}")
        numbers = ", ".join(repr(_rounded(v, bits)) for v in values)
        print(f"{name}: Final = (\n{textwrap.fill(numbers + ',', 116, break_on_hyphens=False)}\n)")


if __name__ == "__main__":
    main()
