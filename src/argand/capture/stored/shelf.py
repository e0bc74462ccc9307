"""capture.stored.shelf: the captures of one frame's code in the disk cache.

In: the view of a frame and the options. Out: a restored frame (SKIP: it has no graph), or None, and a new capture is kept
for the next process. One file holds the captures of one code object, the newest first: which of them fits is found by trying.
Every miss and bypass is counted with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from argand.capture.stored.restore import Miss, Restorer
from argand.capture.stored.tokens import code_hash
from argand.protocol import CompiledGraph
from argand.runtime import _native
from argand.runtime._native import FrameView
from argand.runtime.cache import Compiled
from argand.runtime.disk.keys import about, environment, make_key, options_part
from argand.runtime.disk.store import open_store
from argand.runtime.disk.values import guarded
from argand.runtime.guards import GuardKind
from argand.support import events
from argand.support.options import Options

if TYPE_CHECKING:
    from argand.capture.finish import Captured, Skipped
    from argand.capture.markers import Marker

VARIANTS: Final = 8  # captures kept of one code object


@final
class Shelf:
    """Where captures of a frame's code are kept."""

    def __init__(self, view: FrameView, options: Options, load_graph: Callable[[str], CompiledGraph | None]) -> None:
        self.view, self.options, self.load_graph = view, options, load_graph
        self.store = open_store(options)
        self.parts: dict[str, str] = {}
        self.key = ""
        self.kept: list[bytes] = []

    def restore(self) -> Compiled | str | None:
        """The stored capture that fits the frame."""
        if self.store is None:
            return None
        code = self.view.code
        self.parts = {
            "code": code_hash(code),
            "function": f"{self.view.globals.get('__name__')}.{code.co_qualname}",
            "options": f"{options_part(self.options)} fullgraph={self.options.fullgraph} dynamic={self.options.dynamic}",
            **environment(),
        }
        self.key = make_key("capture", self.parts)
        sections = self.store.get(self.key, kind="capture") or {}
        self.kept = [data for name, data in sorted(sections.items()) if name.isdigit()]
        for data in self.kept:
            try:
                with events.stage("capture.restore", code.co_qualname):
                    return self._try(data)
            except Miss as reason:
                found = str(reason)
            except Exception as error:  # data of another making: a miss like any other
                found = f"{type(error).__name__}: {error}"
            events.count("cache.miss", detail=f"capture: {self.parts['function']}: {found}")
        return None

    def _try(self, data: bytes) -> Compiled | str:
        found = Restorer(guarded(lambda: json.loads(data)), self.view).run(self.load_graph)
        if found is _native.SKIP:
            events.count("restores", detail=f"{self.parts['function']} has no graph")
        return found

    def keep(self, captured: Captured | Skipped | Marker | None) -> None:
        """Store a capture, before older ones of the same code."""
        # nothing that was traced, nothing to keep
        from argand.capture.finish import Captured, Skipped  # noqa: PLC0415
        from argand.capture.stored.save import Saver  # noqa: PLC0415

        if self.store is None or not isinstance(captured, Captured | Skipped):
            return
        try:
            data = Saver(self.view.code).save(captured)
        except Exception as reason:  # Unstorable, or objects of users that do not like to be asked
            detail = f"capture: {self.parts['function']}: {reason}"
            events.count("cache.bypass", detail=detail)
            return
        text = json.dumps(data, separators=(",", ":")).encode()
        kept = [text, *(other for other in self.kept if other != text)][:VARIANTS]
        sections = {str(number): item for number, item in enumerate(kept)}
        sizes = "; ".join(str(row.expected) for row in captured.guards if row.kind is GuardKind.RELATION)
        self.store.put(self.key, {"about": about("capture", self.parts, sizes=sizes), **sections})
