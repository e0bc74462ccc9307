"""capture.markers: values of the interpreter that are no values of the program, and the types of arguments of calls."""

from __future__ import annotations

from types import CellType
from typing import Any, Final, TypeAlias, final

from typing_extensions import override

from argand.runtime.sources import Source

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]


class Marker:
    """A named sentinel."""

    def __init__(self, name: str) -> None:
        self.name = name

    @override
    def __repr__(self) -> str:
        return f"<{self.name}>"


class OfTrace:
    """Base of values that stand for the program's while it is traced: their methods are ours, and run for real."""

    __slots__ = ()


NULL: Final = Marker("NULL")  # CPython's NULL on the stack
MISSING: Final = Marker("MISSING")  # a lookup found nothing
END: Final = Marker("END")  # an iterator is exhausted


@final
class SavedCell:
    """On the stack while a comprehension runs: the cell of a variable that it shadows, and where its contents live."""

    __slots__ = ("cell", "source")

    def __init__(self, cell: CellType, source: Source | None) -> None:
        self.cell, self.source = cell, source
