"""autograd.sizes: programs whose sizes are known only at run time.

Such a program is traced twice, on fakes whose open sizes are different primes. An integer that is the same
in both graphs is a constant; any other must be, in both, what the table of sizes says it is, and becomes an
int node computed from the inputs that are sizes. Ops or floats that differ hang on a size in a way that
no graph can show: a refusal. In: two traces of one program. Out: its graph with sizes left open.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, final

import torch
from torch.fx import Graph, GraphModule, Node

from argand.autograd.graphs import add_node
from argand.autograd.outputs import OutputRow, Traced
from argand.ops.fakes import fake_at
from argand.ops.rows import row_of
from argand.runtime.disk.graphs import constants_of, opened
from argand.sizes.expressions import SizeInt, Symbol, largest, smallest
from argand.sizes.facts import Fact
from argand.sizes.floats import OpenFloat, sample_pair
from argand.sizes.refusals import FixSizes, Stop
from argand.sizes.table import SizeTable
from argand.sizes.view import GraphSizes
from argand.support import events
from argand.support.dataclass import dataclass

_JOIN: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    **{
        "+": operator.add,
        "*": operator.mul,
        "//": operator.floordiv,
        "%": operator.mod,
        "/": operator.truediv,
    },
    **{"min": min, "max": max},
}


def _takes_floats(target: Any) -> bool:
    """Whether the value of a float never decides how a node computes."""
    return isinstance(target, torch._ops.OpOverload) and row_of(target).open_floats


_DEPENDS: Final = "a value is no known function of sizes: {}, elsewhere {}"


@final
@dataclass(frozen=True, slots=True)
class Ratio:
    """A number over a size."""

    number: float
    size: int


@final
@dataclass(frozen=True, slots=True)
class Given:
    """A float that is an input of the program."""

    place: int


@final
class ProgramSizes:
    """The open sizes of one program: their table, its twin, and the inputs they come from."""

    def __init__(self, shown: Sequence[Any], sizes: GraphSizes) -> None:
        self.table = sizes.table()  # of this program alone
        self.shown = shown  # what stands for each input
        self._relied = frozenset(sizes.relied)
        self.places: dict[Symbol, int] = {}  # inputs that are sizes or floats
        self._floats: dict[tuple[float, float], int] = {}
        self.float_symbols = frozenset(
            s for value in shown if isinstance(value, OpenFloat) for s in value.symbols
        )
        for place, value in enumerate(self.shown):
            if isinstance(value, SizeInt) and value.expr.terms[0][0]:
                (symbol, *_), _ = value.expr.terms[0]
                assert isinstance(symbol, Symbol)
                self.places[symbol] = place
            if isinstance(value, OpenFloat):
                self.places[Symbol(f"f{place}")] = place
                self._floats[sample_pair(place, value)] = place
        self._pairs: dict[tuple[int, int], int] = {}
        self._opened: set[int] = set()  # integers that were found to be sizes

    @functools.cached_property
    def twin(self) -> SizeTable:
        """Other samples, for a second trace."""
        return self.table.twin()

    @staticmethod
    def of(module: GraphModule, sizes: GraphSizes | None) -> ProgramSizes | None:
        """The open sizes of a captured graph."""
        shown = [
            node.meta.get("example_value")
            for node in module.graph.nodes
            if node.op == "placeholder"
        ]
        return None if sizes is None else ProgramSizes(shown, sizes)

    def frozen(self) -> GraphSizes:
        """For a graph of the program."""
        return GraphSizes(self.table)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What the program relies on, besides what was known of its graph."""
        return tuple(fact for fact in self.table.facts if fact not in self._relied)

    def fakes(self, examples: Sequence[Any], table: SizeTable) -> list[Any]:
        """Inputs for a trace at the samples of a table."""
        made: dict[int, Any] = {}
        for real, shown in zip(examples, self.shown, strict=True):
            if isinstance(shown, SizeInt):
                made[id(real)] = table.size(shown)
            elif isinstance(real, torch.Tensor) and id(real) not in made:
                sides = [[table.at(n) for n in row] for row in opened(real, shown, self.table)]
                made[id(real)] = fake_at(real, *sides)
        inputs = [
            table.size(shown) if isinstance(shown, SizeInt) else made.get(id(real), real)
            for real, shown in zip(examples, self.shown, strict=True)
        ]
        for (one, two), place in self._floats.items():
            inputs[place] = one if table is self.table else two
        return inputs

    def refusal(self, reason: str, symbols: frozenset[Symbol] | None = None) -> FixSizes:
        """These sizes (all, when nobody knows which) must be fixed."""
        events.count("autograd.specialise", detail=reason)
        return FixSizes(frozenset(symbols or {*self.table.samples, *self.float_symbols}), reason)

    def refuse(self, reason: str, symbols: frozenset[Symbol] | None = None) -> NoReturn:
        """The same from inside of a comparison, for `aot._try_trace`."""
        raise Stop(self.refusal(reason, symbols))

    # -- two traces are one -------------------------------------------------------------------

    def open(self, traced: Traced, other: Traced) -> Traced:
        """The first trace with sizes left open; ``other`` is that of the twin."""
        inputs = [node for node in traced.graph.nodes if node.op == "placeholder"]
        leaves = {symbol: inputs[place] for symbol, place in self.places.items()}
        writer = _Writer(traced.graph, self, leaves, inputs)
        self._open_graph(writer, other.graph, traced.constants, other.constants)
        rows = zip(traced.effects.rows, other.effects.rows, strict=True)
        traced.effects.rows = [self._row(one, two) for one, two in rows]
        traced.sizes = self
        return traced

    def _open_graph(
        self, writer: _Writer, other: Graph, constants: Mapping[str, Any], twins: Mapping[str, Any]
    ) -> None:
        graph = writer.graph
        pairs = list(zip(graph.nodes, other.nodes, strict=False))
        alike = len(graph.nodes) == len(other.nodes)
        for one, two in pairs if alike else ():
            alike = alike and one.op == two.op and one.target == two.target
        if not alike:
            self.refuse("the operations themselves depend on a size")
        for one, two in pairs:
            if one.op == "get_attr":
                self._constants(constants[str(one.target)], twins[str(two.target)])
            self._values(one.meta.get("val"), two.meta.get("val"))
            args, kwargs = self.same(one.args, two.args), self.same(one.kwargs, two.kwargs)
            if one.op != "placeholder":
                if _has_floats((args, kwargs)) and not (
                    _takes_floats(one.target) and writer.inputs
                ):
                    self.refuse(
                        f"the value of a float may decide what {one.target} does",
                        self.float_symbols,
                    )
                one.args, one.kwargs = writer.written(args), writer.written(kwargs)

    def _open_body(self, one: GraphModule, two: GraphModule) -> None:
        """The same for a graph inside, which has the open sizes among its inputs."""
        leaves = {}
        for node in one.graph.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder" and isinstance(value, SizeInt):
                (symbol,) = value.expr.symbols
                leaves[symbol] = node
        writer = _Writer(one.graph, self, leaves, ())
        self._open_graph(writer, two.graph, constants_of(one), constants_of(two))

    def _row(self, one: OutputRow, two: OutputRow) -> OutputRow:
        steps = tuple(
            step._replace(tail=self.same(step.tail, twin.tail))
            for step, twin in zip(one.steps, two.steps, strict=True)
        )
        value = self.same(one.value, two.value) if one.source == "constant" else None
        return OutputRow(one.source, one.index, one.how, value, steps)

    def _constants(self, one: Any, two: Any) -> None:
        """Tensors made of numbers: `torch.tensor(f)`; graphs inside of this one."""
        if isinstance(one, GraphModule):
            self._open_body(one, two)
            return
        if one.shape != two.shape or not bool(((one == two) | ((one != one) & (two != two))).all()):
            self.refuse(_DEPENDS.format(one.tolist(), two.tolist()))

    def _values(self, one: Any, two: Any) -> None:
        if isinstance(one, torch.Tensor):
            self._same_sizes(one.shape, two.shape)
            self.table.learn_strides(one.shape)
            self._same_sizes(one.stride(), two.stride())
        elif isinstance(one, tuple | list):
            for item, twin in zip(one, two, strict=True):
                self._values(item, twin)

    def _same_sizes(self, one: Sequence[int], two: Sequence[int]) -> None:
        """Sizes of a value are no arguments that could be written anew: later stages ask the table what they are.

        It takes small numbers for constants, though two traces say that they are none.
        """
        for here, there in zip(one, two, strict=True):
            self._integer(int(here), int(there))
            if here != there and self.twin.at(self.table.express(here)) != there:
                self.refuse(f"the table does not tell a size: {here}, elsewhere {there}")

    def same(self, one: Any, two: Any) -> Any:
        """What two arguments of the same call stand for; integers become sizes."""
        if isinstance(one, list | tuple) and len(one) == len(two):
            return type(one)([self.same(a, b) for a, b in zip(one, two, strict=True)])
        if isinstance(one, dict):
            return {key: self.same(value, two[key]) for key, value in one.items()}
        if type(one) is int or isinstance(one, SizeInt):
            return self._integer(int(one), int(two))
        if (
            isinstance(one, Node | torch.Tensor)
            or one is two
            or one == two
            or (one != one and two != two)
        ):
            return one
        return (
            self._number(one, two)
            if isinstance(one, float)
            else self.refuse(_DEPENDS.format(one, two))
        )

    def _number(self, one: float, two: float) -> Any:
        """A float that differs: a size, or a small number over one (derivatives of means and variances)."""
        if (one, two) in self._floats:
            return Given(self._floats[one, two])
        if one.is_integer() and two.is_integer():
            return self._integer(int(one), int(two))
        for above in (1.0, 2.0, -1.0, -2.0):
            below = [round(above / value) if value else 0 for value in (one, two)]
            exact = all(
                size and above / size == value
                for size, value in zip(below, (one, two), strict=True)
            )
            size = self._size(*below) if exact else None
            if size is not None:
                return Ratio(above, size)
        return self.refuse(_DEPENDS.format(one, two))

    def _integer(self, one: int, two: int) -> int:
        known = self._pairs.get((one, two))
        if known is not None:
            return known
        size = self.table.express(one)
        if isinstance(size, SizeInt) and (
            one in self.table.ambiguous or one == two == self.twin.at(size)
        ):
            self.refuse(f"two sizes look alike: {one}, elsewhere {two}", size.expr.symbols)
        if one == two and one not in self._opened:
            if isinstance(size, SizeInt):
                self.table.constants.add(one)
            size = one
        else:
            found = self._size(one, two)
            if found is None:
                symbols = size.expr.symbols if isinstance(size, SizeInt) else None
                self.refuse(_DEPENDS.format(one, two), symbols)
            size = found or 0
            self._opened.add(one)
        self._pairs[one, two] = size
        return size

    def _size(self, one: int, two: int) -> int | None:
        """The size that is ``one`` here and ``two`` there; counts less one or two are known by the count."""
        for shift in (0, 1, 2, -1) if one not in (0, 1) else ():
            size = self.table.express(one + shift)
            if isinstance(size, SizeInt) and self.twin.at(size) == two + shift:
                return self.table.learn(size - shift) if shift else size
        return None

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

    def rows(self, rows: Sequence[OutputRow], inputs: Sequence[Any]) -> list[OutputRow]:
        """How the outputs of one call are made."""
        values = self.values(inputs)

        def row_of(row: OutputRow) -> OutputRow:
            steps = tuple(s._replace(tail=self.resolved(s.tail, values)) for s in row.steps)
            return OutputRow(
                row.source, row.index, row.how, self.resolved(row.value, values), steps
            )

        return [row_of(row) for row in rows]


def _has_floats(value: Any) -> bool:
    if isinstance(value, list | tuple | dict):
        return any(map(_has_floats, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Given)


@final
class _Writer:
    """Writes sizes into a graph as int nodes, each once, after the placeholders."""

    def __init__(
        self,
        graph: Graph,
        sizes: ProgramSizes,
        leaves: Mapping[Symbol, Node],
        inputs: Sequence[Node],
    ) -> None:
        self.graph, self.sizes, self.leaves = graph, sizes, leaves
        self.inputs = inputs  # of the program; a body has none
        self.first = next(node for node in graph.nodes if node.op != "placeholder")
        self.made: dict[Any, Node] = {}

    def written(self, value: Any) -> Any:
        """An argument with nodes in the place of sizes."""
        if isinstance(value, SizeInt):
            return value.expr.build(self.leaves.__getitem__, self._join)
        if isinstance(value, Given):
            return self.inputs[value.place]
        if isinstance(value, Ratio):
            return self._join("/", value.number, self.written(value.size))
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
