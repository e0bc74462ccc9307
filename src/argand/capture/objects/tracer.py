"""capture.objects.tracer: all parts of one trace in one object.

In: the options of the compile and what earlier attempts found out. Out: journal, world and graph after the run. One
tracer is one attempt: a restart makes a new one, so nothing of a failed attempt survives. Handlers below the
interpreter call back through it; `interpret.interpreter` knows how.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from argand.bytecode import original_code
from argand.capture.objects import attention, optimizer_steps, polyfills
from argand.capture.objects.handling import Exceptions
from argand.capture.objects.parts import Caller, GraphState, StackFrame, TorchState
from argand.capture.record.recorder import Recorder
from argand.runtime.sources import Closure, ClosureCell, FrameFunction, Source
from argand.runtime.tracebacks import is_ours
from argand.sizes.plan import SizePlan
from argand.support.errors import CaptureBreak, Location
from argand.support.options import Options

FRAME_FUNCTION: Final = FrameFunction()
# What `from __future__ import ...` says of code; exec() and compile() hand it on.
_FUTURE: Final = 0x1FE0000


def places_of(frames: Sequence[StackFrame]) -> tuple[tuple[str, str, int, str, int], ...]:
    """Where frames stand: file, function, line, module, and `__future__` as flags; outermost first."""
    rows = [
        (original_code(frame.code), frame)
        for frame in frames
        if not is_ours(frame.code.co_filename)
    ]
    return tuple(
        (
            c.co_filename,
            c.co_name,
            frame.line,
            str(frame.globals.get("__name__")),
            c.co_flags & _FUTURE,
        )
        for c, frame in rows
    )


class Tracer(GraphState, Caller):
    """The state of one attempt to trace a frame with everything it calls."""

    def __init__(self, options: Options, forced: dict[int, CaptureBreak], plan: SizePlan) -> None:
        super().__init__(self.place, plan)
        self.options = options
        self.frames = []
        self.answers = []
        self.exceptions = Exceptions()
        self.recorder = Recorder(self.world, self._trace_text, self.is_handled, lambda: self.count)
        self.overrides = self.recorder.overrides
        self.torch = TorchState()
        self.root: StackFrame | None = None
        self.count = 0  # number of the instruction being run
        self.took_at = (
            -1
        )  # the last one that took items of an iterator on its way to something else
        self._forced = forced
        self.next_forced = min(forced, default=-1)

    @property
    @abstractmethod
    def arrays(self) -> Any:
        """What is done with arrays of numpy's (rules.arrays.entry)."""

    @abstractmethod
    def is_handled(self) -> bool:
        """Whether code of the user would see an exception raised now."""

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
        again = CaptureBreak(cause.row, cause.where, **cause.details)
        again.edit = cause.edit
        return again

    def place(self) -> Location | None:
        """The user's line being traced."""
        ours = (vars(polyfills), vars(optimizer_steps), vars(attention))
        return next(
            (
                f.location()
                for f in reversed(self.frames)
                if not any(f.globals is own for own in ours)
            ),
            None,
        )

    def locations(self) -> tuple[Location, ...]:
        """The user's stack, outermost first."""
        return tuple(frame.location() for frame in self.frames)

    def _trace_text(self) -> str:
        return self.frames[-1].trace_text() if self.frames else ""

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
