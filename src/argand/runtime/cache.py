"""runtime.cache: when a frame is compiled, and when it is not.

A ``CodeCache`` is the Python half of a region: the C half keeps the entries of each code object and
asks here on a miss. In: the view of a frame no entry fits. Out: a new entry; None, the frame runs
as it is this once; OFF, so does all it calls; or SKIP, it always does. Policy: the stance, the recompile limit with its one
warning, one compilation at a time, and eager execution when the compiler itself fails.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, final

import torch

from argand.customops import registry
from argand.runtime import _native, skips, stance, state, tracebacks
from argand.runtime._native import OFF, SKIP, Entry, FrameView, Region, release_arenas
from argand.runtime.describe import Failure, explain
from argand.runtime.guards import Guard, Source
from argand.runtime.programs import GuardProgram, compile_guards
from argand.runtime.varied import varied_places
from argand.sizes.history import SizeHistories
from argand.support import events
from argand.support.errors import ArgandError, InternalError, Location, RecompileLimitExceeded, UserError
from argand.support.options import Options


class Compiled(NamedTuple):
    """What capture makes of a frame."""

    guards: Sequence[Guard]  # what must hold for it to be right
    collect: Sequence[Source]  # where the arguments of the target come from
    target: Callable[..., Any]  # what is called instead of the frame
    program: GuardProgram | None = None  # the guards as a program, where that is made already


CompileFrame = Callable[[FrameView], Compiled | str | None]


class ArgandWarning(UserWarning):
    """Something a user of Argand should know once."""


@final
class _Process:
    """All regions of the process, and the lock that lets one compilation run at a time.

    One lock, not one per region: compiled functions may call each other while they are compiled, in
    any order, and locks taken in any order deadlock.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.caches: weakref.WeakSet[CodeCache] = weakref.WeakSet()


_process: Final = _Process()


@final
class CodeCache:
    """Compiles the frames of one region as they come."""

    def __init__(
        self,
        compile_frame: CompileFrame,
        options: Options,
        reset: Callable[[], None] | None = None,
        histories: SizeHistories | None = None,
    ) -> None:
        self.compile_frame, self.options = compile_frame, options
        self._histories = histories
        self._reset = reset  # what else to forget: the backend's own caches
        self._region: weakref.ref[Region] | None = None  # the region owns us, not we it
        self._met: weakref.WeakValueDictionary[int, types.CodeType] = weakref.WeakValueDictionary()
        with _process.lock:
            _process.caches.add(self)

    def make_region(self) -> Region:
        """The region this cache serves."""
        _native.set_skip_rule(skips.should_skip)
        _native.set_error_trimmer(tracebacks.trim)
        region = Region(self.on_miss)
        self._region = weakref.ref(region)
        return region

    def on_miss(self, view: FrameView) -> Entry | str | None:
        """Answer the hook: no entry fits this frame."""
        region = self._region() if self._region is not None else None
        if region is None or _is_watched(view):
            return OFF
        with _process.lock:
            found = region.find(view)
            if found is not None:
                return found  # another thread compiled it while we waited
            entries = region.entries(view.code)
            if entries:
                if not self._may_recompile(region, view, entries):
                    return None
            elif self._waits(view.code):
                return None
            made = self._compile(view)
            if isinstance(made, Entry):
                region.add(view.code, made)  # before the lock is free: the next thread is to find it
            return made

    def _waits(self, code: types.CodeType) -> bool:
        """Stance eager_then_compile: whether this is the first meeting with the code."""
        if stance.current() != "eager_then_compile" or self._met.get(id(code)) is code:
            return False
        self._met[id(code)] = code
        return True

    def _may_recompile(self, region: Region, view: FrameView, entries: list[Entry]) -> bool:
        failure = explain(entries[0].program, view)
        where = Location(view.code.co_filename, view.code.co_firstlineno, view.code.co_qualname)
        what = str(failure or "its guards")
        events.count("recompiles", detail=what)
        events.artifact("recompiles", lambda: f"{where}: {what}", view.code.co_qualname)
        if stance.current() == "eager_on_recompile":
            return False
        if stance.current() == "fail_on_recompile":
            raise RecompileLimitExceeded(
                f"{where.function} would be compiled again, and the stance forbids it: {what}",
                where=where,
                hint=failure.hint if failure else "",
            )
        if self._histories is not None:
            self._histories.of(view.code).varied.update(varied_places(view, entries))
        if len(entries) < self.options.recompile_limit:
            return True
        self._give_up(region, view.code, where, failure)
        return False

    def _give_up(self, region: Region, code: types.CodeType, where: Location, failure: Failure | None) -> None:
        limit = self.options.recompile_limit
        what = str(failure or "its guards")
        hint = failure.hint if failure else "look at ARGAND_LOGS=recompiles"
        if self.options.fullgraph:
            raise RecompileLimitExceeded(
                f"{where.function} was compiled {limit} times (recompile_limit): {what}", where=where, hint=hint
            )
        region.close(code)
        warnings.warn(
            f"{where.function} was compiled {limit} times (recompile_limit) and runs in eager from"
            f" now on unless one of these fits: {what}\n  at {where}\n  hint: {hint}",
            ArgandWarning,
            stacklevel=2,
        )

    def _compile(self, view: FrameView) -> Entry | str | None:
        code = view.code
        try:
            with events.stage("compile", code.co_qualname), without_collections(), state.own_history():
                compiled = self.compile_frame(view)
                if compiled is None or isinstance(compiled, str):
                    return compiled
                program = compiled.program
                if program is not None:  # from disk, and found to fit
                    events.count("restores", detail=code.co_qualname)
                    return Entry(program, compiled.target)
                with events.stage("guards", code.co_qualname):
                    program = compile_guards(compiled.guards, compiled.collect, code)
                refused = explain(program, view)
                if refused is not None:
                    raise InternalError("guards", f"a new entry does not fit its frame: {refused}")
        except UserError:
            raise
        except Exception as error:
            return self._fall_back(code, error)
        events.count("compiles", detail=code.co_qualname)
        events.artifact("guards", lambda: "\n".join(map(str, program.guards)), code.co_qualname)
        return Entry(program, compiled.target)

    def _fall_back(self, code: types.CodeType, error: Exception) -> str:
        """Our failure is not the user's: the frame runs as it is, with one warning."""
        if self.options.strict or self.options.fullgraph:
            if isinstance(error, ArgandError):
                raise error
            raise InternalError("compile", f"{code.co_qualname}: {type(error).__name__}: {error}") from error
        warnings.warn(
            f"Argand could not compile {code.co_qualname} ({code.co_filename}:"
            f"{code.co_firstlineno}) and runs it in eager: {type(error).__name__}: {error}",
            ArgandWarning,
            stacklevel=2,
        )
        return SKIP

    def reset(self) -> None:
        """Forget everything compiled."""
        region = self._region() if self._region is not None else None
        if region is not None:
            region.clear()
        self._met.clear()
        if self._histories is not None:
            self._histories.clear()
        if self._reset is not None:
            self._reset()


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Compiling and loading make many objects that stay: looking for garbage among them only takes time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _is_watched(view: FrameView) -> bool:
    """Whether somebody else follows what this call does: compiled code would hide it from them.

    Kernels of custom operators are opaque to us in the same way.
    """
    return (
        view.code in registry.kernels
        or state.is_watched()
        or any(isinstance(v, torch.fx.Proxy) for v in view.localsplus)
    )


def reset() -> None:
    """Forget everything compiled in this process; compiled functions compile again."""
    with _process.lock:
        for cache in list(_process.caches):
            cache.reset()
    release_arenas()
