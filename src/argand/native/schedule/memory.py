"""native.schedule.memory: intermediate buffers share one arena by lifetime.

In: sizes and lifetimes (first and last step). Out: byte offsets and the size of the arena.
Larger buffers are placed first, each at the lowest offset free during its whole life.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

ALIGNMENT: Final = 64


@final
@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer is written at step ``first`` and read for the last time at ``last``."""

    size: int
    first: int
    last: int


def place(buffers: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """Offsets in the order given, and the bytes needed."""
    offsets = [0] * len(buffers)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(buffers)), key=lambda k: (-buffers[k].size, k)):
        buffer = buffers[index]
        size = -(-max(buffer.size, 1) // ALIGNMENT) * ALIGNMENT
        busy = sorted(
            (offsets[other], offsets[other] + buffers[other].size)
            for other in placed
            if buffers[other].first <= buffer.last and buffer.first <= buffers[other].last
        )
        offset = 0
        for start, end in busy:
            if start - offset >= size:
                break
            offset = max(offset, -(-end // ALIGNMENT) * ALIGNMENT)
        offsets[index] = offset
        placed.append(index)
        total = max(total, offset + size)
    return tuple(offsets), total
