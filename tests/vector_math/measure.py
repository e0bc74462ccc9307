"""Errors of the maths functions in ULP, measured as the table of promises says."""

from __future__ import annotations

import numpy as np

from tests.vector_math import harness, oracle
from tests.vector_math.table import TABLE

TWO_ARGUMENTS = {"pow", "atan2"}


def inputs_of(name, kind, per_exponent, dense):
    """Every exponent, a dense range, and (-1, 1); pairs for functions of two arguments."""
    row, place = TABLE[name], int(kind == np.float64)
    if name in TWO_ARGUMENTS:
        return pairs(name, kind, per_exponent * 200 + dense)
    parts = [
        harness.every_exponent(kind, per_exponent),
        harness.dense(kind, *row.dense, dense),
        harness.dense(kind, -1, 1, dense // 4, seed=2),
    ]
    x = np.concatenate(parts)
    with np.errstate(invalid="ignore"):
        return (x[~((x < row.low[place]) | (x > row.high[place]))],)


def pairs(name, kind, count):
    generator = np.random.default_rng(3)
    special = np.array(
        [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, np.inf, np.nan, 1e30, 1e-30, 7.0, 2.0**24], kind
    )
    special = np.concatenate([special, -special])
    x, y = (grid.ravel() for grid in np.meshgrid(special, special))
    wide = np.exp(generator.uniform(-80, 80, count)).astype(kind)
    if name == "pow":
        near = generator.uniform(0, 4, count).astype(kind)
        base = np.concatenate([wide, near])
        power = np.concatenate(
            [
                generator.uniform(-2, 2, count).astype(kind),
                generator.uniform(-60, 60, count).astype(kind),
            ]
        )
        return np.concatenate([x, base]), np.concatenate([y, power])
    other = np.exp(generator.uniform(-80, 80, count)).astype(kind)
    signs = generator.choice(np.array([-1, 1], kind), (4, count))
    near = generator.uniform(-3, 3, (2, count)).astype(kind)
    return (
        np.concatenate([x, wide * signs[0], near[0]]),
        np.concatenate([y, other * signs[1], near[1]]),
    )


def worst(name, kind, per_exponent, dense, lanes=None):
    """(greatest error, mean error, where, got, wanted)."""
    inputs = inputs_of(name, kind, per_exponent, dense)
    actual, exact = harness.run(name, *inputs, lanes=lanes), oracle.exact(name, *inputs)
    error = harness.ulp_error(actual, exact, TABLE[name].floor[int(kind == np.float64)])
    at = int(np.argmax(error))
    where = tuple(x[at] for x in inputs)
    return float(error[at]), float(np.mean(error)), where, actual[at], exact[at]
