"""runtime.cache: when a frame is compiled, and when it is not.

A ``CodeCache`` is the Python half of a region: the C half keeps the entries of each code object and
asks here on a miss. In: the view of a frame no entry fits. Out: a new entry; None, the frame runs
as it is this once; OFF, so does all it calls; or SKIP, it always does. Policy: the stance, the recompile limit with its one
warning, and eager execution when the compiler itself fails.

Any number of threads may compile at once, the same frame too: nothing is locked while they do, since the user's code runs
and modules are imported meanwhile. A thread waits for another that compiles the same code, but not for long; the
entry that is there first is used by all.
"""

from __future__ import annotations

import collections
import functools
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import torch

from argand.bytecode.origin import is_resume
from argand.customops import registry
from argand.runtime import _native, debuggers, quiet, skips, stance, state, tracebacks
from argand.runtime._native import OFF, SKIP, Entry, FrameView, Region, release_arenas
from argand.runtime.describe import Failure, explain
from argand.runtime.guard_programs import GuardProgram, compile_guards
from argand.runtime.guards import Guard, GuardKind
from argand.runtime.sources import FrameFunction, Source
from argand.runtime.varied import varied_places
from argand.sizes.history import SizeHistories
from argand.support import events
from argand.support.errors import (
    ArgandError,
    InternalError,
    Location,
    RecompileLimitExceeded,
    UserError,
)
from argand.support.locks import Turns, make_lock
from argand.support.options import Options
from argand.support.switches import is_off

