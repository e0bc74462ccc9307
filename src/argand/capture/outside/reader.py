"""capture.outside.reader: the world, as those see it that read one kind of object from outside.

In: what was found at a source. Out: the trace's view of it, with guards. ``World`` is the one implementation.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from argand.capture.outside.known import Known, Shadow
from argand.capture.sizes.frame_sizes import FrameSizes
from argand.runtime.guards import GuardKind
from argand.runtime.sources import Object, Source


class WorldReader(Protocol):
    """What the readers of containers, partials, iterators and arrays need of the world."""

    sizes: FrameSizes
    known: dict[int, Known]
    inputs: dict[int, Known]  # by the id of the fake
    wrappers: set[int]  # ids of tensors that hold other tensors
    arrays: dict[int, tuple[Any, torch.Tensor]]  # by id: the array, the tensor it is seen as
    iterators: list[Any]  # those that the trace may move
    opaque: set[int]  # ids of objects that are handed around, but not looked into
    shadows: list[Shadow]

    def guard(self, kind: GuardKind, source: Source | None, expected: Any = None) -> None:
        """Rely on a fact."""

    def child(self, kind: type, base: Source | None, key: Any) -> Source:
        """The source reached from another."""

    def const(self, value: Any) -> Source:
        """The source of an object the guard program itself holds."""

    def key(self, place: Object) -> Source:
        """The one source of an object that is known by identity."""

    def read(self, source: Source, raw: Any) -> Any:
        """The trace's view of what was found at a source, guarded."""

    def appended(self, source: Source, raw: Any) -> Any:
        """The trace's view of a list it only appends to."""

    def item(self, base: Source, key: Any, raw: Any) -> Any:
        """`base[key]`."""

    def attribute(self, base: Source, name: str, raw: Any) -> Any:
        """`base.name`."""

    def dict_attribute(self, base: Source, name: str, raw: Any) -> Any:
        """`base.__dict__[name]`."""

    def register(self, source: Source, raw: Any, value: Any) -> Any:
        """Know an object under a source, seen by the trace as a value."""

    def keep_off_disk(self, reason: str) -> None:
        """Another process must not rely on this trace."""
