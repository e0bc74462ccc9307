"""benchmarks.figures: numbers from samples. In: lists of seconds. Out: medians, ratios, means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles around it."""

    middle: float
    low: float
    high: float


def spread(samples: Sequence[float]) -> Spread:
    """Median and quartiles; of one sample, that sample."""
    if len(samples) < 2:
        return Spread(samples[0], samples[0], samples[0])
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Spread(middle, low, high)


def ratio(base: Sequence[float], other: Sequence[float]) -> Spread:
    """How many times faster ``other`` is than ``base``.

    Samples taken in the same round are divided by each other, so that what slowed the machine down
    in a round slowed both. Where the rounds do not pair up, medians are divided.
    """
    if len(base) == len(other):
        return spread([b / o for b, o in zip(base, other, strict=True)])
    middle = statistics.median(base) / statistics.median(other)
    return Spread(middle, middle, middle)


def geomean(values: Sequence[float]) -> float:
    """The geometric mean of all values: none is clipped, none is left out."""
    return math.exp(sum(math.log(value) for value in values) / len(values))
