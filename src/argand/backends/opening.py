"""backends.opening: a graph whose sizes are left open, made from one with the sizes of its inputs.

In: a graph, inputs, and which of their sizes and ints vary. Out: the same graph with a table of sizes, as our own
captures hand it to a compiler: its placeholders have fakes of prime sizes, and every symbol is an input. Sizes that
were equal in every call so far are one symbol.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import torch
from torch.fx import Graph, GraphModule, Node

from argand.ops.fakes import fake_at, fake_of
from argand.ops.layout import new
from argand.runtime.guards import derived_strides, inner_first
from argand.runtime.lifetimes import LazyGraph
from argand.sizes import plan as plans
from argand.sizes.expressions import Expr, SizeInt, Symbol
from argand.sizes.facts import Fact
from argand.sizes.refusals import fixing
from argand.sizes.table import SizeTable
from argand.sizes.view import GraphSizes


class InputPlace(NamedTuple):
    """A dimension of an input, or (None) an input that is an int."""

    number: int
    dim: int | None = None


def sizes_in(inputs: Sequence[Any]) -> dict[InputPlace, int]:
    """All sizes and ints of inputs."""
    found: dict[InputPlace, int] = {}
    for number, value in enumerate(inputs):
        if type(value) is int:
            found[InputPlace(number)] = value
        elif isinstance(value, torch.Tensor):
            found |= {InputPlace(number, dim): size for dim, size in enumerate(value.shape)}
    return found


@final
class Opening:
    """One attempt to leave sizes open. ``groups``: for each place that varies what it was in every call."""

    def __init__(
        self,
        plan: plans.SizePlan,
        inputs: Sequence[Any],
        groups: Mapping[InputPlace, tuple[int, ...]],
    ) -> None:
        self.plan = plan
        self.table = SizeTable((), plan.facts, wishes=plan.wishes)
        self._leaders = {calls: place for place, calls in reversed(list(groups.items()))}
        sizes = {
            place: self._size(self._leaders[calls], calls[-1]) for place, calls in groups.items()
        }
        self.shown = [self._show(number, value, sizes) for number, value in enumerate(inputs)]
        self.places = {
            place: size.expr for place, size in sizes.items() if isinstance(size, SizeInt)
        }

    @functools.cached_property
    def symbols(self) -> dict[Symbol, tuple[int, int]]:
        """Where the value of each symbol is read: (number among the places, by what it is divided there)."""
        order = list(self.places)
        rows = {symbol: self.plan.places[symbol] for symbol in self.table.samples}
        return {symbol: (order.index(row.source), row.divisor) for symbol, row in rows.items()}

    @functools.cached_property
    def extra(self) -> tuple[Expr, ...]:
        """Symbols that no input is: the graph gets them as inputs of its own."""
        given = {self.places.get(InputPlace(number)) for number in range(len(self.shown))}
        return tuple(
            Expr.of(symbol) for symbol in self.table.samples if Expr.of(symbol) not in given
        )

    @property
    def extra_reals(self) -> list[int]:
        """Their values in this call."""
        return [self.table.real(expr) for expr in self.extra]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What code compiled with the table relies on."""
        return tuple(dict.fromkeys((*self.plan.facts, *self.table.facts)))

    def graph(self, gm: GraphModule) -> GraphModule:
        """The graph with sizes left open, which ``sizes`` tells."""
        graph, last = Graph(), None
        for place, node in enumerate(_copy_into(graph, gm)):
            node.meta["example_value"] = self.shown[place]
            last = node
        for number, expr in enumerate(self.extra):
            with graph.inserting_after(last):
                last = graph.placeholder(f"open_size_{number}")
            last.meta["example_value"] = self.table.size(expr)
        return LazyGraph(gm, graph, "Opened")

    @property
    def sizes(self) -> GraphSizes:
        """The open sizes of the graph."""
        return GraphSizes(self.table)

    def _size(self, place: InputPlace, real: int) -> int:
        """What a place is in the fakes."""
        plan = self.plan
        row = plans.SizePlace(
            f"inputs[{place.number}]{'' if place.dim is None else f'.shape[{place.dim}]'}",
            place,
            real,
        )
        symbol, given = plan.symbol(row), plan.given.get(row.name)
        if row.name in plan.pinned:
            return real
        if given is None:
            return self._symbol(symbol)
        for other in sorted(given[0].symbols, key=str):
            self._symbol(other)
        size = self.table.size(given[0])
        return size if self.table.real(given[0]) == real else real

    def _symbol(self, symbol: Symbol) -> int:
        if symbol in self.table.samples:
            return self.table.size(Expr.of(symbol))
        return self.table.symbol(
            symbol.name, self.plan.places[symbol].real, symbol.minimum, symbol.maximum
        )

    def _show(self, number: int, value: Any, sizes: Mapping[InputPlace, int]) -> Any:
        """What stands for an input."""
        if not isinstance(value, torch.Tensor):
            return sizes.get(InputPlace(number), value)
        shape = [sizes.get(InputPlace(number, dim), size) for dim, size in enumerate(value.shape)]
        if not any(isinstance(size, SizeInt) for size in shape):
            self.table.meet(value.shape)
            return fake_of(value.detach())
        inner, strides = derived_strides(value), list(value.stride())
        for i in inner_first(value):
            j = inner[i]
            if j is not None:
                strides[i] = strides[j] * (shape[j] or 1)
        try:
            fake = new([int(n) for n in shape], [int(n) for n in strides], dtype=value.dtype)
        except RuntimeError:
            raise fixing(self.table.samples, f"a tensor of sizes {shape} is too large") from None
        return (
            fake_at(value.detach(), fake.shape, fake.stride()) if value.storage_offset() else fake
        )


@final
class CapturedOpening:
    """The same of a graph that comes with a table: one of our own captures, handed on by the user's backend."""

    def __init__(self, gm: GraphModule, table: GraphSizes) -> None:
        self.places = dict[InputPlace, Expr]()
        nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
        for number, shown in enumerate(node.meta["example_value"] for node in nodes):
            found: dict[InputPlace, int] = (
                {InputPlace(number): shown} if isinstance(shown, SizeInt) else {}
            )
            if isinstance(shown, torch.Tensor):
                found = {
                    InputPlace(number, dim): table.express(size)
                    for dim, size in enumerate(shown.shape)
                }
            self.places |= {
                place: size.expr for place, size in found.items() if isinstance(size, SizeInt)
            }
        order = list(self.places.values())
        # every symbol is an input, but for those that the graph itself finds in its data
        inputs = [symbol for symbol in table.samples if symbol not in table.unbacked]
        self.symbols = {symbol: (order.index(Expr.of(symbol)), 1) for symbol in inputs}
        self.extra: tuple[Expr, ...] = ()
        self.facts: tuple[Fact, ...] = tuple(
            fact for fact in table.relied if not fact.symbols & table.unbacked
        )


def plain_copy(gm: GraphModule) -> GraphModule:
    """The graph without what a capture knew of its sizes."""
    graph = Graph()
    for node in _copy_into(graph, gm):
        node.meta.pop("example_value", None)
    return LazyGraph(gm, graph, "Plain")


def _copy_into(graph: Graph, gm: GraphModule) -> list[Node]:
    """Copy a graph; the placeholders of the copy."""
    copies: dict[Node, Node] = {}
    graph.output(graph.graph_copy(gm.graph, copies))
    return [copies[node] for node in gm.graph.nodes if node.op == "placeholder"]
