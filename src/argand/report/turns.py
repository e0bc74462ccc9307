"""report.turns: which calls of a function eager takes, and how the two compare: calls with the same sizes side by side.

A program's calls differ in size, so a compiled call of a small one and eager's call of a large one say nothing. In: calls, each
with a ``signature`` of its arguments. Out: whose turn it is; and the times of both kinds over the signatures both have run with.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch

COMPILED: Final = "compiled"
EAGER: Final = "eager"
IN_PYTHON: Final = "in Python"
ENOUGH: Final = 8  # eager calls of one signature
MOST: Final = 40  # eager calls of one function
_EVERY: Final = 3  # of the calls, one in so many is eager's, whatever their sizes
_DEEP: Final = 3  # containers in containers


def signature(value: Any, depth: int = _DEEP) -> Hashable:
    """What a call's work depends on: sizes and types of its tensors. Numbers are left out: they may count steps."""
    if isinstance(value, torch.Tensor):
        return (*value.shape, value.dtype, value.requires_grad)
    if depth and isinstance(value, Mapping):
        return tuple((str(key), signature(item, depth - 1)) for key, item in value.items())
    if depth and isinstance(value, list | tuple):
        return tuple(signature(item, depth - 1) for item in value)
    return value if isinstance(value, bool | str) else None


@final
class EagerTurns:
    """Whose turn it is: of the calls with one signature the first is compiled, the second eager's, then one in three."""

    def __init__(self) -> None:
        self.eager = 0
        self._seen: dict[Hashable, dict[str, int]] = collections.defaultdict(collections.Counter)
        self._since = 0  # calls since eager's last

    def is_eager(self, sizes: Hashable) -> bool:
        """Whether the next call is eager's."""
        seen = self._seen[sizes]
        if self.eager >= MOST or seen[EAGER] >= ENOUGH:
            return False
        alone = not seen[COMPILED] and self._since >= 2 * _EVERY  # sizes that may never come again
        return seen[COMPILED] > 2 * seen[EAGER] or alone

    def took(self, kind: str, sizes: Hashable) -> None:
        """A call is over."""
        self._since = 0 if kind == EAGER else self._since + 1
        self.eager += kind == EAGER
        self._seen[sizes][kind] += 1

    def restart(self) -> None:
        """Something was compiled: calls of now are not calls of before."""
        self._since = 0
        for seen in self._seen.values():
            seen[COMPILED] = 2 * seen[EAGER]


class SpeedsCompared(NamedTuple):
    """Seconds of a call compiled and in eager; with ``alike`` False not with the same sizes, so only roughly."""

    compiled: float
    eager: float
    calls: tuple[int, int]  # of both
    alike: bool


def compared(calls: Iterable[tuple[str, Hashable, float]]) -> SpeedsCompared | None:
    """From calls in the order they came; None: too few. The first of each kind warms up."""
    times: dict[str, dict[Hashable, list[float]]] = {COMPILED: {}, EAGER: {}}
    warm = set()
    for kind, sizes, seconds in calls:
        if kind in times and kind in warm:
            times[kind].setdefault(sizes, []).append(seconds)
        warm.add(kind)
    compiled, eager = times[COMPILED], times[EAGER]
    both = [sizes for sizes in compiled if sizes in eager]
    if both:
        weights = [len(compiled[s]) + len(eager[s]) for s in both]
        return SpeedsCompared(
            _mean([statistics.median(compiled[s]) for s in both], weights),
            _mean([statistics.median(eager[s]) for s in both], weights),
            (sum(len(compiled[s]) for s in both), sum(len(eager[s]) for s in both)),
            True,
        )
    every = [[t for row in kind.values() for t in row] for kind in (compiled, eager)]
    if min(map(len, every)) < 4:
        return None
    return SpeedsCompared(
        statistics.mean(every[0]), statistics.mean(every[1]), (len(every[0]), len(every[1])), False
    )


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
