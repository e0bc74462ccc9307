"""capture.interpret.interpreter: how a tracer calls: Python functions become frames that are interpreted.

In: a function and its arguments. Out: what it returns. Fails with `TooDeep` where there is no stack left.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, Final, cast

from typing_extensions import override

from argand.capture.attempts import ReadLists
from argand.capture.interpret import calls, handed_on, handlers, show
from argand.capture.interpret.arguments import bind
from argand.capture.interpret.frame import Frame, TooDeep
from argand.capture.interpret.opcodes import loads
from argand.capture.interpret.opcodes.table import program_of
from argand.capture.markers import MISSING
from argand.capture.objects import attributes
from argand.capture.objects.generators import Generator
from argand.capture.objects.parts import StackFrame
from argand.capture.objects.tracer import Tracer
from argand.capture.rules import overrides, wrappers
from argand.runtime import _native
from argand.runtime.sources import Closure
from argand.sizes.plan import SizePlan
from argand.sizes.refusals import Stop
from argand.support import events
from argand.support.errors import Break, CaptureBreak
from argand.support.options import Options

_GENERATOR: Final = inspect.CO_GENERATOR
_ASYNC: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


class Interpreter(Tracer):
    """A tracer that interprets Python functions."""

    def __init__(self, options: Options, forced: dict[int, CaptureBreak], plan: SizePlan) -> None:
        super().__init__(options, forced, plan)
        self.recorder.unwrap = functools.partial(wrappers.call, self)
        self.recorder.dispatch = functools.partial(overrides.dispatch, self)
        self.generators: list[Generator] = []  # that were made inside
        self._shown = events.shown() & show.TRACED  # what the user wants to see while it is traced
        # the user's frames and the bytes of C stack that must be left
        self.most_frames, self.least_stack = (1000, 0)

    @override
    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return calls.call(self, function, args, kwargs)

    @override
    def load_or(self, owner: Any, name: str, default: Any) -> Any:
        return attributes.load_or(self, owner, name, default)

    @property
    @override
    def arrays(self) -> Any:
        from argand.capture.rules.arrays import entry  # noqa: PLC0415  # few programs have arrays

        return entry

    @override
    def close(self) -> None:
        self.generators.clear()
        super().close()

    @override
    def cell_value(self, frame: StackFrame, name: str) -> Any:
        try:
            return loads.read_cell(cast("Frame", frame), name)
        except NameError:
            return MISSING

    @override
    def is_handled(self) -> bool:
        return handlers.is_handled(self.frames)

    @override
    def inline(
        self, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if len(self.frames) >= self.most_frames or _native.stack_left() < self.least_stack:
            raise TooDeep
        code = function.__code__
        if code.co_flags & _ASYNC:
            raise CaptureBreak(Break.B013, None, what="asynchronous code")
        if id(function) not in self.world.made:
            self.world.inlined[id(function)] = function
        frame = self._frame_of(function, code)
        frame.locals = bind(self.world, function, code, args, kwargs)
        if code.co_flags & _GENERATOR:
            made_at = self.frames[-1].count if self.frames else 0
            self.generators.append(Generator(frame, function, args, kwargs, made_at))
            return self.generators[-1]
        frame.run()
        self.answers.append(frame.result)
        known = self.world.known.get(id(frame.result))
        # the caller may read what this frame only appended to
        if known is not None and known.partial:
            raise Stop(ReadLists())
        return frame.result

    @override
    def class_body(self, function: types.FunctionType) -> dict[str, Any]:
        frame = self._frame_of(function, function.__code__)
        frame.run()
        return frame.locals

    def _frame_of(self, function: types.FunctionType, code: types.CodeType) -> Frame:
        builtins = function.__builtins__  # type: ignore[attr-defined, unused-ignore]
        frame = self.frame(function, code, function.__globals__, builtins)
        made = id(function) in self.world.made
        if self.root is None or function.__globals__ is not self.root.globals:
            frame.globals_source = self.world.const(function.__globals__)
        if function.__closure__:
            source = None if made else self.world.source_of(function)
            for i, (name, cell) in enumerate(
                zip(code.co_freevars, function.__closure__, strict=True)
            ):
                frame.cells[name] = cell
                shared = self.outer_cells.get(id(cell))
                if shared is not None:
                    frame.cell_sources[name] = shared[1]
                elif source is not None:
                    frame.cell_sources[name] = self.world.child(Closure, source, i)
        return frame

    def frame(
        self,
        function: types.FunctionType | None,
        code: types.CodeType,
        namespace: dict[str, Any],
        builtins: dict[str, Any],
    ) -> Frame:
        """A frame at its beginning, with no variables."""
        program = program_of(code)
        if self._shown:
            program = show.watched(program, code, self._shown)
        if self.options.verify:
            program = handed_on.checked(program)
        return Frame(self, function, code, namespace, builtins, program)
