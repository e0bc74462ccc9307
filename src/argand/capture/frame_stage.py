"""capture.frame_stage: the captures of one frame's code in the disk cache.

In: the view of a frame, the options and how to capture it. Out: `FrameStage`, whose result is a restored frame, or a new
capture, which is kept for the next process. One file holds the captures of one code object, the newest first: which of them fits is found by trying.
Every miss and bypass is counted with its reason.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, final

from typing_extensions import override

from argand.capture.stored.restore import Miss, Restorer
from argand.capture.stored.tokens import code_hash
from argand.protocol import Bypass, CompiledGraph
from argand.runtime import _native
from argand.runtime._native import FrameView
from argand.runtime.cache import Compiled
from argand.runtime.disk.keys import about, environment, make_key, options_part
from argand.runtime.disk.stage import Sections, Stage
from argand.runtime.disk.values import Unstorable, guarded
from argand.runtime.guards import GuardKind
from argand.support import events
from argand.support.options import Options

if TYPE_CHECKING:
    from argand.capture.finish.finish import Captured, Skipped
    from argand.capture.markers import Marker

VARIANTS: Final = 8  # captures kept of one code object


class Restored(NamedTuple):
    """The answer to the hook for a frame that comes from disk; SKIP: it has no graph."""

    answer: Compiled | str


@final
class FrameStage(Stage["Restored | Captured | Skipped | Marker | None"]):
    """The capture of one frame, with the compilation of its graph."""

    kind = "capture"

    def __init__(
        self,
        view: FrameView,
        options: Options,
        load_graph: Callable[[str], CompiledGraph | None],
        capture: Callable[[], Captured | Skipped | Marker | None],
    ) -> None:
        self.view, self.options, self.load_graph, self.capture = view, options, load_graph, capture
        self.function = f"{view.globals.get('__name__')}.{view.code.co_qualname}"
        self.kept: list[bytes] = []  # other captures of the same code

    @functools.cached_property
    def parts(self) -> dict[str, str]:
        """What the key is made of."""
        asked = f"fullgraph={self.options.fullgraph} dynamic={self.options.dynamic}"
        return {
            "code": code_hash(self.view.code),
            "function": self.function,
            "options": f"{options_part(self.options)} {asked}",
            **environment(),
        }

    @override
    def key(self) -> str:
        return make_key(self.kind, self.parts)

    @override
    def decode(self, sections: Sections) -> Restored | None:
        self.kept = [data for name, data in sorted(sections.items()) if name.isdigit()]
        for data in self.kept:
            try:
                with events.stage("capture.restore", self.view.code.co_qualname):
                    return Restored(self._try(data))
            except Miss as reason:
                found = str(reason)
            except Exception as error:  # data of another making: a miss like any other
                found = f"{type(error).__name__}: {error}"
            events.count("cache.miss", detail=f"capture: {self.function}: {found}")
        return None

    def _try(self, data: bytes) -> Compiled | str:
        found = Restorer(guarded(lambda: json.loads(data)), self.view).run(self.load_graph)
        if found is _native.SKIP:
            events.count("restores", detail=f"{self.function} has no graph")
        return found

    @override
    def build(self) -> Captured | Skipped | Marker | None:
        return self.capture()

    @override
    def encode(
        self, value: Restored | Captured | Skipped | Marker | None
    ) -> Mapping[str, Sections] | Bypass:
        # loaded by now; a frame that is restored does without
        from argand.capture.finish.finish import Captured, Skipped  # noqa: PLC0415
        from argand.capture.stored.save import Saver  # noqa: PLC0415

        if not isinstance(value, Captured | Skipped):
            return Bypass("nothing was traced")
        try:
            data = Saver(self.view.code).save(value)
        except Exception as reason:  # Unstorable, or objects of users that do not like to be asked
            raise Unstorable(f"{self.function}: {reason}") from None
        text = json.dumps(data, separators=(",", ":")).encode()
        kept = [text, *(other for other in self.kept if other != text)][:VARIANTS]
        sizes = "; ".join(
            str(row.expected) for row in value.guards if row.kind is GuardKind.RELATION
        )
        about_it = about(self.kind, self.parts, sizes=sizes)
        return {
            self.key(): {
                "about": about_it,
                **{str(number): item for number, item in enumerate(kept)},
            }
        }
