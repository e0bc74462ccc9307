"""sizes.refusals: why an attempt cannot continue with the sizes as they are.

A refusal is a value, which a stage gives back in place of its result; the plan of the frame learns
from it, and capture makes another attempt. Where code that is not ours is running (the program under
the interpreter, torch's dispatcher, a backend), nobody could hand the value on: `Stop` unwinds that
code, up to the stage that had called it. `attempt` is where it becomes a value, and the only place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar, final

from typing_extensions import override

from argand.sizes.expressions import Symbol
from argand.sizes.facts import Fact
from argand.support.dataclass import dataclass
from argand.support.errors import Location


@final
@dataclass(frozen=True, slots=True)
class FixSizes:
    """These symbols cannot stay open: their sizes have to be fixed."""

    symbols: frozenset[Symbol]
    reason: str
    where: Location | None = None
    only_now: bool = False  # because of their values in this call: others may leave them open

    @override
    def __str__(self) -> str:
        return f"{', '.join(sorted(symbol.name for symbol in self.symbols))}: {self.reason}"


@final
@dataclass(frozen=True, slots=True)
class OtherSamples:
    """A fact holds for the real sizes and not for the samples: others have to be chosen."""

    fact: Fact
    is_wish: bool = False  # only samples should satisfy it, so that no two things look alike

    @override
    def __str__(self) -> str:
        return f"the samples need {self.fact}"


@final
@dataclass(frozen=True, slots=True)
class NeedFacts:
    """A call works only where these facts hold."""

    facts: tuple[Fact, ...]

    @override
    def __str__(self) -> str:
        return f"a call needs {', '.join(map(str, self.facts))}"


Refusal: TypeAlias = FixSizes | OtherSamples | NeedFacts
StageOutcome = TypeVar("StageOutcome")


class Stop(BaseException):
    """Ends an attempt from inside of code that is not ours.

    No ``Exception``: whoever falls back on an error must not swallow it.
    """

    def __init__(self, reason: object) -> None:
        super().__init__(reason)
        self.reason = reason


def fixing(symbols: Iterable[Symbol], reason: str, where: Location | None = None) -> Stop:
    """What to raise where symbols cannot stay open."""
    return Stop(FixSizes(frozenset(symbols), reason, where))


def attempt(stage: Callable[[], StageOutcome]) -> StageOutcome | Stop:
    """What a stage gives, or what stopped it from inside."""
    try:
        return stage()
    except Stop as stopped:
        stopped.__context__ = None
        return stopped.with_traceback(None)  # its frames hold the inputs of the call, and it


def or_refusal(stage: Callable[[], StageOutcome]) -> StageOutcome | Refusal:
    """What a stage gives, or its refusal; other reasons are for capture alone, and are raised on."""
    outcome = attempt(stage)
    if not isinstance(outcome, Stop):
        return outcome
    if isinstance(outcome.reason, FixSizes | OtherSamples | NeedFacts):
        return outcome.reason
    raise outcome
