"""capture.journal: writes to the outside world, kept back until the graph has run.

In: attribute, cell and global writes of the trace, and the shadows of the world. Out: the final value of
everything that changed, in the order of first writes. Reads of the trace look here first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import CellType
from typing import Any, Final, final

from argand.runtime.guards import Source


class _Deleted:
    """Marks an attribute, cell or global that the trace deleted."""


DELETED: Final = _Deleted()


@final
@dataclass(slots=True, eq=False)
class Attributes:
    """Attribute writes on one object: outside, or a tensor."""

    owner: Any
    values: dict[str, Any] = field(default_factory=dict)


@final
@dataclass(slots=True, eq=False)
class CellWrite:
    """The new contents of an outside cell."""

    cell: CellType
    source: Source  # of the cell itself
    value: Any


@final
@dataclass(slots=True, eq=False)
class Globals:
    """Global writes in one module."""

    namespace: dict[str, Any]
    values: dict[str, Any] = field(default_factory=dict)


@final
@dataclass(slots=True, eq=False)
class Deferred:
    """A call moved behind the graph: a warning or a log line without tensors."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Journal:
    """All writes of a trace."""

    def __init__(self) -> None:
        self.attributes: dict[int, Attributes] = {}
        self.cells: dict[int, CellWrite] = {}
        self.globals: dict[int, Globals] = {}
        self.checks: list[tuple[Any, bool]] = []  # pending numbers, and the truth the trace relies on
        self.deferred: list[Deferred] = []

    def write_attribute(self, owner: Any, name: str, value: Any) -> None:
        """Note `owner.name = value`."""
        self.attributes.setdefault(id(owner), Attributes(owner)).values[name] = value

    def write_cell(self, cell: CellType, source: Source, value: Any) -> None:
        """Note a new value of an outside cell."""
        self.cells[id(cell)] = CellWrite(cell, source, value)

    def write_global(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        """Note a new value of a global."""
        self.globals.setdefault(id(namespace), Globals(namespace)).values[name] = value
