"""bisect.smallest: delta debugging. In: things that fail together, and a test. Out: a part of them that still fails.

Of what is left nothing can be taken away alone (Zeller's ddmin): halves are tried first, then smaller pieces and what is left
without one, so one guilty thing among n is found in about 2 log n tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

Thing = TypeVar("Thing")


def smallest(things: Sequence[Thing], fails: Callable[[Sequence[Thing]], bool]) -> list[Thing]:
    """The smallest part that was found to fail; all ``things`` together are known to."""
    left, pieces = list(things), 2
    while len(left) >= 2:
        chunks = _split(left, pieces)
        smaller = next((chunk for chunk in chunks if fails(chunk)), None)
        if smaller is not None:
            left, pieces = smaller, 2
            continue
        others = (
            [thing for chunk in chunks if chunk is not without for thing in chunk]
            for without in chunks
        )
        rest = next((other for other in others if fails(other)), None) if pieces > 2 else None
        if rest is not None:
            left, pieces = rest, max(pieces - 1, 2)
        elif pieces < len(left):
            pieces = min(2 * pieces, len(left))
        else:
            break
    return left


def _split(things: list[Thing], pieces: int) -> list[list[Thing]]:
    """Pieces of nearly equal length, none of them empty."""
    bounds = [len(things) * k // pieces for k in range(pieces + 1)]
    return [things[begin:end] for begin, end in itertools.pairwise(bounds) if begin < end]


def first_smaller(number: int, fails: Callable[[int], bool]) -> int:
    """The smallest of a few numbers below one that still fails, or the number itself."""
    tries = dict.fromkeys(
        [*(n for n in (1, 2, 3, 4, 8, 16) if n < number), number // 4, number // 2]
    )
    return next((smaller for smaller in tries if 0 < smaller < number and fails(smaller)), number)
