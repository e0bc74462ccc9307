"""For each function: where it is measured, and the error it promises there.

`ulp` are (float, double) bounds in units of the last place, over every exponent and densely in
`dense`. Where eager's own formula ends in 0 or infinity early (sigmoid far below 0), `low` and
`high` end the range; `floor` says that results below it count by absolute error, as in eager.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    ulp: tuple[float, float]
    dense: tuple[float, float] = (-2.0, 2.0)
    low: tuple[float, float] = (-math.inf, -math.inf)
    high: tuple[float, float] = (math.inf, math.inf)
    floor: tuple[float, float] = (0.0, 0.0)


TABLE = {
    "exp": Row((1.2, 1.2), (-104, 89)),
    "exp2": Row((1.2, 1.2), (-150, 129)),
    "expm1": Row((1.8, 1.9), (-20, 89)),
    "log": Row((1.1, 1.0), (0, 4)),
    "log2": Row((1.3, 1.3), (0, 4)),
    "log10": Row((1.3, 2.5), (0, 4)),
    "log1p": Row((1.6, 1.5), (-1, 5)),
    "tanh": Row((2.1, 2.6), (-10, 10)),
    "sinh": Row((2.4, 2.4), (-89, 89)),
    "cosh": Row((1.6, 1.8), (-89, 89)),
    "asinh": Row((2.0, 2.0)),
    "acosh": Row((2.0, 2.0), (1, 4)),
    "atanh": Row((2.2, 2.2), (-1, 1)),
    "sin": Row((1.7, 1.7), (-1e5, 1e5)),
    "cos": Row((1.7, 1.7), (-1e5, 1e5)),
    "tan": Row((3.8, 3.8), (-1e5, 1e5)),
    "asin": Row((2.5, 2.5), (-1, 1)),
    "acos": Row((1.3, 1.3), (-1, 1)),
    "atan": Row((2.0, 2.0), (-5, 5)),
    "erf": Row((1.9, 2.0), (-4, 4)),
    "erfc": Row((1.0, 6.0), (-6, 11)),
    "sigmoid": Row((2.0, 2.0), (-90, 90), low=(-87.0, -708.0)),
    "silu": Row((2.6, 2.6), (-90, 90), low=(-87.0, -708.0)),
    "softplus": Row((2.4, 2.4), (-30, 30)),
    "gelu": Row((2.6, 4.5), (-6, 6), floor=(0.25, 0.25)),
    "gelu_tanh": Row((4.0, 4.0), (-6, 6), floor=(0.25, 0.25)),
    "pow": Row((0.8, 1.0)),
    "atan2": Row((2.6, 2.6)),
    "rsqrt": Row((1.6, 1.6)),
}
