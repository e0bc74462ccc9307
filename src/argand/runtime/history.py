"""runtime.history: which sizes and numbers of a frame have had several values.

In: the guards of entries that refused a frame, and the frame. Out: names of places (`x.shape[0]`, `self.length`) for
capture, which leaves them open the next time (`dynamic=None`).
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

import torch

from argand.runtime._native import Entry, FrameView
from argand.runtime.describe import evaluate
from argand.runtime.guards import Guard, GuardKind
from argand.runtime.programs import GuardProgram


@final
@dataclass(slots=True)
class SizeHistory:
    """What is known of the sizes of one code object."""

    varied: set[str] = field(default_factory=set)
    fixed: set[str] = field(default_factory=set)  # a trace could not leave them open


@final
class SizeHistories:
    """The histories of all code objects of a region."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[types.CodeType, SizeHistory]
        self._of = weakref.WeakKeyDictionary()

    def of(self, code: types.CodeType) -> SizeHistory:
        """The history of a code object."""
        return self._of.setdefault(code, SizeHistory())

    def note(self, view: FrameView, entries: Iterable[Entry]) -> None:
        """A frame that fits no entry: remember what differs."""
        history = self.of(view.code)
        for entry in entries:
            if isinstance(entry.program, GuardProgram):
                for guard in entry.program.guards:
                    history.varied.update(_differences(guard, view))

    def learn(self, code: types.CodeType, guards: Iterable[Guard]) -> None:
        """What an entry of another process had left open."""
        self.of(code).varied.update(str(guard.source) for guard in guards if guard.kind is GuardKind.RELATION)

    def clear(self) -> None:
        """Forget everything."""
        self._of.clear()


def _differences(guard: Guard, view: FrameView) -> Iterable[str]:
    if guard.source is None:
        return
    if guard.kind is GuardKind.TENSOR:
        now = evaluate(guard.source, view)
        wanted = guard.expected.sizes
        if isinstance(now, torch.Tensor) and now.dim() == len(wanted):
            for dim, (size, found) in enumerate(zip(wanted, now.shape, strict=True)):
                if size is not None and size != found:
                    yield f"{guard.source}.shape[{dim}]"
    elif guard.kind is GuardKind.EQUALS and type(guard.expected) in (int, float):
        now = evaluate(guard.source, view)
        if type(now) is type(guard.expected) and now != guard.expected:
            yield str(guard.source)
