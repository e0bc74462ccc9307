"""capture.interpret.caching: calls of functions with a cache (`functools.lru_cache`).

In: such a function and its arguments. Out: what its cache gives, asked for by every call of the compiled code before anything
else happens. So what the trace has done by then must not matter to it: either the trace has done nothing yet, or the
function, followed without its cache, meets nothing that can be changed.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from typing import Any, Final

from argand.capture.markers import Args, Kwargs
from argand.capture.objects.parts import GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import cached
from argand.capture.outside.kinds import HEAP_TYPE, is_constant, is_settled
from argand.capture.outside.known import contents
from argand.capture.outside.state import Outside
from argand.capture.outside.world import CONTAINERS
from argand.capture.sizes.values import OpenSize
from argand.sizes.refusals import fixing
from argand.support.errors import ArgandError, Break, CaptureBreak

_FOUND_UNREAD: Final = (type, types.ModuleType, types.FunctionType, enum.Enum)


def call_cached(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """functools.lru_cache: what the cache gives; asked for at each call, as in Python."""
    plain = all(cached.is_plain(tracer.world, value) for value in (*args, *kwargs.values()))
    if not plain or tracer.has_effects():
        return _without_cache(tracer, function, args, kwargs)
    return _ask(tracer, function, args, kwargs)


def _ask(outside: Outside, function: Any, args: Args, kwargs: Kwargs) -> Any:
    try:
        return cached.read_cached(outside.world, function, args, kwargs)
    except Exception as error:
        if isinstance(error, ArgandError):
            raise
        what = f"{function.__wrapped__.__name__}, which is cached and raises"
        raise CaptureBreak(Break.B013, None, what=what) from None


def _without_cache(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """What a cached function would compute, if nobody can tell it from what the cache holds."""
    before, read, world = _done(tracer), len(tracer.world.guards), tracer.world
    name, values = function.__wrapped__.__name__, (*args, *kwargs.values())
    sizes, first = cached.sizes_in(world, values), not tracer.has_effects()
    fixed = fixing(sizes, f"{name} keeps what it gives by sizes", tracer.place())
    try:
        with tracer.seal(), world.watching() as met:
            result = tracer.call(function.__wrapped__, args, kwargs)
    except CaptureBreak as cause:
        if sizes and first:
            raise fixed from None
        cause.native = True  # the whole call is Python's
        raise
    if _done(tracer) == before and len(world.guards) == read and is_constant(result):
        return result
    apart = _done(tracer) == before and Apart(tracer).all((*values, *met))
    if sizes and (
        first or apart
    ):  # one entry for each: the cache may be older than what it was made of
        raise fixed
    if apart:
        return _ask(tracer, function, args, kwargs)
    what = f"{name}, which is cached and depends on more than its arguments,"
    broken = CaptureBreak(Break.B013, None, what=what)
    broken.native = True
    raise broken


def _done(state: GraphState) -> Any:
    """Equal answers: between them the trace has changed nothing, and added nothing to the graph."""
    return state.written(), len(state.recorder.graph.nodes), state.recorder.draws()


class Apart:
    """Whether nothing that the trace has written can be seen by who meets only certain values from outside.

    They are constants, functions, classes and modules, containers as they were, and objects of classes of Python; and none
    of these has been written to. What such an object holds is met by itself when it is read.
    """

    def __init__(self, outside: Outside) -> None:
        self.world, self.written = outside.world, outside.journal.attributes
        journal = outside.journal
        unread = any(isinstance(row.owner, _FOUND_UNREAD) for row in self.written.values())
        self.nowhere = bool(unread or journal.globals or journal.cells)
        self.changed = {id(s.known.raw) for s in self.world.shadows if s.is_changed()}
        self.seen: set[int] = set()

    def all(self, values: Iterable[Any]) -> bool:
        """Whether it is so for all of them."""
        return not self.nowhere and all(map(self._one, values))

    def _one(self, value: Any) -> bool:
        if is_settled(value) or type(value) is OpenSize or id(value) in self.seen:
            return True
        self.seen.add(id(value))
        if type(value) is tuple:
            return all(map(self._one, value))
        known = self.world.known.get(id(value))
        if known is None or known.raw is not value:
            return False
        if type(value) in CONTAINERS:
            parts = (
                part for row in contents(value) for part in (row if type(value) is dict else (row,))
            )
            return (
                not known.partial and id(value) not in self.changed and all(map(self._one, parts))
            )
        return self._is_plain_object(value)

    def _is_plain_object(self, value: Any) -> bool:
        kind = type(value)
        mapping = getattr(value, "__dict__", None)
        return (
            kind.__flags__ & HEAP_TYPE != 0
            and kind.__base__ is object
            and id(value) not in self.written
            and id(mapping) not in self.world.known
        )
