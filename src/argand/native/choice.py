"""native.choice: which of several ways to compute the same thing is taken on this machine.

In: a question (what is computed, in words that name its sizes and layouts) and the ways there are, each with the
time that a model expects. Out: the way to take. What was measured on this machine counts more than any model:
``measure`` runs the ways in turn and keeps their times in the disk cache, ``Choices`` reads them back.

The code of compiled graphs is kept in the same cache: times that are measured later are used by graphs that are compiled later.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, final

from argand.native.codegen.target import machine_key
from argand.runtime.disk.keys import about, make_key
from argand.runtime.disk.stage import Sections
from argand.runtime.disk.store import open_store
from argand.support import events
from argand.support.options import Options

KIND: Final = "choice"
ROUNDS: Final = 9  # turns; the quickest of each way counts
LONGEST: Final = 0.05  # seconds that the turns of one question may take

PATIENT: Final = 3  # the opt_level of modes that measure

Times: TypeAlias = Mapping[str, float]  # microseconds by way
Ways: TypeAlias = Callable[[], Mapping[str, Callable[[], object]]]  # builds what is to be measured


@final
class Choices:
    """What was measured on this machine; ``Choices(None)`` knows nothing and reads nothing."""

    def __init__(self, options: Options | None) -> None:
        self.options = options
        self._known: dict[tuple[str, str], Times] = {}

    def best(self, kind: str, question: str, expected: Times, ways: Ways | None = None) -> str:
        """The way that took the shortest time; by the model where not all ways were measured.

        With the options of somebody who waits for the fastest code, ``ways`` are built and measured first.
        """
        measured = self.times(kind, question)
        if (
            not measured
            and ways is not None
            and self.options is not None
            and self.options.opt_level >= PATIENT
        ):
            measured = measure(kind, question, ways(), self.options)
        times = measured if expected.keys() <= measured.keys() else expected
        best = min(expected, key=times.__getitem__)
        source = "measured" if times is measured else "expected"
        events.count("native.choice", detail=f"{kind} {question}: {best}, {source}")
        return best

    def times(self, kind: str, question: str) -> Times:
        """The times that were measured, in microseconds; none: nobody measured."""
        at = (kind, question)
        store = None if self.options is None else open_store(self.options)
        if store is not None and at not in self._known:
            self._known[at] = _decode(store.peek(_key(kind, question)))
        return self._known.get(at, {})


def measure(
    kind: str, question: str, ways: Mapping[str, Callable[[], object]], options: Options
) -> Times:
    """Run all ways in turn and keep their times."""
    times = _interleaved(ways)
    store = open_store(options)
    if store is not None:
        parts = {"what": kind, "question": question}
        sections = {"about": about(KIND, parts), "times": json.dumps(times).encode()}
        store.put(_key(kind, question), sections)
    return times


def _interleaved(ways: Mapping[str, Callable[[], object]]) -> Times:
    best = {name: float("inf") for name in ways}
    for run in ways.values():
        run()  # memory is touched and caches are filled
    started = time.perf_counter()
    for turn in range(ROUNDS):
        for name, run in ways.items():
            before = time.perf_counter()
            run()
            best[name] = min(best[name], 1e6 * (time.perf_counter() - before))
        if turn >= 2 and time.perf_counter() - started > LONGEST:
            break
    return best


def _key(kind: str, question: str) -> str:
    return machine_key(make_key(KIND, {"what": kind, "question": question}))


def _decode(sections: Sections) -> Times:
    try:
        found: Any = json.loads(sections["times"])
        return {str(name): float(value) for name, value in found.items()}
    except (KeyError, ValueError, AttributeError, TypeError):
        return {}