MOST_FAILURES: Final = 3  # of a kind that may pass by itself, before a code is given up


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
    """All regions of the process."""

    def __init__(self) -> None:
        self.lock = make_lock()  # of the set, not of the caches in it
        self.caches: weakref.WeakSet[CodeCache] = weakref.WeakSet()
        # of functions that were compiled in the same way before
        self.shared: weakref.WeakKeyDictionary[Any, dict[Any, Region]] = weakref.WeakKeyDictionary()


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
        is_prepared: Callable[[types.CodeType], bool] | None = None,
    ) -> None:
        self.compile_frame, self.options = compile_frame, options
        self._histories = histories
        # option background: whether a capture would have nothing to import
        self._is_prepared = is_prepared
        self._reset = reset  # what else to forget: the backend's own caches
        self._region: weakref.ref[Region] | None = None  # the region owns us, not we it
        self._turns = Turns()
        # that may pass, by code and kind
        self._failures: collections.Counter[tuple[int, str]] = collections.Counter()
        # entries, by `_waiting`
        self._chains: collections.Counter[tuple[int, tuple[int, ...]]] = collections.Counter()
        self._met: weakref.WeakValueDictionary[int, types.CodeType] = weakref.WeakValueDictionary()
        self._entries_met: dict[int, int] = {}  # at the last meeting with a code
        with _process.lock:
            _process.caches.add(self)

    def make_region(self) -> Region:
        """The region this cache serves."""
        _native.set_skip_rule(skips.should_skip)
        _native.set_debug_rule(debuggers.is_debugger)
        _native.set_error_trimmer(tracebacks.trim)
        region = Region(self.on_miss)
        self._region = weakref.ref(region)
        return region

    def on_miss(self, view: FrameView) -> Entry | str | None:
        """Answer the hook: no entry fits this frame."""
        region = self._region() if self._region is not None else None
        if region is None or _is_watched(view):
            return OFF
        if skips.is_made_by_library(view.code, view.globals):
            return SKIP
        if skips.is_for_dynamo(view.code):  # another compiler must not be compiled while it works
            return OFF if skips.is_ours_to_leave(view.function) else None
        with self._turns.take(id(view.code)):
            found = region.find(view)
            if found is not None or self._rests(view.code):
                return found  # another thread compiled it while we waited
            entries, chain = region.entries(view.code), (id(view.code), _waiting(view))
            if chain[1]:  # to resume at another place is no recompile
                entries = entries[: self._chains[chain]]
            if entries:
                if not self._may_recompile(region, view, entries):
                    return None
            elif self._waits(view.code):
                return None
            if self.options.background and self._runs_first(view, len(entries)):
                return OFF  # with all it calls: nothing is captured in the time of a first result
            with quiet.compiling():
                made = self._compile(view)
                if isinstance(made, Entry):
                    found = region.find(view)
                    if found is not None:
                        return found  # another thread was faster
                    region.add(view.code, made)
                    self._chains[chain] += bool(chain[1])
            return made

    def _rests(self, code: types.CodeType) -> bool:
        """Whether code that raises whenever it is captured is left alone this time: it is tried again, each time later.

        After ``n`` attempts that raised it is tried at the call number ``2**n``, counted from the first miss: a program
        that catches its own errors at every call pays for a few captures, and one that came to work is compiled.
        """
        raised = self._failures[id(code), "raised"]
        if not raised:
            return False
        self._failures[id(code), "missed"] += 1
        return self._failures[id(code), "missed"] < 2**raised - 1

    def _too_often(self, code: types.CodeType, kind: str) -> bool:
        """Whether what may pass by itself has come too often to be waited for."""
        self._failures[id(code), kind] += 1
        return self._failures[id(code), kind] >= MOST_FAILURES

    def _leave_recursion(self, code: types.CodeType) -> str:
        warnings.warn(
            f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) recurses too deep to be traced and runs in"
            f" eager from now on",
            ArgandWarning,
            stacklevel=2,
        )
        return SKIP

    def _waits(self, code: types.CodeType) -> bool:
        """Stance eager_then_compile: whether this is the first meeting with the code."""
        if stance.current() != "eager_then_compile" or self._met.get(id(code)) is code:
            return False
        self._met[id(code)] = code
        return True

    def _runs_first(self, view: FrameView, entries: int) -> bool:
        """Option background: whether nothing like this frame was met before. What comes after a break belongs to a call that was."""
        if is_resume(view.code) or torch.are_deterministic_algorithms_enabled():
            return False
        prepared = self._is_prepared is None or self._is_prepared(view.code)
        met, self._entries_met[id(view.code)] = self._entries_met.get(id(view.code), -1), entries
        return met < entries or not prepared

    def _may_recompile(self, region: Region, view: FrameView, entries: list[Entry]) -> bool:
        failure = explain(entries[0].program, view)
        where = _place(view.code)
        what = str(failure or "its guards")
        events.count("recompiles", detail=what)
        events.artifact("recompiles", lambda: f"{where}: {what}", self._label(view.code))
        events.artifact(
            "perf_hints",
            lambda: f"{where}: compiled again: {what}\n  hint: {failure.hint if failure else ''}",
            "recompile",
        )
        events.record("recompile", lambda: _described(where, failure, len(entries)))
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

    def _give_up(
        self, region: Region, code: types.CodeType, where: Location, failure: Failure | None
    ) -> None:
        limit = self.options.recompile_limit
        what = str(failure or "its guards")
        hint = failure.hint if failure else "look at ARGAND_LOGS=recompiles"
        if self.options.fullgraph:
            raise RecompileLimitExceeded(
                f"{where.function} was compiled {limit} times (recompile_limit): {what}",
                where=where,
                hint=hint,
            )
        region.close(code)
        events.record("limit", lambda: _described(where, failure, limit))
        warnings.warn(
            f"{where.function} was compiled {limit} times (recompile_limit) and runs in eager from"
            f" now on unless one of these fits: {what}\n  at {where}\n  hint: {hint}",
            ArgandWarning,
            stacklevel=2,
        )

    def _compile(self, view: FrameView) -> Entry | str | None:
        code = view.code
        try:
            with events.stage("compile", self._label(code)), state.own_history():
                compiled = self.compile_frame(view)
                if compiled == OFF and self._too_often(code, "recursion"):
                    return self._leave_recursion(code)
                if compiled is None:  # it raised, and Python raises again
                    self._failures[id(code), "raised"] += 1
                if compiled is None or isinstance(compiled, str):
                    return compiled
                if is_off(self.options, "entries"):
                    compiled = _used_once(compiled)
                program = compiled.program
                if program is not None:  # from disk, and found to fit
                    events.count("restores", detail=code.co_qualname)
                    return self._entry(code, program, compiled.target)
                with events.stage("guards", code.co_qualname):
                    program = compile_guards(compiled.guards, compiled.collect, code)
                refused = explain(program, view)
                if (
                    refused is not None
                    and self._others_run()
                    and not self._too_often(code, "moved")
                ):
                    events.count("compile.moved", detail=f"{code.co_qualname}: {refused}")
                    return None  # another thread changed what we read: at the next call it may hold still
                if refused is not None:
                    raise InternalError("guards", f"a new entry does not fit its frame: {refused}")
        except UserError:
            raise
        except RecursionError:
            return OFF  # too little was left for us; for the user it may do
        except Exception as error:
            if _is_of_a_race(error) and self._others_run() and not self._too_often(code, "moved"):
                events.count("compile.moved", detail=f"{code.co_qualname}: {error}")
                return None
            return self._fall_back(code, error)
        self._failures.pop((id(code), "raised"), None)
        self._failures.pop((id(code), "missed"), None)
        events.count("compiles", detail=self._label(code))
        events.artifact("guards", lambda: "\n".join(map(str, program.guards)), self._label(code))
        return self._entry(code, program, compiled.target)

    def _entry(
        self, code: types.CodeType, program: GuardProgram, target: Callable[..., Any]
    ) -> Entry:
        entry = Entry(program, target)
        events.record(
            "entry", lambda: {"where": _place(code), "entry": entry, "label": self._label(code)}
        )
        return entry

    def _label(self, code: types.CodeType) -> str:
        """What events call this code: the region's name, if the user gave one, and the function's."""
        return f"{self.options.name}: {code.co_qualname}" if self.options.name else code.co_qualname

    def _others_run(self) -> bool:
        return threading.active_count() > 1 and not self.options.strict

    def _fall_back(self, code: types.CodeType, error: Exception) -> str:
        """Our failure is not the user's: the frame runs as it is, with one warning."""
        if self.options.strict or self.options.fullgraph:
            if isinstance(error, ArgandError):
                raise error
            raise InternalError(
                "compile", f"{code.co_qualname}: {type(error).__name__}: {error}"
            ) from error
        events.record(
            "failed", lambda: {"where": _place(code), "error": f"{type(error).__name__}: {error}"}
        )
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
        self._entries_met.clear()
        self._chains.clear()
        self._failures.clear()
        if self._histories is not None:
            self._histories.clear()
        if self._reset is not None:
            self._reset()


