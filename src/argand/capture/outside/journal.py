"""capture.outside.journal: writes to the outside world, kept back until the graph has run.

In: attribute, cell and global writes of the trace, and the shadows of the world. Out: the final value of
everything that changed, in the order of first writes. Reads of the trace look here first.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any, Final, NamedTuple

from argand.capture.markers import Marker
from argand.runtime.sources import Source

DELETED: Final = Marker("DELETED")  # an attribute, cell or global that the trace deleted


class Writes(NamedTuple):
    """Writes to the attributes of one object (outside, or a tensor), or to the globals of one module."""

    owner: Any
    values: dict[str, Any]


class CellWrite(NamedTuple):
    """The new contents of an outside cell."""

    cell: CellType
    source: Source  # of the cell itself
    value: Any


class Deferred(NamedTuple):
    """A call moved behind the graph: a warning or a log line without tensors."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    places: tuple[tuple[str, str, int, str, int], ...]  # of the user's frames, outermost first


class Journal:
    """All writes of a trace."""

    def __init__(self) -> None:
        self.attributes: dict[int, Writes] = {}
        self.of_classes: set[str] = set()  # names under which a class got, or lost, an attribute
        self.cells: dict[int, CellWrite] = {}
        self.globals: dict[int, Writes] = {}
        self.checks: list[
            tuple[Any, bool, int]
        ] = []  # pending numbers, the truth relied on, and where
        self.deferred: list[Deferred] = []

    def write_attribute(self, owner: Any, name: str, value: Any) -> None:
        """Note `owner.name = value`."""
        if isinstance(owner, type):
            self.of_classes.add(name)
        self.attributes.setdefault(id(owner), Writes(owner, {})).values[name] = value

    def of_class(self, kind: type, name: str, default: Any) -> Any:
        """What the trace left in a class itself under a name: DELETED, a value, or the default for what it never wrote."""
        entry = self.attributes.get(id(kind)) if name in self.of_classes else None
        return default if entry is None else entry.values.get(name, default)

    def write_cell(self, cell: CellType, source: Source, value: Any) -> None:
        """Note a new value of an outside cell."""
        self.cells[id(cell)] = CellWrite(cell, source, value)

    def write_global(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        """Note a new value of a global."""
        self.globals.setdefault(id(namespace), Writes(namespace, {})).values[name] = value

    def mark(self) -> list[Any]:
        """Equal marks: nothing was noted between them."""
        writes = [*self.attributes.values(), *self.globals.values()]
        noted: list[Any] = [
            (name, id(value)) for write in writes for name, value in write.values.items()
        ]
        return [*noted, *(id(cell.value) for cell in self.cells.values()), len(self.deferred)]
