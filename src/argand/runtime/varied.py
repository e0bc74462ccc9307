"""runtime.varied: in which sizes and numbers a frame differs from those that were compiled.

In: the guards of entries that refused a frame, and the frame. Out: names of places (`x.shape[0]`,
`x.stride(0)`, `self.length`) for the history of the code (`sizes.history`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from argand.runtime._native import Entry, FrameView
from argand.runtime.describe import evaluate
from argand.runtime.guard_programs import GuardProgram
from argand.runtime.guards import Guard, GuardKind, TensorSpec
from argand.runtime.sources import StrideOf


def varied_places(view: FrameView, entries: Iterable[Entry]) -> Iterator[str]:
    """The places of a frame that fits no entry which had another value in one of them."""
    for entry in entries:
        if isinstance(entry.program, GuardProgram):
            for guard in entry.program.guards:
                yield from _differences(guard, view)


def open_places(guards: Iterable[Guard]) -> Iterator[str]:
    """The places an entry of another process had left open."""
    for guard in guards:
        if guard.kind is GuardKind.RELATION:
            source = guard.source
            yield source.place if isinstance(source, StrideOf) else str(source)


def _differences(guard: Guard, view: FrameView) -> Iterator[str]:
    if guard.source is None:
        return
    if guard.kind is GuardKind.TENSOR:
        now = evaluate(guard.source, view)
        if isinstance(now, torch.Tensor):
            yield from _differences_of_tensors(guard.expected, now, str(guard.source))
    elif guard.kind is GuardKind.EQUALS and type(guard.expected) in (int, float):
        now = evaluate(guard.source, view)
        if type(now) is type(guard.expected) and now != guard.expected:
            yield str(guard.source)


def _differences_of_tensors(spec: TensorSpec, now: torch.Tensor, name: str) -> list[str]:
    found = []
    with torch._C.DisableTorchFunctionSubclass():  # what is asked here may be the user's
        if now.dim() != len(spec.sizes):
            return []
        for dim, size in enumerate(spec.sizes):
            if size not in (None, now.size(dim)):
                found.append(f"{name}.shape[{dim}]")
        for dim in range(now.dim()) if now.layout is torch.strided else ():
            if spec.stride(dim, now) not in (None, now.stride(dim)):
                found.append(f"{name}.stride({dim})")
    return found
