"""capture.outside.iterators: iterators that live across a graph break.

In: an iterator from outside, as a resume function gets it. Out: one of the trace's own at the same place, over what the
trace sees of its sequence. How much is left of it is guarded, and it is moved on when the call ends. A frame that breaks
again leaves it alone (`attempts.LeaveIterators`): a loop with a break in each pass would be compiled for every place.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, Final, final

from argand.capture.outside.reader import WorldReader
from argand.runtime.guards import GuardKind
from argand.runtime.sources import Item, MadeFrom, Source
from argand.support.dataclass import dataclass

_SEQUENCES: Final[tuple[Any, ...]] = ([], (), range(0), range(1 << 99), "", "\u1234")
_OVER_SEQUENCES: Final[frozenset[type]] = frozenset(type(iter(made)) for made in _SEQUENCES) | {
    type(reversed([]))
}
KINDS: Final[frozenset[type]] = _OVER_SEQUENCES | {enumerate, zip}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """An iterator that the trace has read: where it is, the trace's own, what it goes through, how much was left of it."""

    source: Source
    value: Any
    through: list[Any]
    before: tuple[int, bool]


def parts(iterator: Any) -> tuple[Any, ...]:
    """What an iterator is made of: its sequence and what is left of it; inner iterators and a count."""
    _, made_of, *state = iterator.__reduce__()
    if type(iterator) is zip:
        return (*made_of, bool(state))  # whether it is strict
    if type(iterator) is enumerate:
        return tuple(made_of)
    return made_of[0], operator.length_hint(iterator)


def read_iterator(world: WorldReader, source: Source, raw: Any) -> Any:
    """The trace's view of an iterator; None: at an earlier call it was at another place, or it is one we cannot make."""
    found, place = parts(raw), world.child(MadeFrom, source, parts)
    number = world.child(Item, place, len(found) - 1)
    if str(number) in world.sizes.plan.varied or any(_is_closed(part) for part in found[:-1]):
        return None
    world.keep_off_disk("an iterator across a break")
    world.guard(GuardKind.TYPE_IS, source, type(raw))
    world.guard(GuardKind.EQUALS, number, found[-1])
    through = [world.item(place, i, part) for i, part in enumerate(found[:-1])]
    # One that stays as it is would be moved on for real by the trace that goes through it.
    if any(type(own) in KINDS and own is part for own, part in zip(through, found, strict=False)):
        return None
    value = _made(type(raw), through, found[-1])
    world.iterators.append(Opened(source, value, through, _left(value)))
    return world.register(source, raw, value)


def _is_closed(part: Any) -> bool:
    """Whether what an iterator goes through is neither a plain sequence nor an iterator that can be read."""
    return type(part) not in (list, tuple, range, str) and type(part) not in KINDS


def _made(kind: Any, inner: list[Any], number: Any) -> Any:
    if kind is zip:
        return zip(*inner, strict=number)
    if kind is enumerate:
        return enumerate(inner[0], number)
    made = reversed(inner[0]) if kind is type(reversed([])) else iter(inner[0])
    move(made, number, False)
    return made


def _left(iterator: Any) -> tuple[int, bool]:
    """How much is left of an iterator of the trace (the number an enumeration is at), and whether it has ended."""
    if type(iterator) is zip:
        return 0, False  # all there is of it are its inner ones
    if type(iterator) is enumerate:
        return -parts(iterator)[1], False
    return operator.length_hint(iterator), len(iterator.__reduce__()) == 2


def moved(opened: list[Opened]) -> Iterator[tuple[Opened, int, bool]]:
    """The iterators that the trace has moved, outer ones first: an enumeration moves the one below it."""
    for row in reversed(opened):
        left, ended = _left(row.value)
        if (left, ended) != row.before:
            yield row, left, ended


def move(iterator: Any, left: int, ended: bool) -> None:
    """Move an iterator on until this much is left of it."""
    for _ in range(_left(iterator)[0] - left):
        next(iterator)
    if ended:
        next(iterator, None)
