"""capture.trace: the entry of the room: one frame in, one captured frame out.

In: a frame that is about to run, as runtime's hook shows it. Out: `Captured`; or None: run this call in Python;
OFF: with all it calls; or SKIP or `Skipped`: never ask again for this code. A trace that fails leaves no trace: nothing of it was applied.
"""

from __future__ import annotations

import functools
import inspect
import traceback
import warnings
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast, final

import torch

from argand.bytecode import append_only, collected_on_stack, is_resume, original_code, used_names
from argand.capture.attempts import (
    BackendFailed,
    BreakAt,
    Knowledge,
    LeaveIterators,
    Reason,
    Resized,
    Retry,
)
from argand.capture.finish.finish import Captured, Ending, Skipped, complaint, finish, skipped
from argand.capture.finish.resized import resized_places
from argand.capture.generated.tails import is_entered
from argand.capture.generated.torch_state import read_state, restore_state
from argand.capture.interpret.closing import closes_silently
from argand.capture.interpret.frame import TooDeep, is_of_user
from argand.capture.interpret.interpreter import Interpreter
from argand.capture.interpret.variables import WaitingLocals
from argand.capture.markers import Marker
from argand.capture.outside import pure
from argand.capture.write.breaks import write_break
from argand.capture.write.rebuild import CannotRebuild, Rebuilder
from argand.ops.fakes import FakeMode
from argand.ops.unreadable import unreadable_fakes
from argand.protocol import Backend
from argand.runtime import _native
from argand.runtime._native import FrameView
from argand.runtime.sources import Cell, Local
from argand.runtime.tracebacks import trim
from argand.sizes.plan import SizePlan
from argand.sizes.refusals import Stop, attempt
from argand.support import events
from argand.support.dataclass import dataclass
from argand.support.errors import (
    ArgandError,
    BackendCompilerFailed,
    Break,
    CaptureBreak,
    CaptureError,
    Location,
)
from argand.support.options import Options

SKIP: Final = Marker("SKIP")
OFF: Final = Marker("OFF")
_MAX_ATTEMPTS: Final = 64
FrameAnswer: TypeAlias = Captured | Skipped | Marker | None
_NEVER: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@final
@dataclass(frozen=True, slots=True)
class Done:
    """The frame has its answer; the other end of an attempt is `attempts.Retry`."""

    answer: FrameAnswer


def capture_frame(
    view: FrameView, backend: Backend, options: Options, plan: SizePlan
) -> FrameAnswer:
    """Capture a frame. Fails with CaptureError under `fullgraph`, with the backend's error, or not."""
    code = view.code
    where = Location(code.co_filename, code.co_firstlineno, code.co_name)
    if code.co_flags & _NEVER:
        if options.fullgraph:
            raise CaptureError(CaptureBreak(Break.B015, where, kind="generator and async"))
        return SKIP
    if torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python):
        return None  # somebody turned dispatch modes off: fakes would be computed with
    known = Knowledge(plan)
    with events.stage("capture", str(where)), unreadable_fakes(options.verify == "forms"):
        for attempts in range(1, _MAX_ATTEMPTS + 1):
            outcome = _Attempt(view, options, known).run(where, backend)
            if isinstance(outcome, Done):
                events.artifact(
                    "retries",
                    f"traced in {attempts} attempt{'s' * (attempts > 1)}".__str__,
                    str(where),
                )
                return outcome.answer
            known.learn(outcome.reason, where)
    if options.fullgraph:
        raise CaptureError(
            CaptureBreak(Break.B013, where, what=f"what {_MAX_ATTEMPTS} attempts could not trace")
        )
    return SKIP


