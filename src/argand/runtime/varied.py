"""runtime.varied: in which sizes and numbers a frame differs from those that were compiled.

In: the guards of entries that refused a frame, and the frame. Out: names of places (`x.shape[0]`,
`self.length`) for the history of the code (`sizes.history`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from argand.runtime._native import Entry, FrameView
from argand.runtime.describe import evaluate
from argand.runtime.guard_programs import GuardProgram
from argand.runtime.guards import Guard, GuardKind


def varied_places(view: FrameView, entries: Iterable[Entry]) -> Iterator[str]:
    """The places of a frame that fits no entry which had another value in one of them."""
    for entry in entries:
        if isinstance(entry.program, GuardProgram):
            for guard in entry.program.guards:
                yield from _differences(guard, view)


def open_places(guards: Iterable[Guard]) -> Iterator[str]:
    """The places an entry of another process had left open."""
    return (str(guard.source) for guard in guards if guard.kind is GuardKind.RELATION)


def _differences(guard: Guard, view: FrameView) -> Iterator[str]:
    if guard.source is None:
        return
    if guard.kind is GuardKind.TENSOR:
        now = evaluate(guard.source, view)
        wanted = guard.expected.sizes
        if isinstance(now, torch.Tensor) and now.dim() == len(wanted):
            for dim, size in enumerate(wanted):  # asked one by one: `shape` may be the user's
                if size is not None and size != now.size(dim):
                    yield f"{guard.source}.shape[{dim}]"
    elif guard.kind is GuardKind.EQUALS and type(guard.expected) in (int, float):
        now = evaluate(guard.source, view)
        if type(now) is type(guard.expected) and now != guard.expected:
            yield str(guard.source)
