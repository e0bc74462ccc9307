"""support.events: what the compiler tells while it works.

Every stage emits typed events: spans (start and end of a stage), counters and artefacts (the text
of what a stage made). Logs, timing tables, reports and tests subscribe; with no subscriber an event
costs one attribute read, and the text of an artefact is never made.

The list of subscribers is the one piece of module state here (decision 0002), behind a lock.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, NamedTuple, TypeAlias, final

from argand.support.dataclass import dataclass
from argand.support.locks import make_lock


class StageStart(NamedTuple):
    """A stage begins; ``stage`` is a dotted name such as ``autograd.partition``."""

    stage: str
    detail: str = ""


class StageEnd(NamedTuple):
    """A stage ended after ``seconds``; ``failed`` when it raised."""

    stage: str
    seconds: float
    failed: bool = False
    detail: str = ""


class Count(NamedTuple):
    """Something happened ``amount`` times: ``capture.graphs``, ``cache.hit``, ..."""

    counter: str
    amount: int = 1
    detail: str = ""


class Artifact(NamedTuple):
    """The text a stage made, rendered on demand; ``name`` is a row of ``logs.ARTIFACTS``."""

    name: str
    render: Callable[[], str]
    detail: str = ""


class Record(NamedTuple):
    """What a stage found or made, as data: the fields are made on demand."""

    name: str
    make: Callable[[], Mapping[str, Any]]


Event: TypeAlias = StageStart | StageEnd | Count | Artifact | Record
Subscriber: TypeAlias = Callable[[Event], None]
Wrapper: TypeAlias = Callable[[Callable[..., Any], Mapping[str, Any]], Callable[..., Any]]


class _Subscription(NamedTuple):
    hears: Subscriber
    shows: frozenset[str]  # artefacts it waits for
    wraps: Wrapper | None  # what it puts around compiled graphs


_lock: Final = make_lock()
_subscriptions: tuple[_Subscription, ...] = ()


def _replace(subscriptions: tuple[_Subscription, ...]) -> None:
    globals()["_subscriptions"] = subscriptions


def subscribe(
    subscriber: Subscriber, *, shows: frozenset[str] = frozenset(), wraps: Wrapper | None = None
) -> Callable[[], None]:
    """Add a subscriber; call the result to remove it.

    Args:
        subscriber: called with every event.
        shows: the artefacts it waits for: what only a compile makes is then not taken from a cache.
        wraps: gets each compiled graph made while it listens, and its description; may put a clock around it.
    """
    subscription = _Subscription(subscriber, shows, wraps)
    with _lock:
        _replace((*_subscriptions, subscription))

    def unsubscribe() -> None:
        with _lock:
            _replace(tuple(s for s in _subscriptions if s is not subscription))

    return unsubscribe


def unsubscribe_all(kind: type) -> None:
    """Remove every subscriber of a class."""
    with _lock:
        _replace(tuple(s for s in _subscriptions if not isinstance(s.hears, kind)))


def shown() -> frozenset[str]:
    """The artefacts that subscribers wait for."""
    return frozenset(name for s in _subscriptions for name in s.shows)


def emit(event: Event) -> None:
    """Hand an event to every subscriber."""
    for subscription in _subscriptions:
        subscription.hears(event)


def count(counter: str, amount: int = 1, detail: str = "") -> None:
    """Emit a counter."""
    if _subscriptions:
        emit(Count(counter, amount, detail))


def artifact(name: str, render: Callable[[], str], detail: str = "") -> None:
    """Emit the text of a stage; ``render`` runs only when a subscriber asks for the text."""
    if _subscriptions:
        emit(Artifact(name, render, detail))


def wrapped(call: Callable[..., Any], make: Callable[[], Mapping[str, Any]]) -> Callable[..., Any]:
    """A compiled graph with what subscribers put around it."""
    for subscription in _subscriptions:
        if subscription.wraps is not None:
            call = subscription.wraps(call, make())
    return call


def record(name: str, make: Callable[[], Mapping[str, Any]]) -> None:
    """Emit data; ``make`` runs only when a subscriber asks for the fields."""
    if _subscriptions:
        emit(Record(name, make))


@contextlib.contextmanager
def stage(name: str, detail: str = "") -> Iterator[None]:
    """Time a stage."""
    if not _subscriptions:
        yield
        return
    emit(StageStart(name, detail))
    begin, failed = time.perf_counter(), True
    try:
        yield
        failed = False
    finally:
        emit(StageEnd(name, time.perf_counter() - begin, failed, detail))


@final
@dataclass(slots=True)
class Collector:
    """A subscriber that keeps what it hears: for tests, ``explain`` and timing tables."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Keep one event."""
        self.events.append(event)

    def total(self, counter: str) -> int:
        """Sum of one counter."""
        return sum(e.amount for e in self.events if isinstance(e, Count) and e.counter == counter)

    def seconds(self) -> dict[str, float]:
        """Time per stage, nested stages counted in their parents as well."""
        table: dict[str, float] = {}
        for event in self.events:
            if isinstance(event, StageEnd):
                table[event.stage] = table.get(event.stage, 0.0) + event.seconds
        return table

    def texts(self, name: str) -> list[str]:
        """The artefacts of one name, rendered."""
        return [e.render() for e in self.events if isinstance(e, Artifact) and e.name == name]


@contextlib.contextmanager
def collect() -> Iterator[Collector]:
    """Collect all events of a block (of every thread)."""
    collector = Collector()
    unsubscribe = subscribe(collector)
    try:
        yield collector
    finally:
        unsubscribe()
