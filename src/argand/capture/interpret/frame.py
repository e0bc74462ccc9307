"""capture.interpret.frame: one interpreted Python frame, and the loop that runs it.

In: a code object with its variables. Out: its result, or the exception it raised, or a `CaptureBreak` that
carries the frames it went through. Operands stay on the stack until an instruction has succeeded, so at a
break every frame is exactly as CPython would have it before the instruction.
"""

from __future__ import annotations

import linecache
import pathlib
import types
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from argand import bytecode, capture
from argand.bytecode import Instruction
from argand.capture.attempts import BreakAt
from argand.capture.generated.tracebacks import pass_through
from argand.capture.objects import attention, optimizer_steps, polyfills
from argand.capture.objects.handling import Exceptions, add_context, set_context
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.ops.fakes import DataDependent
from argand.runtime import skips
from argand.runtime.sources import Source
from argand.runtime.tracebacks import is_ours, trim
from argand.sizes import refusals
from argand.sizes.refusals import Stop
from argand.support.errors import ArgandError, Break, CaptureBreak, InternalError, Location

# Exceptions raised in these folders are our bugs, but not those of operations that run for real or as polyfills.
_OURS: Final = tuple(
    str(pathlib.Path(package.__file__).parent)
    for package in (bytecode, capture)
    if package.__file__
)
_SIZES: Final = str(pathlib.Path(refusals.__file__).parent)
_THEIRS: Final = (real.__file__, polyfills.__file__, optimizer_steps.__file__, attention.__file__)

Handler: TypeAlias = Callable[["Frame", Instruction], int | None]
HandledCode: TypeAlias = tuple[tuple[Handler, Instruction], ...]


# they see to the context themselves
_RAISING: Final = frozenset({"raise_varargs", "reraise", "cleanup_throw"})


class TooDeep(BaseException):
    """Recursion that eager would end here, or that tracing has no stack for: Python runs it, no handler sees this."""


def is_internal(error: BaseException) -> bool:
    """Whether an exception is our bug: raised in this room, not by `real`, or where sizes are looked up."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    name = trace.tb_frame.f_code.co_filename
    if name.startswith(_SIZES):  # open integers raise what integers raise
        return isinstance(error, LookupError | AttributeError | AssertionError)
    return name.startswith(_OURS) and name not in _THEIRS


def is_of_user(error: BaseException, exceptions: Exceptions) -> bool:
    """Whether an exception is one of the user's program: not our own signal, and no Ctrl-C."""
    if isinstance(error, Exception):
        return True
    if isinstance(error, TooDeep | Stop):
        return False
    return (
        not isinstance(error, KeyboardInterrupt)
        or real.was_raised(error)
        or id(error) in exceptions.raised
    )


