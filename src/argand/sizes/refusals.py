"""sizes.refusals: why sizes cannot stay as they are in an attempt.

Raised by any stage that works on samples; capture traces again, knowing more.
"""

from __future__ import annotations

from collections.abc import Iterable

from argand.sizes.expressions import Symbol
from argand.sizes.facts import Fact
from argand.support.errors import Location


class Specialise(BaseException):
    """These symbols cannot stay open: compile again with their sizes fixed. Raised by any stage.

    No ``Exception``: whoever falls back on an error must not swallow it.
    """

    def __init__(
        self, symbols: Iterable[Symbol], reason: str, where: Location | None = None
    ) -> None:
        self.symbols, self.reason, self.where = frozenset(symbols), reason, where
        super().__init__(f"{', '.join(sorted(s.name for s in self.symbols))}: {reason}")


class Unfit(Specialise):
    """A fact holds for the real sizes and not for the samples: choose other samples."""

    def __init__(self, fact: Fact, wish: bool = False) -> None:
        super().__init__(fact.symbols, f"needs {fact}", fact.where)
        self.fact = fact
        self.wish = wish  # only the samples should satisfy it, so that no two things look alike


class Again(BaseException):
    """A call needs these facts: trace again."""

    def __init__(self, facts: list[Fact]) -> None:
        super().__init__(facts)
        self.facts = facts
