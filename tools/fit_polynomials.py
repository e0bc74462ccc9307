"""Fit the polynomials and rational functions of argand.native.codegen.math.coefficients.

    python tools/fit_polynomials.py            prints every table with its error
    python tools/fit_polynomials.py TANH_F32   prints one

Polynomials are interpolated in Chebyshev points in 200-bit arithmetic (within a bit of minimax);
rational functions are fitted by reweighted least squares. Needs mpmath, which torch brings along.
"""

from __future__ import annotations

import struct
import sys
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
class Rational:
    """`target(x) / x` on (0, high] as P(x^2) / Q(x^2), relative error."""

    target: Function
    high: float
    numerator: int
    denominator: int


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


def fit_rational(fit: Rational, rounds: int = 400, points: int = 2000) -> tuple[list, list, float]:
    """Coefficients of P and Q (Q starts with 1) and the greatest relative error."""
    x = (1 + np.cos(np.pi * (np.arange(points) + 0.5) / points)) * (fit.high / 2)
    target = np.array([float(fit.target(mpf(v)) / mpf(v)) for v in x])
    basis = chebyshev.chebvander(2 * x * x / fit.high**2 - 1, max(fit.numerator, fit.denominator))
    top, bottom = basis[:, : fit.numerator + 1], basis[:, : fit.denominator + 1]
    weight, divisor, best = np.ones(points), np.ones(points), (np.inf, np.zeros(1))
    for _ in range(rounds):
        rows = np.sqrt(weight) / np.abs(target * divisor)
        matrix = np.concatenate([top, -target[:, None] * bottom], 1) * rows[:, None]
        norms = np.linalg.norm(matrix, axis=0)
        solution = np.linalg.svd(matrix / norms, full_matrices=False)[2][-1] / norms
        solution /= (bottom @ solution[fit.numerator + 1 :])[0]
        divisor = bottom @ solution[fit.numerator + 1 :]
        error = np.abs(top @ solution[: fit.numerator + 1] / divisor / target - 1)
        if error.max() < best[0]:
            best = (error.max(), solution)
        weight = weight * np.sqrt(error / error.max() + 1e-3)
        weight /= weight.sum()
    change = np.poly1d([2 / fit.high**2, -1])
    sides = [best[1][: fit.numerator + 1], best[1][fit.numerator + 1 :]]
    p, q = (np.poly1d(chebyshev.cheb2poly(side)[::-1])(change).c[::-1] for side in sides)
    return list(p / q[0]), list(q / q[0]), float(best[0])


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


EXP = _tail(mp.exp, 2, 1)
SIN = _odd_tail(mp.sin, "-0.1666666666666666666666666666666667")
ASIN = _odd_tail(mp.asin, "0.1666666666666666666666666666666667")
ATAN = _odd_tail(mp.atan, "-0.3333333333333333333333333333333333")
ATANH = _odd_tail(mp.atanh, "0.3333333333333333333333333333333333")
COS = _tail(mp.cos, 2, 2)

FITS: dict[str, Polynomial | Rational] = {
    "EXP_F32": Polynomial(EXP, "-0.3468", "0.3468", 4, lambda r: r * r, 32),
    "EXP_F64": Polynomial(EXP, "-0.3468", "0.3468", 10, lambda r: r * r, 64),
    "EXP2_F64": Polynomial(EXP, "-0.3468", "0.3468", 7, lambda r: r * r, 64),
    "LOG_F32": Polynomial(_log_tail, "-0.29290", "0.41425", 7, lambda f: f * f, 32),
    "LOG_F64": Polynomial(ATANH, "0", "0.02944", 7, lambda s: s, 64),
    "TANH_F32": Rational(mp.tanh, 9.02, 5, 4),
    "ERF_F32": Rational(mp.erf, 3.93, 6, 5),
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
            tables, bits = [("", values)], fit.bits
        else:
            top, bottom, error = fit_rational(fit)
            tables, bits = [("_TOP", top), ("_BOTTOM", bottom)], 32
        print(f"# {name}: error below 2^{float(mp.log(error, 2)):.2f}")
        for label, row in tables:
            print(f"{name}{label}: Final = ({', '.join(repr(_rounded(v, bits)) for v in row)})")


if __name__ == "__main__":
    main()