class Frame:
    """An interpreted frame."""

    __slots__ = (
        "builtins", "cell_sources", "cells", "code", "count", "function", "globals", "globals_source", "index",
        "locals", "placed", "prefix", "program", "result", "shown_locals", "stack", "thrown", "tracer",
    )  # fmt: skip

    def __init__(
        self,
        tracer: Tracer,
        function: types.FunctionType | None,
        code: types.CodeType,
        namespace: dict[str, Any],
        builtins: dict[str, Any],
        program: HandledCode,
    ) -> None:
        self.tracer, self.function, self.code = tracer, function, code
        self.globals, self.builtins = namespace, builtins
        self.globals_source: Source | None = None  # None: the root frame's own globals
        self.locals: dict[str, Any] = {}
        self.cells: dict[str, types.CellType] = {}
        self.cell_sources: dict[str, Source] = {}  # outside cells: where their contents live
        self.stack: list[Any] = []
        self.index = 0
        self.count = 0  # number of the instruction being run, over the whole trace
        self.program = program
        self.result: Any = None
        self.thrown: BaseException | None = None  # raised into a suspended generator
        self.shown_locals: dict[str, Any] | None = None  # what `locals()` gave
        self.placed: tuple[int, Location] | None = None
        self.prefix: str | None = None  # text of the calling frames, for stack traces

    def share_cell(self, name: str, cell: types.CellType) -> None:
        """Something else than the frame keeps the cell, too; if it is an outside one, note where it lives."""
        source = self.cell_sources.get(name)
        if source is not None:
            self.tracer.outer_cells[id(cell)] = (cell, source, self.tracer.cell_source(self, name))

    def run(self) -> int:
        """Run until the frame returns or yields; exceptions of user code come out as themselves."""
        tracer, program = self.tracer, self.program
        tracer.frames.append(self)
        answers, tracer.answers = tracer.answers, []
        try:
            while True:
                index = self.index
                try:
                    if self.thrown is not None:
                        thrown, self.thrown = self.thrown, None
                        real.raise_(thrown)
                    while True:
                        handler, instruction = program[index]
                        self.index = index
                        self.count = tracer.count = tracer.count + 1
                        if tracer.count == tracer.next_forced:
                            raise tracer.forced_break()
                        step = handler(self, instruction)
                        if step is None:
                            index += 1
                        elif step >= 0:
                            index = step
                        else:
                            return step
                except DataDependent as cause:
                    broken = CaptureBreak(Break.B008, None, op=cause.op_name, method=cause.op_name)
                    broken.native = real.took_items(cause)
                    raise self._broken(broken) from None
                except CaptureBreak as cause:
                    raise self._broken(cause) from None
                except (ArgandError, Stop, TooDeep):
                    raise
                except RecursionError as error:
                    raise TooDeep from error
                except BaseException as error:  # of user code: look for its handler
                    self.index = self._unwind(error)
        finally:
            tracer.answers = answers
            tracer.frames.pop()

    def _broken(self, cause: CaptureBreak) -> BaseException:
        """A break leaves through this frame: note it, or start over when native code is in between."""
        if not cause.frames and skips.is_operator(self.code) and len(self.tracer.frames) > 1:
            cause.native = True  # the break is at the user's call
            return cause
        if cause.where is None:
            cause.locate(self.location(), self.tracer.locations())
        if not cause.frames and skips.is_standard(self.code) and len(self.tracer.frames) > 1:
            # The standard library is not left in the middle (of its locks, files and caches): the break is at the
            # call that got into it.
            cause.native = True
            return cause
        if not cause.frames and self.count == self.tracer.took_at:
            cause.native = (
                True  # Python, which does this instruction, must find the items that were taken
            )
        if not cause.frames and self.tracer.count != self.count:
            cause.native = True  # inner frames have run: Python, which does it all, must find nothing of it done
        if cause.native:
            return Stop(BreakAt(self.count, cause))
        cause.frames.append(self)
        return cause

    def _unwind(self, error: BaseException) -> int:
        if not is_of_user(error, self.tracer.exceptions):
            real.raise_(error)
        if is_internal(error):
            message = f"{type(error).__name__}: {error}"
            raise InternalError("capture", message) from error
        handler = self.instruction.handler
        self._set_context(error)
        self._note(error)
        if handler is None:
            self.tracer.exceptions.leaving = error
            real.raise_(error)
        self.tracer.exceptions.leaving = None
        del self.stack[handler.depth :]
        if handler.lasti:
            self.stack.append(self.index)
        self.stack.append(error)
        return handler.target

    def _set_context(self, error: BaseException) -> None:
        """What was raised here refers to what is handled; what comes out of a call does so already."""
        tracer, op = self.tracer, self.instruction.op
        if error is tracer.exceptions.leaving or op in _RAISING or id(error) in tracer.world.known:
            return
        if op == "yield_value":  # thrown into a generator
            set_context(error, tracer.exceptions.current)
        else:
            add_context(error, tracer.exceptions.current)

    def _note(self, error: BaseException) -> None:
        """Keep the user's place instead of the traceback, which holds frames of the interpreter alive."""
        tracer, outside = self.tracer, id(error) in self.tracer.world.known
        if outside:
            tracer.exceptions.before.setdefault(id(error), (error, trim(error).__traceback__))
        elif id(error) not in tracer.exceptions.raised:
            error.__traceback__ = None
            tracer.world.hold(error)
            tracer.exceptions.raised.add(id(error))
        trim(error)
        if not self._raises_again() and not is_ours(self.code.co_filename):
            pass_through(error, self.code, self.index)
            if outside:
                tracer.exceptions.passed.append((error, self.code, self.index))

    def _raises_again(self) -> bool:
        """Whether the instruction raises what is handled: it adds no line to the traceback."""
        return self.instruction.op == "reraise" or (
            self.instruction.op == "raise_varargs" and not self.instruction.arg
        )

    @property
    def instruction(self) -> Instruction:
        """The instruction being run."""
        return self.program[self.index][1]

    def instruction_at(self, index: int) -> Instruction:
        """One of its instructions."""
        return self.program[index][1]

    @property
    def line(self) -> int:
        """The user's line."""
        return self.instruction.positions.line or self.code.co_firstlineno

    def location(self) -> Location:
        """Where the frame is."""
        if self.placed is None or self.placed[0] != self.index:
            place = Location(self.code.co_filename, self.line, self.code.co_name)
            self.placed = (self.index, place)
        return self.placed[1]

    def trace_text(self) -> str:
        """The stack of user frames down to this one, as a traceback shows it."""
        if self.prefix is None:
            frames = self.tracer.frames
            at = frames.index(self)
            self.prefix = frames[at - 1].trace_text() if at else ""
        line = self.line
        text = linecache.getline(self.code.co_filename, line).strip()
        return f'{self.prefix}  File "{self.code.co_filename}", line {line}, in {self.code.co_name}\n    {text}\n'
