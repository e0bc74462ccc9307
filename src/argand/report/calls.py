"""report.calls: calls of compiled functions under the clock, some of them in eager for comparison.

The C extension hands outermost calls of compiled objects to a ``Watcher`` while a session is on (``set_call_watcher``).
Each call runs once: compiled, or in eager, taking turns (``report.turns``), so that both are timed side by side in the user's
own program. A call that trains is timed with its backward pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, NamedTuple, final

import torch

from argand.backends.trial import time_backward
from argand.report.collect import Collected
from argand.report.turns import (
    COMPILED,
    EAGER,
    IN_PYTHON,
    EagerTurns,
    SpeedsCompared,
    compared,
    signature,
)
from argand.runtime import _native, stance
from argand.runtime.callables import code_of
from argand.support.dataclass import dataclass

_MOST_CALLS: Final = 5_000  # kept one by one


@final
@dataclass(slots=True, eq=False)
class TimedCall:
    """One call.

    ``kind``: compile (something was compiled in it), beside (something was in another thread), compiled, in Python
    (nothing compiled fitted, so the program ran as it is), eager (for comparison), or trial (the compiler tried eager in it).
    """

    kind: str
    sizes: Hashable
    start: float
    forward: float
    backward: float | None = None  # seconds, when there was one
    # graph, and the time from its end to the next one's begin
    gaps: list[tuple[int, float]] = field(default_factory=list)
    graphs: float = 0.0  # seconds in graphs
    compiles: tuple[int, ...] = ()  # numbers of those that happened in it

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.forward + (self.backward or 0.0)


@final
@dataclass(slots=True, eq=False)
class WatchedFunction:
    """What was compiled by one ``argand.compile``, and its calls."""

    name: str
    file: str
    line: int
    calls: list[TimedCall] = field(default_factory=list)
    count: int = 0
    turns: EagerTurns = field(default_factory=EagerTurns)
    wants_gradients: bool = False
    compiles: list[int] = field(default_factory=list)

    def compared(self) -> SpeedsCompared | None:
        """Its calls against eager's."""
        return compared((call.kind, call.sizes, call.seconds) for call in self.calls)

    def of_kind(self, kind: str) -> list[TimedCall]:
        """The calls of a kind, without the first of them: it warms up."""
        found = [call for call in self.calls if call.kind == kind]
        return found[1:] if len(found) > 2 else found


class _Before(NamedTuple):
    """What had happened when a call began."""

    ended: int  # compiles of this thread
    eager_turns: int  # of the compiler's own trials
    at_work: int  # compiles of all threads
    compiles: int
    hits: int  # of all entries of the region


@final
class Watcher:
    """Times all calls of a session; ``take_turns`` False: never in eager."""

    def __init__(self, collected: Collected, take_turns: bool = True) -> None:
        self.collected, self.take_turns = collected, take_turns
        self.functions: dict[int, WatchedFunction] = {}
        self._regions: list[Any] = []  # kept, so that their numbers stay theirs

    def __call__(self, compiled: _native.Switch, /, *args: Any, **kwargs: Any) -> Any:
        """Run one call."""
        function = self._function(compiled)
        here = self.collected.here
        sizes = signature((args, kwargs))
        eager = self._is_turn_of_eager(function, sizes)
        heard = self.collected
        before = _Before(
            len(here.ended),
            here.eager_turns,
            heard.at_work,
            len(heard.compiles),
            _hits(compiled.region),
        )
        begin, here.spans = time.perf_counter(), []
        try:
            result = _in_eager(compiled, args, kwargs) if eager else compiled(*args, **kwargs)
        finally:
            spans, here.spans = here.spans or [], None
        end = time.perf_counter()
        ran = bool(spans) or _hits(compiled.region) != before.hits
        kind = EAGER if eager else self._kind(before, ran)
        function.count += 1
        function.compiles += here.ended[before.ended :]
        function.turns.took(kind, sizes)
        if kind in ("compile", "beside"):
            function.turns.restart()
        call = TimedCall(
            kind,
            sizes,
            begin - heard.begin,
            end - begin,
            gaps=_gaps(spans, end),
            graphs=_inside(spans),
            compiles=tuple(here.ended[before.ended :]),
        )
        if len(function.calls) < _MOST_CALLS:
            function.calls.append(call)
        self._time_backward(function, call, result)
        return result

    def _function(self, compiled: _native.Switch) -> WatchedFunction:
        found = self.functions.get(id(compiled.region))
        if found is None:
            code = code_of(compiled.__wrapped__)
            name = code.co_qualname if code else getattr(compiled, "__qualname__", str(compiled))
            if isinstance(compiled.__wrapped__, torch.nn.Module):
                name = f"{type(compiled.__wrapped__).__qualname__}.forward"
            found = WatchedFunction(
                name, code.co_filename if code else "", code.co_firstlineno if code else 0
            )
            self.functions[id(compiled.region)] = found
            self._regions.append(compiled.region)
        return found

    def _kind(self, before: _Before, ran: bool) -> str:
        """What a call was that was not eager's; ``ran``: whether compiled code did."""
        here, heard = self.collected.here, self.collected
        if len(here.ended) > before.ended:
            return "compile"
        if before.at_work or heard.at_work or len(heard.compiles) > before.compiles:
            return "beside"
        if here.eager_turns > before.eager_turns:
            return "trial"
        return COMPILED if ran else IN_PYTHON

    def _is_turn_of_eager(self, function: WatchedFunction, sizes: Hashable) -> bool:
        if not self.take_turns or torch.are_deterministic_algorithms_enabled():
            return False
        return function.turns.is_eager(sizes)

    def _time_backward(self, function: WatchedFunction, call: TimedCall, result: Any) -> None:
        tensors = [t for t in _tensors(result) if t.grad_fn is not None]
        if not tensors or not torch.is_grad_enabled():
            return
        function.wants_gradients = True
        heard = self.collected
        before = (len(heard.compiles), heard.nothing.seconds)

        def finish(seconds: float | None) -> None:
            call.backward = seconds
            now = (len(heard.compiles), heard.nothing.seconds)
            if now != before and call.kind != EAGER:
                call.kind = "compile"

        time_backward((), tensors, finish)


def _in_eager(compiled: _native.Switch, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The call as if nothing in it were compiled."""
    before = stance.current()
    _native.set_all_eager(True)
    try:
        return compiled.__wrapped__(*args, **kwargs)
    finally:
        _native.set_all_eager(before == "force_eager")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _hits(region: _native.Region | None) -> int:
    """How often the guards of anything compiled held."""
    if region is None:
        return 0
    return sum(entry.hits for code in region.codes() for entry in region.entries(code))


def _inside(spans: list[tuple[int, float, float]]) -> float:
    return sum(end - begin for _, begin, end in spans)


def _gaps(spans: list[tuple[int, float, float]], end: float) -> list[tuple[int, float]]:
    """After each graph, the time until the next one begins; after the last, until the call ends."""
    starts: Callable[[int], float] = lambda k: spans[k + 1][1] if k + 1 < len(spans) else end  # noqa: E731
    return [(number, max(starts(k) - stop, 0.0)) for k, (number, _, stop) in enumerate(spans)]
