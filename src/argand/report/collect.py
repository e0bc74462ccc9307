"""report.collect: what a session hears of the compiler, kept as values.

A subscriber of the events (decision 0002). It keeps one ``Compile`` per frame that was compiled, with its stages, texts,
plans and what went wrong, and the spans of a timeline. The time it takes itself to make texts is not counted as the
compiler's. Out: lists of plain values; ``report.data`` makes one object of them.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, final

from argand.differences.telling import EQUAL
from argand.runtime.disk.store import SHOWN_BESIDES
from argand.support import events
from argand.support.dataclass import dataclass

_TOLD: Final = frozenset(
    [
        "graph_breaks",
        "recompiles",
        "guards",
        "bytecode",
        "graph_code",
        "side_effects",
        "aot_joint_graph",
        "aot_graphs",
        "ir",
        "fusion",
        "schedule",
        "output_code",
        "dynamic",
        "retries",
        "perf_hints",
    ]
)
SHOWN: Final = _TOLD | {SHOWN_BESIDES}  # so that stages do their work, whatever is on disk
_MOST_SPANS: Final = 20_000
_LONGEST: Final = 200_000  # characters of one text
_ALL: Final = 12_000_000  # of all texts


@final
@dataclass(slots=True, eq=False)
class Compile:
    """One frame that was compiled, or tried to be; ``number`` 0 holds what belongs to none."""

    number: int
    label: str
    start: float = 0.0
    seconds: float = 0.0
    failed: bool = False
    thread: int = 0
    frame: Mapping[str, Any] | None = None  # record "frame"
    entry: Mapping[str, Any] | None = None  # record "entry"
    reason: Mapping[str, Any] | None = None  # record "recompile": why it was compiled again
    restored: bool = False
    stages: dict[str, float] = field(default_factory=dict)
    plans: list[Mapping[str, Any]] = field(default_factory=list)
    externs: list[Mapping[str, Any]] = field(default_factory=list)
    # left, failed, limit, trial
    notes: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    counts: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)


@final
@dataclass(slots=True)
class _Thread:
    """What one thread is in."""

    # stage, start, own time by then
    open: list[tuple[str, float, float]] = field(default_factory=list)
    compiles: list[Compile] = field(default_factory=list)
    reason: Mapping[str, Any] | None = None
    last: Compile | None = None  # that ended
    own: float = 0.0  # seconds spent here
    ended: list[int] = field(default_factory=list)  # numbers of compiles
    eager_turns: int = 0
    # graphs that ran in the call that is watched
    spans: list[tuple[int, float, float]] | None = None


@final
class Collected:
    """The subscriber of one session."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.nothing = Compile(0, "backward passes, compiled when they were first needed")
        self.compiles: list[Compile] = []
        self.at_work = 0  # compiles that began and have not ended, in all threads
        self.texts: list[dict[str, Any]] = []
        self.spans: list[tuple[str, float, float, int]] = []  # stage, start, seconds, thread
        self.graphs: list[Mapping[str, Any]] = []  # frames whose graphs are under the clock
        self.cache: list[tuple[str, str]] = []
        self.differences: list[tuple[str, str]] = []  # stage and text of each, under ``verify``
        self.verified: collections.Counter[str] = collections.Counter()  # what was compared
        self._threads: dict[int, _Thread] = collections.defaultdict(_Thread)
        self._texts: dict[str, int] = {}
        self._room = _ALL

    @property
    def here(self) -> _Thread:
        """What this thread is in."""
        return self._threads[threading.get_ident()]

    def now(self) -> float:
        """Seconds since the session began."""
        return time.perf_counter() - self.begin

    def __call__(self, event: events.Event) -> None:
        """Keep one event."""
        begin, here = time.perf_counter(), self.here
        match event:
            case events.StageStart(stage, detail):
                self._start(here, stage, detail)
            case events.StageEnd(stage, seconds, failed):
                self._end(here, stage, seconds, failed)
            case events.Count(counter, amount, detail):
                self._count(here, counter, amount, detail)
            case events.Artifact("differences", render, detail):
                if detail != EQUAL:
                    self.differences.append((detail, render()))
            case events.Artifact(name, render, detail) if name in _TOLD:
                self._text(self._at(here), name, detail, render)
            case events.Record(name, make) if name != "program":  # of whoever shrinks programs
                self._record(here, name, make())
            case _:
                pass
        here.own += time.perf_counter() - begin

    def wrap(self, call: Callable[..., Any], described: Mapping[str, Any]) -> Callable[..., Any]:
        """A graph with a clock around it."""
        number = len(self.graphs)
        self.graphs.append({**described, "compile": self._at(self.here).number})

        def timed(*inputs: Any) -> Any:
            spans = self.here.spans
            if spans is None:
                return call(*inputs)
            begin = time.perf_counter()
            try:
                return call(*inputs)
            finally:
                spans.append((number, begin, time.perf_counter()))

        return timed

    # --- events ------------------------------------------------------------------------------

    def _at(self, here: _Thread) -> Compile:
        return here.compiles[-1] if here.compiles else self.nothing

    def _start(self, here: _Thread, stage: str, detail: str) -> None:
        now = self.now()
        if stage == "compile":
            made = Compile(
                len(self.compiles) + 1,
                detail,
                now,
                thread=threading.get_ident(),
                reason=here.reason,
            )
            here.reason = None
            self.compiles.append(made)
            here.compiles.append(made)
            self.at_work += 1
        here.open.append((stage, now, here.own))

    def _end(self, here: _Thread, stage: str, seconds: float, failed: bool) -> None:
        while here.open:
            name, start, own = here.open.pop()
            if name == stage:
                break
        else:
            return  # it began before the session
        seconds = max(seconds - (here.own - own), 0.0)
        at = self._at(here)
        # a backward pass that is compiled when it is first needed
        if not here.compiles and not here.open:
            at.seconds += seconds
        at.stages[stage] = at.stages.get(stage, 0.0) + seconds
        if len(self.spans) < _MOST_SPANS:
            self.spans.append(
                (f"{stage} {at.label}" if stage == "compile" else stage, start, seconds, at.thread)
            )
        if stage == "compile" and here.compiles:
            made = here.compiles.pop()
            made.seconds, made.failed, here.last = seconds, failed, made
            here.ended.append(made.number)
            self.at_work -= 1

    def _count(self, here: _Thread, counter: str, amount: int, detail: str) -> None:
        if counter.startswith("cache."):
            self.cache.append((counter.removeprefix("cache."), detail))
        elif counter.startswith("verify."):
            self.verified[counter.removeprefix("verify.")] += amount
        elif counter == "native.turn":
            here.eager_turns += detail == "eager"
        else:
            at = self._at(here)
            at.counts[counter, detail] += amount
            at.restored = at.restored or counter == "restores"

    def _record(self, here: _Thread, name: str, fields: Mapping[str, Any]) -> None:
        at = self._at(here)
        match name:
            case "frame":
                at.frame = fields
            case "entry":
                (at if here.compiles else here.last or at).entry = fields
            case "recompile":
                here.reason = fields
                self.nothing.notes.append((name, fields))
            case "plan":
                at.plans.append(fields)
            case "extern":
                at.externs.append(fields)
            case _:
                at.notes.append((name, fields))

    def _text(self, at: Compile, name: str, detail: str, render: Callable[[], str]) -> None:
        if self._room <= 0:
            return
        text = render()
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]}\n... {len(text) - _LONGEST} more characters (ARGAND_LOGS={name} shows all)"
        key = f"{name} {detail} {at.number} {text}"
        if text.strip() and key not in self._texts:
            self._texts[key] = len(self.texts)
            self._room -= len(text)
            self.texts.append({"stage": name, "detail": detail, "compile": at.number, "text": text})
