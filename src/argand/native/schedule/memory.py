"""native.schedule.memory: intermediate buffers share one arena by lifetime.

In: sizes and lifetimes (first and last step). Out: byte offsets and the size of the arena.
Larger buffers are placed first, each at the lowest offset free during its whole life. Buffers of a size
known only at run time lie behind these, in rooms that serve one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from argand.native.ir.types import at_least
from argand.sizes.expressions import SizeInt

ALIGNMENT: Final = 64


class Lifetime(NamedTuple):
    """A buffer is written at step ``first`` and read for the last time at ``last``."""

    size: int
    first: int
    last: int


def place(buffers: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """Offsets in the order given, and the bytes needed."""
    open_sizes = [k for k, buffer in enumerate(buffers) if isinstance(buffer.size, SizeInt)]
    if not open_sizes:
        return _place_known(buffers)
    known = [k for k in range(len(buffers)) if k not in set(open_sizes)]
    some, total = _place_known([buffers[k] for k in known])
    offsets = dict(zip(known, some, strict=True))
    rooms: list[tuple[int, int, list[Lifetime]]] = []  # offset, bytes, who lives there
    for index in sorted(open_sizes, key=lambda k: (-buffers[k].size, k)):
        buffer = buffers[index]
        fits = (
            room
            for room in rooms
            if at_least(room[1], buffer.size) and not any(_meet(buffer, g) for g in room[2])
        )
        room = next(fits, None)
        if room is None:
            room = (total, (buffer.size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT, [])
            rooms.append(room)
            total += room[1]
        room[2].append(buffer)
        offsets[index] = room[0]
    return tuple(offsets[k] for k in range(len(buffers))), total


def _meet(one: Lifetime, other: Lifetime) -> bool:
    return other.first <= one.last and one.first <= other.last


def _place_known(buffers: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    offsets = [0] * len(buffers)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(buffers)), key=lambda k: (-buffers[k].size, k)):
        buffer = buffers[index]
        size = -(-max(buffer.size, 1) // ALIGNMENT) * ALIGNMENT
        busy = sorted(
            (offsets[other], offsets[other] + buffers[other].size)
            for other in placed
            if _meet(buffer, buffers[other])
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
