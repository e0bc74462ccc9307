"""sizes.view: the sizes of a finished graph, which nobody changes.

A graph is handed on with a `GraphSizes`: how to read the integers in its fakes, and what is relied upon
already. A stage that finds out more (what sizes inside of it are, facts it relies on) works on a table
of its own, from `table()`, and gives the facts back with its result: a `CompiledGraph` has `facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, final

from argand.sizes.expressions import Expr, Symbol
from argand.sizes.facts import Fact
from argand.sizes.table import SizeTable


@final
class GraphSizes:
    """A frozen copy of a table."""

    __slots__ = ("_table", "reals", "relied", "samples", "unbacked")

    def __init__(self, table: SizeTable) -> None:
        self._table = table.copied()
        self.samples: Mapping[Symbol, int] = MappingProxyType(self._table.samples)
        self.reals: Mapping[Symbol, int] = MappingProxyType(self._table.reals)
        self.unbacked = frozenset(table.unbacked)
        self.relied: tuple[Fact, ...] = tuple(table.relied)  # what guards check already

    def table(self) -> SizeTable:
        """A table of one's own, to learn with."""
        return self._table.copied()

    def express(self, number: int) -> int:
        """The integer with its expression, when it is a size."""
        return self._table.express(number)

    def size(self, value: int | Expr) -> int:
        """An expression as an int of the fakes."""
        return self._table.size(value)

    def at(self, value: int | Expr) -> int:
        """What an expression is in the fakes, as a plain int."""
        return self._table.at(value)

    def state(self) -> tuple[Any, ...]:
        """As data, for `SizeTable.restored`."""
        return self._table.state()
