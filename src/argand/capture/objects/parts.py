"""capture.objects.parts: the parts of a tracer, so that a signature says what a function may do.

| a function takes | it reads and writes the outside | records operations | runs Python code of the user |
|---|---|---|---|
| `Outside` | yes | | |
| `GraphState` | yes | yes | only a `__torch_function__` that meets what it records |
| `Caller` | yes | only by what it runs | yes |
| `Tracer` | yes | yes | yes |

A tracer is all of them: rules called from a table are handed the tracer, and their signatures name the part they use.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, Protocol, final

from argand.bytecode import Instruction
from argand.capture.objects.handling import Exceptions
from argand.capture.outside.state import Outside
from argand.capture.outside.subclasses import Overrides
from argand.capture.record.recorder import Recorder
from argand.runtime.sources import Source
from argand.support.dataclass import dataclass
from argand.support.errors import CaptureBreak, Location


class StackFrame(Protocol):
    """An interpreted frame, for those who only look at it."""

    code: types.CodeType
    function: types.FunctionType | None
    globals: dict[str, Any]
    globals_source: Source | None  # None: the root frame's own globals
    locals: dict[str, Any]
    cells: dict[str, types.CellType]
    cell_sources: dict[str, Source]
    shown_locals: dict[str, Any] | None  # what `locals()` gave
    stack: list[Any]
    index: int
    count: int  # number of the instruction being run, over the whole trace

    @property
    def instruction(self) -> Instruction:
        """The instruction being run."""

    @property
    def line(self) -> int:
        """The user's line."""

    def location(self) -> Location:
        """Where the frame is."""

    def trace_text(self) -> str:
        """The stack of user frames down to this one, as a traceback shows it."""


@final
@dataclass(slots=True)
class TorchState:
    """What the trace has found of torch, and what of torch is open where it stands."""

    global_hooks: bool | None = None  # of torch.nn, once they have been looked at
    # its functions: whether they call torch's own
    intact: dict[int, bool] = field(default_factory=dict)
    entered: list[Any] = field(default_factory=list)  # contexts to leave when the trace ends inside
    # gradients were computed inside: histories of tensors may be used up
    differentiated: bool = False
    retained: list[Any] = field(default_factory=list)  # tensors of the trace whose gradient is kept
    retained_at: dict[int, int] = field(default_factory=dict)  # and the instructions that said so
    hooked: list[Any] = field(default_factory=list)  # tensors of the trace that have hooks
    hooked_at: dict[int, int] = field(default_factory=dict)
    # open contexts of the profiler, which a graph does not have
    regions: list[Any] = field(default_factory=list)


class GraphState(Outside):
    """The graph that is recorded, and what of torch is open around it."""

    recorder: Recorder
    overrides: Overrides  # the recorder's: which `__torch_function__` of the user is on
    torch: TorchState

    def has_effects(self) -> bool:
        """Whether the trace has done anything that the outside would see by now: then nothing may run ahead of it."""
        noted, changed = self.written()
        return (
            noted != [0] or bool(changed) or self.recorder.changes_inputs() or self.recorder.draws()
        )


@final
class Seal:
    """A block that works on what inner frames give before its instruction ends: a break in them cannot resume there.

    A break resumes with the inner frame's result in place of the instruction's. That is right where the instruction
    hands the result on as it is, and silently wrong where anything is done with it. So whoever does anything with it
    stands in such a block, and `interpret.handed_on` checks it when forms are verified.
    """

    __slots__ = ("answers", "before")

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers

    def __enter__(self) -> None:
        self.before = len(self.answers)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        del self.answers[self.before :]
        if isinstance(error, CaptureBreak):
            error.native = error.native or bool(error.frames)


class Caller(Outside, ABC):
    """Who runs Python code as the user's program would."""

    frames: list[StackFrame]
    answers: list[Any]  # what inner frames gave to this instruction, which may only hand it on
    exceptions: Exceptions

    @abstractmethod
    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`function(*args, **kwargs)`."""

    @abstractmethod
    def inline(
        self, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Interpret a Python function."""

    @abstractmethod
    def class_body(self, function: types.FunctionType) -> dict[str, Any]:
        """The namespace that the body of a class fills."""

    @abstractmethod
    def load_or(self, owner: Any, name: str, default: Any) -> Any:
        """`getattr(owner, name, default)`."""

    @abstractmethod
    def cell_value(self, frame: StackFrame, name: str) -> Any:
        """The contents of a cell as the trace sees them, MISSING if there are none."""

    def sealed(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose result is worked on before an instruction ends: a break in it cannot resume."""
        with self.seal():
            return self.call(function, args, kwargs)

    def seal(self) -> Seal:
        """A block of such calls."""
        return Seal(self.answers)
