"""capture.attempts: how one attempt to trace a frame ends, and what the next one knows.

An attempt is done, with the answer for the frame, or another one is needed, for a reason. Reasons are
values: what has to be done about sizes (`sizes.refusals`), and those below. Each retry is an event
with its reason (`capture.retry`, `ARGAND_LOGS=retries`).
"""

from __future__ import annotations

from typing import TypeAlias, final

from typing_extensions import override

from argand.sizes.plan import SizePlan
from argand.sizes.refusals import Refusal
from argand.support import events
from argand.support.dataclass import dataclass
from argand.support.errors import BackendCompilerFailed, CaptureBreak, Location


@final
@dataclass(frozen=True, slots=True)
class ReadLists:
    """A list that seemed to be only appended to is read: the next attempt reads all of each list."""

    @override
    def __str__(self) -> str:
        return "a list is read that was to be appended to only"


@final
@dataclass(frozen=True, slots=True)
class BreakAt:
    """A break below native code: the next attempt breaks at the instruction with this number."""

    count: int
    cause: CaptureBreak

    @override
    def __str__(self) -> str:
        return f"break at instruction {self.count}: {self.cause.reason}"


@final
@dataclass(frozen=True, slots=True)
class BackendFailed:
    """The backend cannot take open sizes: the next attempt has none."""

    error: BackendCompilerFailed

    @override
    def __str__(self) -> str:
        return f"the backend cannot take it: {self.error.inner_exception!r}"


@final
@dataclass(frozen=True, slots=True)
class ModuleMade:
    """A lazy module has its parameters now: the next attempt finds an ordinary one."""

    name: str

    @override
    def __str__(self) -> str:
        return f"{self.name} has made its parameters"


@final
@dataclass(frozen=True, slots=True)
class Resized:
    """The frame leaves other sizes than it found: the next attempt has them open, as the next call will need."""

    places: frozenset[str]

    @override
    def __str__(self) -> str:
        return f"left at another size: {', '.join(sorted(self.places))}"


@final
@dataclass(frozen=True, slots=True)
class LeaveIterators:
    """The frame breaks again, or changes what an iterator from outside goes through: the next attempt hands them on only."""

    @override
    def __str__(self) -> str:
        return "iterators from outside are left closed"


Reason: TypeAlias = (
    Refusal | ReadLists | BreakAt | BackendFailed | ModuleMade | Resized | LeaveIterators
)


@final
@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt is needed."""

    reason: Reason


@final
class Knowledge:
    """What earlier attempts on a frame found out."""

    def __init__(self, plan: SizePlan) -> None:
        self.plan = plan
        self.breaks: dict[int, CaptureBreak] = {}  # by the number of the instruction to break at
        self.reads_lists = False
        self.leaves_iterators = False

    def learn(self, reason: Reason, where: Location) -> None:
        """Let the next attempt heed a reason. UserError where a size must stay open and cannot."""
        events.count("capture.retry", detail=str(reason))
        events.artifact("retries", lambda: str(reason), str(where))
        match reason:
            case BreakAt(count, cause):
                # tracing is deterministic up to this instruction: later numbers may mean others now
                kept = {number: why for number, why in self.breaks.items() if number <= count}
                self.breaks = {**kept, count: cause}
                return
            case ReadLists():
                self.reads_lists = True
            case LeaveIterators():
                self.leaves_iterators = True
            case ModuleMade():
                pass
            case Resized(places):
                self.plan.varied |= places
            case BackendFailed():
                self.plan.close(str(reason))
            case _:
                self.plan.learn(reason)
        self.breaks = {}  # the next attempt runs other instructions