class _Token:
    """Something an entry dies with."""


def _used_once(compiled: Compiled) -> Compiled:
    """The same, gone after one call."""
    alive = [_Token()]

    def target(*values: Any) -> Any:
        alive.clear()
        return compiled.target(*values)

    return compiled._replace(
        guards=(*compiled.guards, Guard(GuardKind.WEAK_ALIVE, FrameFunction(), alive[0])),
        target=target,
    )


def _place(code: types.CodeType) -> Location:
    return Location(code.co_filename, code.co_firstlineno, code.co_qualname)


def _described(where: Location, failure: Failure | None, entries: int) -> dict[str, Any]:
    """Why an entry did not fit, for reports."""
    shown = failure or Failure("its guards", "look at ARGAND_LOGS=recompiles")
    return {
        "where": where,
        "change": shown.change,
        "hint": shown.hint,
        "at": shown.where,
        "entries": entries,
    }


def _is_of_a_race(error: Exception) -> bool:
    """Whether Python says that somebody changed a container while we went through it."""
    return isinstance(error, RuntimeError) and "during iteration" in str(error)


def _waiting(view: FrameView) -> tuple[int, ...]:
    """The resume functions that wait inside of a frame's first argument, by their code."""
    found, first = [], view.localsplus[0] if view.localsplus else None
    while type(first) is functools.partial and type(first.func) is types.FunctionType:
        found.append(id(first.func.__code__))
        first = first.args[0] if first.args else None
    return tuple(found)


def _is_watched(view: FrameView) -> bool:
    """Whether somebody else follows what this call does: compiled code would hide it from them.

    Kernels of custom operators are opaque to us in the same way.
    """
    return (
        view.code in registry.kernels
        or state.is_watched()
        or any(issubclass(type(v), torch.fx.Proxy) for v in view.localsplus)
    )


def shared_region(function: types.FunctionType, how: Any, make: Callable[[], Region]) -> Region:
    """The region in which a function is compiled in one way: made once, as long as the function lives."""
    with _process.lock:
        regions = _process.shared.setdefault(function, {})
        if how not in regions:
            regions[how] = make()
        return regions[how]


def reset() -> None:
    """Forget everything compiled in this process; compiled functions compile again."""
    with _process.lock:
        caches = list(_process.caches)
    for cache in caches:
        cache.reset()
    release_arenas()
