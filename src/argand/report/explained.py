"""report.explained: any backend, watched.

``watched = ExplainWithBackend("argand"); argand.compile(f, backend=watched)(x); print(watched.output())`` tells
what ``argand.explain`` tells, of a program that runs under the backend one really uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch.fx

from argand.backends.bind import bind_backend
from argand.backends.registry import BackendSpec
from argand.capture.explain import Explanation, explain
from argand.capture.finish import Captured
from argand.support import events


@final
class ExplainWithBackend:
    """A backend that hands every graph to another one and keeps what was captured."""

    def __init__(self, backend: BackendSpec, options: Mapping[str, object] | None = None) -> None:
        self.backend = bind_backend(backend, options=options)
        self.__name__ = f"explained {self.backend.name}"
        self.frames: list[Captured] = []
        self._heard = events.Collector()  # frames that were left to Python are told as events only

    def __call__(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile one graph with the backend inside."""
        return self.backend(gm, inputs)

    def watch(self, compile_frame: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The same, heard by this object while it runs; ``pipeline`` calls it."""

        def heard(view: Any) -> Any:
            with events.collect() as seen:
                try:
                    return compile_frame(view)
                finally:
                    self._heard.events += seen.events

        return heard

    def record_frame(self, captured: Captured) -> None:
        """Keep a captured frame; ``pipeline`` calls it."""
        self.frames.append(captured)

    def reset(self) -> None:
        """Forget what was seen."""
        self.frames.clear()
        self._heard.events.clear()
        self.backend.reset()

    def output(self) -> Explanation:
        """All of it, as ``argand.explain`` gives it."""
        return explain(self.frames, self._heard, None)
