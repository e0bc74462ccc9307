"""report.explained: any backend, watched.

``watched = ExplainWithBackend("argand"); argand.compile(f, backend=watched)(x); print(watched.output())`` tells
what ``argand.explain`` tells, of a program that runs under the backend one really uses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import final

from typing_extensions import override

from argand.backends.bind import bind_backend
from argand.backends.registry import BackendSpec
from argand.capture.explain import Explanation, explain
from argand.capture.finish.finish import Captured
from argand.protocol import Backend, Described
from argand.support import events
from argand.support.dataclass import replace


@final
class ExplainWithBackend(Described):
    """A backend that hands every graph to another one and keeps what was captured."""

    def __init__(self, backend: BackendSpec, options: Mapping[str, object] | None = None) -> None:
        self.backend = bind_backend(backend, options=options)
        self.frames: list[Captured] = []
        self._heard = events.Collector()  # frames that were left to Python show as events only

    @override
    def describe(self) -> Backend:
        """The backend inside, seen by this object. Nothing comes from disk: there would be nothing to see."""
        name = f"explained {self.backend.name}"
        return replace(
            self.backend, name=name, restore=None, observe=self._observe, reset=self.reset
        )

    @contextlib.contextmanager
    def _observe(self) -> Iterator[Callable[[Captured], None]]:
        with events.collect() as seen:
            try:
                yield self.frames.append
            finally:
                self._heard.events += seen.events

    def reset(self) -> None:
        """Forget what was seen."""
        self.frames.clear()
        self._heard.events.clear()
        self.backend.reset()

    def output(self) -> Explanation:
        """All of it, as ``argand.explain`` gives it."""
        return explain(self.frames, self._heard, None)
