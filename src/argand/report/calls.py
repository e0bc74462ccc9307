"""report.calls: calls of compiled functions under the clock, some of them in eager for comparison.

The C extension hands outermost calls of compiled objects to a ``Watcher`` while a session is on (``set_call_watcher``).
Each call runs once: compiled, or in eager, taking turns once nothing is compiled any more, so that both are timed side by
side in the user's own program. A call that trains is timed with its backward pass.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

import torch

from argand.backends.trial import time_backward
from argand.report.collect import Collected
from argand.runtime import _native, stance
from argand.runtime.callables import code_of

EVERY: Final = 3  # of the calls that compile nothing, one in so many is eager's
SAMPLES: Final = 8  # eager calls that are enough
_MOST_CALLS: Final = 5_000  # kept one by one


@final
@dataclass(slots=True, eq=False)
class TimedCall:
    """One call; ``kind``: compile (something was compiled in it), compiled, eager, or trial (the compiler tried eager)."""

    kind: str
    start: float
    forward: float
    backward: float | None = None  # seconds, when there was one
    gaps: list[tuple[int, float]] = field(
        default_factory=list
    )  # graph, and the time from its end to the next one's begin
    graphs: float = 0.0  # seconds in graphs

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
    eager: int = 0
    quiet: int = 0  # calls since something was compiled
    wants_gradients: bool = False
    compiles: list[int] = field(default_factory=list)

    def times(self, kind: str) -> list[float]:
        """Seconds of the calls of a kind, without the first of them: it warms up."""
        found = [call.seconds for call in self.calls if call.kind == kind]
        return found[1:] if len(found) > 2 else found

    def median(self, kind: str) -> float | None:
        """The middle one."""
        found = self.times(kind)
        return statistics.median(found) if found else None


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
        eager = self._is_turn_of_eager(function)
        begin, before, turns, here.spans = time.perf_counter(), here.done, here.eager_turns, []
        try:
            result = _in_eager(compiled, args, kwargs) if eager else compiled(*args, **kwargs)
        finally:
            spans, here.spans = here.spans or [], None
        end = time.perf_counter()
        function.count += 1
        function.eager += eager
        kind = (
            "eager"
            if eager
            else "compile"
            if here.done > before
            else "trial"
            if here.eager_turns > turns
            else "compiled"
        )
        function.compiles += (
            [c.number for c in self.collected.compiles[-(here.done - before) :]] if kind == "compile" else []
        )
        function.quiet = 0 if kind == "compile" else function.quiet + 1
        call = TimedCall(kind, begin - self.collected.begin, end - begin, gaps=_gaps(spans, end), graphs=_inside(spans))
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
            found = WatchedFunction(name, code.co_filename if code else "", code.co_firstlineno if code else 0)
            self.functions[id(compiled.region)] = found
            self._regions.append(compiled.region)
        return found

    def _is_turn_of_eager(self, function: WatchedFunction) -> bool:
        """Calls that compile nothing: two compiled ones, then eager's turn, and so on, until there are enough."""
        if not self.take_turns or function.eager >= SAMPLES or torch.are_deterministic_algorithms_enabled():
            return False
        return function.quiet >= EVERY - 1 and function.quiet % EVERY == EVERY - 1

    def _time_backward(self, function: WatchedFunction, call: TimedCall, result: Any) -> None:
        tensors = [t for t in _tensors(result) if t.grad_fn is not None]
        if not tensors or not torch.is_grad_enabled():
            return
        function.wants_gradients = True
        before = (len(self.collected.compiles), self.collected.nothing.seconds)

        def finish(seconds: float | None) -> None:
            call.backward = seconds
            if (len(self.collected.compiles), self.collected.nothing.seconds) != before and call.kind != "eager":
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


def _inside(spans: list[tuple[int, float, float]]) -> float:
    return sum(end - begin for _, begin, end in spans)


def _gaps(spans: list[tuple[int, float, float]], end: float) -> list[tuple[int, float]]:
    """After each graph, the time until the next one begins; after the last, until the call ends."""
    starts: Callable[[int], float] = lambda k: spans[k + 1][1] if k + 1 < len(spans) else end  # noqa: E731
    return [(number, max(starts(k) - stop, 0.0)) for k, (number, _, stop) in enumerate(spans)]
