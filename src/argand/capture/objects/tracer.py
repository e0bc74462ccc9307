"""capture.objects.tracer: what the parts of one trace share.

In: the options of the compile and what earlier attempts found out. Out: journal, world and graph after the run. One
tracer is one attempt: a restart makes a new one, so nothing of a failed attempt survives. Handlers below the
interpreter call back through it; `interpret.interpreter` knows how.
"""

from __future__ import annotations

import enum
import types
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, final

from argand.bytecode import Instruction, original_code
from argand.capture.objects import attention, optimizer_steps, polyfills
from argand.capture.objects.handling import Exceptions
from argand.capture.outside.journal import Journal
from argand.capture.outside.world import World
from argand.capture.record.recorder import Recorder
from argand.runtime.guards import Closure, ClosureCell, FrameFunction, Source
from argand.runtime.tracebacks import is_ours
from argand.sizes.plan import SizePlan
from argand.support.errors import CaptureBreak, Location
from argand.support.options import Options

FRAME_FUNCTION: Final = FrameFunction()
# What `from __future__ import ...` says of code; exec() and compile() hand it on.
_FUTURE: Final = 0x1FE0000


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


def places_of(frames: Sequence[StackFrame]) -> tuple[tuple[str, str, int, str, int], ...]:
    """Where frames stand: file, function, line, module, and `__future__` as flags; outermost first."""
    rows = [(original_code(frame.code), frame) for frame in frames if not is_ours(frame.code.co_filename)]
    return tuple(
        (c.co_filename, c.co_name, frame.line, str(frame.globals.get("__name__")), c.co_flags & _FUTURE)
        for c, frame in rows
    )


@final
@dataclass(slots=True)
class ClassLookups:
    """What classes held under the names that the trace asked for: guards are made of it."""

    inherited: dict[tuple[type, str], Any] = field(default_factory=dict)  # with their bases
    own: dict[tuple[type, str], Any] = field(default_factory=dict)

    def forget(self, kind: type, name: str) -> None:
        """The trace has written to a class: its subclasses hold something else now."""
        for key in [key for key in self.inherited if key[1] == name and issubclass(key[0], kind)]:
            del self.inherited[key]


@final
@dataclass(slots=True)
class TorchState:
    """What the trace has found of torch, and what of torch is open where it stands."""

    global_hooks: bool | None = None  # of torch.nn, once they have been looked at
    intact: dict[int, bool] = field(default_factory=dict)  # its functions: whether they call torch's own
    entered: list[Any] = field(default_factory=list)  # contexts to leave when the trace ends inside
    differentiated: bool = False  # gradients were computed inside: histories of tensors may be used up
    retained: list[Any] = field(default_factory=list)  # tensors of the trace whose gradient is kept
    retained_at: dict[int, int] = field(default_factory=dict)  # and the instructions that said so
    regions: list[Any] = field(default_factory=list)  # open contexts of the profiler, which a graph does not have


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


class Tracer(ABC):
    """The state of one attempt to trace a frame with everything it calls."""

    def __init__(self, options: Options, forced: dict[int, CaptureBreak], plan: SizePlan) -> None:
        self.options = options
        self.frames: list[StackFrame] = []
        self.world = World(self.place, plan)
        self.journal = Journal()
        self.recorder = Recorder(self.world, self._trace_text, self.is_handled)
        self.overrides = self.recorder.overrides
        self.root: StackFrame | None = None
        self.count = 0  # number of the instruction being run
        self.answers: list[Any] = []  # what inner frames gave to this instruction, which may only hand it on
        self._forced = forced
        self.next_forced = min(forced, default=-1)
        self.exceptions = Exceptions()
        self.classes = ClassLookups()
        self.torch = TorchState()
        # outside cells that functions made inside share: cell, source of its contents, of itself
        self.outer_cells: dict[int, tuple[types.CellType, Source, Source]] = {}

    # -- the interpreter -------------------------------------------------------------------------

    @abstractmethod
    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`function(*args, **kwargs)`."""

    @abstractmethod
    def inline(self, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Interpret a Python function."""

    @abstractmethod
    def class_body(self, function: types.FunctionType) -> dict[str, Any]:
        """The namespace that the body of a class fills."""

    @abstractmethod
    def load_or(self, owner: Any, name: str, default: Any) -> Any:
        """`getattr(owner, name, default)`."""

    @property
    @abstractmethod
    def arrays(self) -> Any:
        """What is done with arrays of numpy's (rules.arrays.entry)."""

    @abstractmethod
    def is_handled(self) -> bool:
        """Whether code of the user would see an exception raised now."""

    def sealed(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose result is worked on before an instruction ends: a break in it cannot resume."""
        with self.seal():
            return self.call(function, args, kwargs)

    def seal(self) -> Seal:
        """A block of such calls."""
        return Seal(self.answers)

    # -- the state -------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the outside when the attempt has ended.

        A trace is full of cycles (frames, tracer, world), which would keep the inputs of the call
        alive until the garbage collector runs, and a table of sizes refers to its tracer for longer.
        """
        self.root = None
        self.frames.clear()
        self.exceptions = Exceptions()
        self.world.close()
        self.recorder.close()

    def forced_break(self) -> CaptureBreak:
        """The break decided on by an earlier attempt for the current instruction."""
        cause = self._forced[self.count]
        return CaptureBreak(cause.row, cause.where, **cause.details)

    def place(self) -> Location | None:
        """The user's line being traced."""
        ours = (vars(polyfills), vars(optimizer_steps), vars(attention))
        return next((f.location() for f in reversed(self.frames) if not any(f.globals is own for own in ours)), None)

    def locations(self) -> tuple[Location, ...]:
        """The user's stack, outermost first."""
        return tuple(frame.location() for frame in self.frames)

    def _trace_text(self) -> str:
        return self.frames[-1].trace_text() if self.frames else ""

    def mark_made(self, value: Any) -> Any:
        """Remember that a function or class was made inside the trace."""
        self.world.made.add(id(value))
        self.world.hold(value)
        return value

    def is_outside(self, value: Any) -> bool:
        """Whether an object is used as itself though it lives outside: writes go to the journal."""
        known = self.world.known.get(id(value))
        if known is not None:
            return known.raw is value
        kinds = type | types.ModuleType | types.FunctionType | enum.Enum
        return isinstance(value, kinds) and id(value) not in self.world.made

    def written(self) -> Any:
        """Equal answers: the trace changed nothing outside between them."""
        return self.journal.mark(), self.world.changed()

    def has_effects(self) -> bool:
        """Whether the trace has done anything that the outside would see by now: then nothing may run ahead of it."""
        noted, changed = self.written()
        return noted != [0] or bool(changed) or self.recorder.changes_inputs() or self.recorder.draws()

    @abstractmethod
    def cell_value(self, frame: StackFrame, name: str) -> Any:
        """The contents of a cell as the trace sees them, MISSING if there are none."""

    def cell_source(self, frame: StackFrame, name: str) -> Source:
        """Where an outside cell itself lives."""
        cell = frame.cells[name]
        shared = self.outer_cells.get(id(cell))
        if shared is not None:
            return shared[2]
        contents = frame.cell_sources[name]
        if isinstance(contents, Closure):
            return self.world.child(ClosureCell, contents.base, contents.index)
        index = frame.code.co_freevars.index(name)
        return self.world.child(ClosureCell, FRAME_FUNCTION, index)