class _Attempt:
    """One run of the interpreter over a frame."""

    def __init__(self, view: FrameView, options: Options, known: Knowledge) -> None:
        self.options, self.localsplus, self.tail = options, view.localsplus, is_entered(view.code)
        self.known = known
        self.tracer = Interpreter(options, known.breaks, known.plan)
        self.tracer.world.whole = known.reads_lists
        self.tracer.world.opens_iterators = is_resume(view.code) and not known.leaves_iterators
        self.frame = self.tracer.frame(view.function, view.code, view.globals, view.builtins)
        self.tracer.root = self.frame
        self.arguments = WaitingLocals({})

    def _find_arguments(self) -> None:
        frame, world, code = self.frame, self.tracer.world, self.frame.code
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & inspect.CO_VARARGS) + bool(
            code.co_flags & inspect.CO_VARKEYWORDS
        )
        used, grown = used_names(code), append_only(code) | collected_on_stack(code)
        waiting: dict[str, Callable[[], Any]] = {}
        for name, raw in zip(code.co_varnames[:count], self.localsplus, strict=False):
            if name in used:
                read = world.appended if name in grown else world.read
                waiting[name] = functools.partial(read, world.child(Local, None, name), raw)
        self.arguments = frame.locals = WaitingLocals(waiting)
        closure = frame.function.__closure__ if frame.function is not None else None
        for name, cell in zip(code.co_freevars, closure or (), strict=False):
            frame.cells[name] = cell
            frame.cell_sources[name] = world.child(Cell, None, name)

    def run(self, where: Location, backend: Backend) -> Done | Retry:
        """Trace and finish. All that stopped the attempt from inside becomes a value here."""
        try:
            outcome = attempt(lambda: self._run(where, backend))
        except BackendCompilerFailed as error:
            if self.options.strict or not self.known.plan.open_places:
                raise
            return Retry(BackendFailed(error))
        return self._again(cast("Reason", outcome.reason)) if isinstance(outcome, Stop) else outcome

    def _again(self, reason: Reason) -> Done | Retry:
        if isinstance(reason, BreakAt):
            _forget_frames(reason.cause)
            if reason.count in self.known.breaks:
                return Done(self._give_up(reason.cause))  # it was tried
        return Retry(reason)

    def _run(self, where: Location, backend: Backend) -> Done | Retry:
        saved = read_state()
        self.tracer.most_frames, self.tracer.least_stack = (
            _native.recursion_left(),
            _native.stack_left() // 3,
        )
        sizes = self.tracer.world.sizes
        mode = sizes.mode = FakeMode()
        sizes.reads_data = self.options.fullgraph
        mode.unbacked = sizes.depends_on_data if sizes.reads_data else None
        mode.__enter__()
        open_ = True
        try:
            try:
                self._find_arguments()
                self.frame.run()
                broken: CaptureBreak | None = None
                ending: Ending = self._return
            except CaptureBreak as cause:
                if self.tracer.world.iterators:
                    raise Stop(LeaveIterators()) from None
                broken, ending = cause, self._break(cause)
            self._check_generators()
            if self.tracer.torch.entered:  # what came in between cannot be made again
                raise CaptureBreak(Break.B012, where, what="a state of torch that only C code sees")
            mode.__exit__(None, None, None)
            open_ = False
            return self._finish(where, saved, backend, ending, broken)
        except (CaptureError, BackendCompilerFailed):
            raise
        except (TooDeep, RecursionError):
            return Done(self._too_deep())
        except ArgandError as error:
            return Done(self._give_up(error))
        except BaseException as error:  # user code raised: eager shall raise it again, natively
            if not is_of_user(error, self.tracer.exceptions):
                raise
            self._raised(error)
            named = self.options.fullgraph and self.frame.function is not None
            return Done(complaint(self.tracer, where, error) if named else None)
        finally:
            # first: they put back the dispatch of the mode
            for context in reversed(self.tracer.torch.entered):
                context.__exit__(None, None, None)
            if open_:
                mode.__exit__(None, None, None)
            for outside, trace in self.tracer.exceptions.before.values():
                outside.__traceback__ = trace
            restore_state(saved)
            self.tracer.close()
            self.arguments.close()
            self.localsplus = ()

    def _check_generators(self) -> None:
        """A generator that is dropped runs its `finally` at that moment, which a trace does not see: Python makes it."""
        for generator in self.tracer.generators:
            if generator.is_suspended() and (
                generator.delegates() or not closes_silently(generator)
            ):
                cause = CaptureBreak(Break.B012, None, what="a generator that is to be closed")
                raise Stop(BreakAt(generator.made_at, cause))

    def _finish(
        self, where: Location, saved: Any, backend: Backend, ending: Ending, broken: Any
    ) -> Done | Retry:
        recorder = self.tracer.recorder
        if broken is None and not (recorder.calls or recorder.keep or self.tail):
            return Done(skipped(self.tracer))
        if self.known.plan.dynamic is None and (resized := resized_places(self.tracer)):
            return Retry(Resized(resized))
        try:
            finished = finish(self.tracer, where, saved, backend, ending, broken)
        except CannotRebuild as cause:
            if not cause.made_at:
                raise
            return self._again(BreakAt(cause.made_at, cause))
        return Done(finished) if isinstance(finished, Captured) else Retry(finished)

    def _return(self, rebuilder: Rebuilder, effects: Any) -> None:
        value = rebuilder.value(self.frame.result)
        effects()
        rebuilder.emit(f"return {value}")

    def _break(self, cause: CaptureBreak) -> Ending:
        events.count("capture.breaks", detail=cause.reason)
        events.artifact("graph_breaks", lambda: str(cause))
        events.artifact(
            "perf_hints",
            lambda: f"{cause}\n  a graph break: what is on both sides of it is not fused",
            "graph break",
        )
        if self.options.fullgraph or not cause.frames:
            raise CaptureError(cause, cause.stack) if self.options.fullgraph else cause
        frames = list(cause.frames)
        _forget_frames(cause)
        if cause.row is Break.B021 or any(pure.names_debuggers(frame.code) for frame in frames):
            first = original_code(self.frame.code)
            if first is not self.frame.code:  # later calls are not cut either
                _native.mark_code(first, False)
            raise cause
        return lambda rebuilder, effects: write_break(rebuilder, frames, effects, self.tail)

    def _give_up(self, error: ArgandError) -> Skipped | Marker:
        """The frame cannot be captured at all."""
        if isinstance(error, CaptureBreak):
            if self.options.fullgraph:
                raise CaptureError(error, error.stack)
            events.artifact("graph_breaks", lambda: f"{error} (the frame runs in Python)")
            events.record("left", error.described)
            return skipped(self.tracer)
        if self.options.strict or self.options.fullgraph:
            raise error
        text = f"argand fell back to eager for {self.frame.code.co_name}: {error}"
        code = self.frame.code
        where = Location(code.co_filename, code.co_firstlineno, code.co_qualname)
        events.record(
            "failed", lambda: {"where": where, "error": f"{type(error).__name__}: {error}"}
        )
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return SKIP

    def _too_deep(self) -> Marker:
        if self.options.fullgraph:
            code = self.frame.code
            where = Location(code.co_filename, code.co_firstlineno, code.co_name)
            raise CaptureError(CaptureBreak(Break.B013, where, what="recursion as deep as this"))
        events.count("capture.too_deep", detail=self.frame.code.co_qualname)
        events.artifact(
            "graph_breaks",
            lambda: f"{self.frame.code.co_qualname} recurses too deep to trace: runs in Python",
        )
        return OFF

    def _raised(self, error: BaseException) -> None:
        trim(error)
        events.count("capture.raised", detail=type(error).__name__)
        events.artifact(
            "graph_breaks", lambda: f"user code raised {error!r}: eager raises it again"
        )
        events.record("left", lambda: self._described(error))

    def _described(self, error: BaseException) -> dict[str, Any]:
        reason = f"it raised while it was captured: {type(error).__name__}: {error}".partition(
            "\n"
        )[0]
        hint = "if eager raises it as well, mend that; if not, keep what raises out of the compiled function (argand.disable)"
        code = self.frame.code
        first = Location(code.co_filename, code.co_firstlineno, code.co_qualname)
        went = traceback.walk_tb(error.__traceback__)  # the frames of the trace are left by now
        stack = tuple(Location(f.f_code.co_filename, line, f.f_code.co_name) for f, line in went)
        return {
            "reason": reason,
            "hint": hint,
            "where": stack[-1] if stack else first,
            "stack": stack,
        }


def _forget_frames(cause: CaptureBreak) -> None:
    """A reason outlives the attempt; frames must not, for they hold what the call was given."""
    cause.frames.clear()
    cause.__traceback__ = cause.__context__ = None
