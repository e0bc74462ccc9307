"""capture.interpret.tracer: what the parts of one trace share.

In: the root frame. Out: its journal, world and graph after the run. One tracer is one attempt: a restart
makes a new one, so nothing of a failed attempt survives.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, Final

import torch

from argand.capture.attempts import ReadLists
from argand.capture.interpret import calls, handlers, show
from argand.capture.interpret.arguments import bind
from argand.capture.interpret.frame import Frame, TooDeep
from argand.capture.interpret.handling import Handling
from argand.capture.objects import attributes, callbacks, operate
from argand.capture.objects.generators import Generator
from argand.capture.objects.methods import PLAIN, lookup, python_method
from argand.capture.outside import real
from argand.capture.outside.journal import Journal
from argand.capture.outside.kinds import is_trusted_module
from argand.capture.outside.world import World
from argand.capture.record.recorder import Recorder
from argand.capture.rules import polyfills
from argand.runtime import _native
from argand.runtime.guards import Closure, ClosureCell, FrameFunction, Source
from argand.sizes.plan import Plan
from argand.sizes.refusals import Stop
from argand.support import events
from argand.support.errors import Break, CaptureBreak, Location
from argand.support.options import Options

_GENERATOR: Final = inspect.CO_GENERATOR
FRAME_FUNCTION: Final = FrameFunction()
_ASYNC: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


class Tracer:
    """One attempt to trace a frame with everything it calls."""

    def __init__(self, options: Options, forced: dict[int, CaptureBreak], plan: Plan) -> None:
        self.options = options
        self.frames: list[Frame] = []
        self.shown = events.shown() & show.TRACED  # what the user wants to see while it is traced
        self.world = World(self.place, plan)
        self.journal = Journal()
        self.recorder = Recorder(self.world, self._trace_text, lambda: handlers.is_handled(self.frames))
        self.root: Frame | None = None
        self.most_frames, self.least_stack = 1000, 0  # the user's frames and the bytes of C stack that must be left
        self.frame_function = FRAME_FUNCTION
        self.count = 0
        self._forced = forced
        self._pending = sorted(forced)
        self.next_forced = self._pending[0] if self._pending else -1
        self.handling = Handling()
        self.generators: list[Generator] = []  # that were made inside
        self.global_hooks: bool | None = None  # of torch.nn, once they have been looked at
        self.raised: set[int] = set()  # exceptions made inside whose traceback is of the user's lines
        self.traces: dict[int, BaseException] = {}  # tracebacks the program got, and whose they are
        self.before: dict[int, tuple[BaseException, Any]] = {}  # exceptions from outside, their tracebacks at the start
        self.passed: list[tuple[BaseException, types.CodeType, int]] = []  # such an exception, a place it was raised at
        self.entered: list[Any] = []  # contexts of torch, to leave when the trace ends inside
        self.regions: list[Any] = []  # open contexts of the profiler, which a graph does not have
        self.lookups: dict[tuple[type, str], Any] = {}  # what classes hold, with their bases
        self.intact: dict[int, bool] = {}  # functions of torch: whether they call torch's own
        self.own_lookups: dict[tuple[type, str], Any] = {}  # what they hold themselves
        # outside cells that functions made inside share: cell, source of its contents, of itself
        self.outer_cells: dict[int, tuple[types.CellType, Source, Source]] = {}

    def close(self) -> None:
        """Let go of the outside when the attempt has ended.

        A trace is full of cycles (frames, tracer, world), which would keep the inputs of the call
        alive until the garbage collector runs, and a table of sizes refers to its tracer for longer.
        """
        self.root = None
        self.frames.clear()
        self.generators.clear()
        self.handling = Handling()
        self.world.close()
        self.recorder.close()

    @property
    def handled(self) -> BaseException | None:
        """What a bare `raise` would raise again."""
        return self.handling.current

    def forced_break(self) -> CaptureBreak:
        """The break decided on by an earlier attempt for the current instruction."""
        cause = self._forced[self.count]
        return CaptureBreak(cause.row, cause.where, **cause.details)

    def place(self) -> Location | None:
        """The user's line being traced."""
        ours = vars(polyfills)
        return next((frame.location() for frame in reversed(self.frames) if frame.globals is not ours), None)

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
        return isinstance(value, type | types.ModuleType | types.FunctionType) and id(value) not in self.world.made

    def written(self) -> Any:
        """Equal answers: the trace changed nothing outside between them."""
        return self.journal.mark(), self.world.changed()

    def traceback_of(self, error: BaseException) -> types.TracebackType | None:
        """What the program gets as the traceback of an exception; it can be made again for what comes after the trace."""
        trace = error.__traceback__
        if trace is not None:
            self.traces[id(trace)] = error
            self.world.hold(trace)
        return trace

    # -- calls -----------------------------------------------------------------------------------

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`function(*args, **kwargs)`."""
        return calls.call(self, function, args, kwargs)

    def sealed(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose result is worked on before an instruction ends: a break in it cannot resume."""
        try:
            return calls.call(self, function, args, kwargs)
        except CaptureBreak as cause:
            cause.native = cause.native or bool(cause.frames)
            raise

    def load(self, owner: Any, name: str) -> Any:
        """`owner.name`."""
        return attributes.load(self, owner, name)

    def polyfill(self, name: str) -> types.FunctionType:
        """A native operation written in Python."""
        function: types.FunctionType = getattr(polyfills, name)
        return function

    def inline(self, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Interpret a Python function."""
        if len(self.frames) >= self.most_frames or _native.stack_left() < self.least_stack:
            raise TooDeep
        code = function.__code__
        if code.co_flags & _ASYNC:
            raise CaptureBreak(Break.B013, None, what="asynchronous code")
        if id(function) not in self.world.made:
            self.world.inlined[id(function)] = function
        frame = self._frame(function, code)
        frame.locals = bind(self.world, function, code, args, kwargs)
        if code.co_flags & _GENERATOR:
            made_at = self.frames[-1].count if self.frames else 0
            self.generators.append(Generator(frame, function, args, kwargs, made_at))
            return self.generators[-1]
        frame.run()
        known = self.world.known.get(id(frame.result))
        if known is not None and known.partial:  # the caller may read what this frame only appended to
            raise Stop(ReadLists())
        return frame.result

    def class_body(self, function: types.FunctionType) -> dict[str, Any]:
        """The namespace that the body of a class fills."""
        frame = self._frame(function, function.__code__)
        frame.run()
        return frame.locals

    def _frame(self, function: types.FunctionType, code: types.CodeType) -> Frame:
        frame = Frame(self, function, code, function.__globals__, function.__builtins__)  # type: ignore[attr-defined, unused-ignore]
        made = id(function) in self.world.made
        if self.root is None or function.__globals__ is not self.root.globals:
            frame.globals_source = self.world.const(function.__globals__)
        if function.__closure__:
            source = None if made else self.world.source_of(function)
            for i, (name, cell) in enumerate(zip(code.co_freevars, function.__closure__, strict=True)):
                frame.cells[name] = cell
                shared = self.outer_cells.get(id(cell))
                if shared is not None:
                    frame.cell_sources[name] = shared[1]
                elif source is not None:
                    frame.cell_sources[name] = self.world.child(Closure, source, i)
        return frame

    def cell_source(self, frame: Frame, name: str) -> Source:
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

    # -- protocols -------------------------------------------------------------------------------

    def as_dict(self, value: Any) -> dict[Any, Any]:
        """`dict(value)` of a mapping."""
        if isinstance(value, dict):
            operate.check_readable(self, value)
            if type(value) is dict or python_method(self, value, "keys") is None:
                return value
        elif python_method(self, value, "keys") is None:
            result: dict[Any, Any] = real.apply(dict, value)
            return result
        converted: dict[Any, Any] = self.sealed(self.polyfill("mapping_to_dict"), (value,), {})
        return converted

    def format(self, value: Any, conversion: str, spec: str | None) -> Any:
        """`format(value, spec)`, after `str` or `repr`; with spec None only the latter."""
        if isinstance(value, torch.Tensor):
            raise CaptureBreak(Break.B004, None, method="formatting")
        function: Callable[..., Any] = {"repr": repr, "ascii": ascii}.get(conversion, str)
        if conversion:
            found = python_method(self, value, f"__{conversion}__")
            plain = lookup(self, type(value), "__str__") is object.__str__
            if found is None and conversion == "str" and plain and not isinstance(value, type):
                found = python_method(self, value, "__repr__")
            if found is not None and not is_trusted_module(found.__module__):
                value = self.sealed(found, (value,), {})
            else:
                operate.check_readable(self, value)
                callbacks.refuse(self, value, callbacks.TEXT, "a text of objects")
                value = real.apply(function, value)
        elif type(value) not in PLAIN:
            found = python_method(self, value, "__format__")
            if found is None and not spec:
                return self.format(value, "str", None)
            if found is not None and not is_trusted_module(found.__module__):
                return self.sealed(found, (value, spec), {})
        return value if spec is None else real.apply(format, value, spec)
