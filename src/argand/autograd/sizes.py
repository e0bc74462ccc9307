"""autograd.sizes: programs whose sizes are known only at run time.

Such a program is traced twice, on fakes whose open sizes are different primes. An integer that is the same
in both graphs is a constant; any other must be, in both, what the table of sizes says it is, and becomes an
int node computed from the inputs that are sizes. Ops or floats that differ hang on a size in a way that
no graph can show: ``Specialise``. In: two traces of one program. Out: its graph with sizes left open.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import torch
from torch.fx import Graph, GraphModule, Node

from argand.autograd.graphs import add_node
from argand.autograd.outputs import Row, Traced
from argand.ops.sizes import SizeTable, Specialise
from argand.support import events
from argand.support.symbols import SizeInt, Symbol, largest, smallest

_JOIN: Final[Mapping[str, Callable[[int, int], int]]] = {
    **{"+": operator.add, "*": operator.mul, "//": operator.floordiv, "%": operator.mod},
    **{"min": min, "max": max},
}


@final
class OpenSizes:
    """The open sizes of one program: their table, its twin, and the inputs they come from."""

    def __init__(self, module: GraphModule, table: SizeTable) -> None:
        self.table, self.twin = table, table.twin()
        nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.shown = [node.meta.get("example_value") for node in nodes]
        self.places: dict[Symbol, int] = {}  # inputs that are sizes
        for place, value in enumerate(self.shown):
            if isinstance(value, SizeInt) and value.expr.terms[0][0]:
                (symbol, *_), _ = value.expr.terms[0]
                assert isinstance(symbol, Symbol)
                self.places[symbol] = place
        self._pairs: dict[tuple[int, int], int] = {}
        self._opened: set[int] = set()  # integers that were found to be sizes

    def fakes(self, examples: Sequence[Any], table: SizeTable) -> list[Any]:
        """Inputs for a trace at the samples of a table."""
        made: dict[int, Any] = {}
        for real, shown in zip(examples, self.shown, strict=True):
            if isinstance(shown, SizeInt):
                made[id(real)] = table.size(shown)
            elif isinstance(real, torch.Tensor) and id(real) not in made:
                sides = [[table.at(self.table.express(n)) for n in row] for row in (shown.shape, shown.stride())]
                fake = torch.empty_strided(*sides, dtype=real.dtype)
                fake = torch._conj(fake) if real.is_conj() else fake
                fake = torch._neg_view(fake) if real.is_neg() else fake
                made[id(real)] = fake.requires_grad_() if real.requires_grad else fake
        return [
            table.size(shown) if isinstance(shown, SizeInt) else made.get(id(real), real)
            for real, shown in zip(examples, self.shown, strict=True)
        ]

    def refuse(self, reason: str, symbols: frozenset[Symbol] | None = None) -> Any:
        """These sizes (all, when it cannot be told which) must be fixed."""
        events.count("autograd.specialise", detail=reason)
        raise Specialise(symbols or self.table.samples, reason)

    # -- two traces are one -------------------------------------------------------------------

    def open(self, traced: Traced, other: Traced) -> Traced:
        """The first trace with sizes left open; ``other`` is that of the twin."""
        pairs = list(zip(traced.graph.nodes, other.graph.nodes, strict=False))
        alike = len(traced.graph.nodes) == len(other.graph.nodes)
        for one, two in pairs if alike else ():
            alike = alike and one.op == two.op and one.target == two.target
        if not alike:
            self.refuse("the operations themselves depend on a size")
        writer = _Writer(traced.graph, self)
        for one, two in pairs:
            self._values(one.meta.get("val"), two.meta.get("val"))
            args, kwargs = self.same(one.args, two.args), self.same(one.kwargs, two.kwargs)
            if one.op != "placeholder":
                one.args, one.kwargs = writer.written(args), writer.written(kwargs)
        rows = zip(traced.effects.rows, other.effects.rows, strict=True)
        traced.effects.rows = [self._row(one, two) for one, two in rows]
        traced.sizes = self
        return traced

    def _row(self, one: Row, two: Row) -> Row:
        steps = tuple(
            step._replace(tail=self.same(step.tail, twin.tail)) for step, twin in zip(one.steps, two.steps, strict=True)
        )
        value = self.same(one.value, two.value) if one.source == "constant" else None
        return Row(one.source, one.index, one.how, value, steps)

    def _values(self, one: Any, two: Any) -> None:
        if isinstance(one, torch.Tensor):
            self.same(tuple(one.shape), tuple(two.shape))
            self.same(one.stride(), two.stride())
        elif isinstance(one, tuple | list):
            for item, twin in zip(one, two, strict=True):
                self._values(item, twin)

    def same(self, one: Any, two: Any) -> Any:
        """What two arguments of the same call stand for; integers become sizes."""
        if isinstance(one, list | tuple) and len(one) == len(two):
            return type(one)([self.same(a, b) for a, b in zip(one, two, strict=True)])
        if isinstance(one, dict):
            return {key: self.same(value, two[key]) for key, value in one.items()}
        if type(one) is int or isinstance(one, SizeInt):
            return self._integer(int(one), int(two))
        if isinstance(one, Node | torch.Tensor) or one is two:
            return one
        equal = one == two or (one != one and two != two)
        return one if equal else self.refuse(f"a value depends on a size: {one}, elsewhere {two}")

    def _integer(self, one: int, two: int) -> int:
        known = self._pairs.get((one, two))
        if known is not None:
            return known
        size = self.table.express(one)
        opened = isinstance(size, SizeInt)
        if opened and self.twin.at(size) == two and one not in (0, 1):
            self._opened.add(one)
        elif one == two and one not in self._opened:
            if opened:
                self.table.constants.add(one)
            size = one
        else:
            symbols = size.expr.symbols if isinstance(size, SizeInt) else None
            self.refuse(f"an integer is no known function of sizes: {one}, elsewhere {two}", symbols)
        self._pairs[one, two] = size
        return size

    # -- at run time --------------------------------------------------------------------------

    def values(self, inputs: Sequence[Any]) -> dict[Symbol, int]:
        """The sizes of one call."""
        return {symbol: inputs[place] for symbol, place in self.places.items()}

    def resolved(self, value: Any, values: Mapping[Symbol, int]) -> Any:
        """An argument with the sizes of one call."""
        if isinstance(value, SizeInt):
            return value.expr.evaluate(values)
        if isinstance(value, list | tuple):
            return type(value)([self.resolved(item, values) for item in value])
        return value

    def rows(self, rows: Sequence[Row], inputs: Sequence[Any]) -> list[Row]:
        """How the outputs of one call are made."""
        values = self.values(inputs)

        def row_of(row: Row) -> Row:
            steps = tuple(s._replace(tail=self.resolved(s.tail, values)) for s in row.steps)
            return Row(row.source, row.index, row.how, self.resolved(row.value, values), steps)

        return [row_of(row) for row in rows]


@final
class _Writer:
    """Writes sizes into a graph as int nodes, each once, after the placeholders."""

    def __init__(self, graph: Graph, sizes: OpenSizes) -> None:
        self.graph, self.sizes = graph, sizes
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.leaves = {symbol: inputs[place] for symbol, place in sizes.places.items()}
        self.first = next(node for node in graph.nodes if node.op != "placeholder")
        self.made: dict[Any, Node] = {}

    def written(self, value: Any) -> Any:
        """An argument with nodes in the place of sizes."""
        if isinstance(value, SizeInt):
            return value.expr.build(self.leaves.__getitem__, self._join)
        if isinstance(value, list | tuple):
            return type(value)([self.written(item) for item in value])
        if isinstance(value, dict):
            return {key: self.written(item) for key, item in value.items()}
        return value

    def _join(self, name: str, left: Any, right: Any) -> Node:
        key = (name, left, right)
        if key not in self.made:
            target = _JOIN[name]
            with self.graph.inserting_before(self.first):
                node = add_node(self.graph, "call_function", target, (left, right), {}, "size")
            sides = [s.meta["val"] if isinstance(s, Node) else s for s in (left, right)]
            value = largest(*sides) if name == "max" else target(*sides)
            value = smallest(*sides) if name == "min" else value
            node.meta = {"val": value, "stack_trace": None}
            self.made[key] = node
        return self.made[key]
