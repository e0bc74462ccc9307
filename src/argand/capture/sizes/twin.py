"""capture.sizes.twin: a graph with open sizes is run again on fakes of other sizes.

In: a recorded graph whose fakes have samples for sizes, and the table that explains their shapes.
Out: what has to be fixed, when a shape is not what its expression says, so that an integer that only
looked like a size, and an operator without a formula, are found out. A function of torch may also choose
by size what it computes (`cdist`): the operators it runs must be the same for small and large sizes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
import torch.fx
from torch.fx.node import map_arg

from argand.capture.sizes.frame_sizes import FrameSizes
from argand.ops.control_flow import RESULTS, branches_of
from argand.ops.fakes import FakeMode
from argand.ops.layers import RECURRENT
from argand.sizes.expressions import Expr, SizeInt, Symbol
from argand.sizes.facts import Fact
from argand.sizes.floats import OpenFloat
from argand.sizes.refusals import FixSizes, NeedFacts, Refusal
from argand.sizes.table import SizeTable
from argand.support import events
from argand.support.errors import Location

Inputs = Mapping[torch.fx.Node, Any]
Operators = Mapping[torch.fx.Node, tuple[Any, ...]]  # what each node runs inside of torch


def check_twin(graph: torch.fx.Graph, inputs: Inputs, sizes: FrameSizes) -> Refusal | None:
    """Run a graph for other sizes, and compare all shapes; `inputs` are the real ones."""
    with events.stage("capture.twin"):
        twin = _Twin(sizes, sizes.table.twin(), is_small=False)
        refusal = twin.check(graph, inputs)
        for few in (1, 0):
            small = sizes.table.small(few)
            if refusal is None and small is not None:
                refusal = _Twin(sizes, small, is_small=True).check(graph, inputs)
        return refusal or _check_lowest(graph, inputs, sizes, twin.operators)


def _check_lowest(
    graph: torch.fx.Graph, inputs: Inputs, sizes: FrameSizes, operators: Operators
) -> Refusal | None:
    """Run a graph for the smallest sizes it is for: some operators work, or give what they say, above
    a size only (`narrow`, `qr`, `cdist`). The first size that will do becomes a fact."""
    lowest = sizes.table.lowest()

    def fails(values: Mapping[Symbol, int]) -> FixSizes | None:
        at_values = SizeTable.at_values(values)
        return _Twin(sizes, at_values, is_small=False, expected=operators).check(graph, inputs)

    refusal = None if lowest is None else fails(lowest)
    if lowest is None or refusal is None:
        return None
    facts = []
    for symbol in lowest.keys() - sizes.table.unbacked:
        least = _least_that_works(fails, sizes, symbol, lowest[symbol])
        if least is None or least > sizes.table.reals[symbol]:
            return refusal
        if least > lowest[symbol]:
            facts.append(Fact(">=", Expr.of(symbol), Expr.of(least), refusal.where))
    return NeedFacts(tuple(facts)) if facts else refusal


def _least_that_works(
    fails: Callable[[Mapping[Symbol, int]], FixSizes | None],
    sizes: FrameSizes,
    symbol: Symbol,
    low: int,
) -> int | None:
    """The smallest size that will do for one symbol, others at their samples; None: not even those."""

    def works(size: int) -> bool:
        return fails({**sizes.table.samples, symbol: size}) is None

    high = sizes.table.samples[symbol]
    if works(low):
        return low
    if not works(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


@final
class _Twin:
    """One run of a graph at the samples of another table."""

    def __init__(
        self, sizes: FrameSizes, table: SizeTable, is_small: bool, expected: Operators | None = None
    ) -> None:
        self.sizes, self.table = sizes, table
        self.is_small = is_small  # symbols that may be 0 or 1 are: strides are not what they say
        self.expected = expected  # what each node must run
        self.operators: dict[torch.fx.Node, tuple[Any, ...]] = {}

    def check(self, graph: torch.fx.Graph, inputs: Mapping[torch.fx.Node, Any]) -> FixSizes | None:
        """What has to be fixed, when a shape is not what its expression says."""
        with FakeMode() as mode:
            places = [node for node in graph.nodes if node.op == "placeholder"]
            feed = [
                _input(n.meta.get("example_value"), inputs.get(n), self.sizes, self.table)
                for n in places
            ]
            return self._check(graph, feed, mode)

    def _check(self, graph: torch.fx.Graph, feed: Sequence[Any], mode: FakeMode) -> FixSizes | None:
        values: dict[torch.fx.Node, Any] = {}
        given = iter(feed)
        for node in graph.nodes:
            if node.op == "output":
                continue
            example = node.meta.get("example_value")
            if node.op == "placeholder":
                values[node] = next(given)
                continue
            if node.op == "get_attr":
                values[node] = example
                continue
            mode.unbacked = self._data_sizes(node)
            try:
                refusal = self._check_branches(node, values, mode)
                mode.called = []
                values[node] = _run(node, values)
            except Exception as error:
                return self._failed(node, error)
            self.operators[node] = _ran(node, mode)
            if self.expected is not None and self.operators[node] != self.expected[node]:
                return self._refuse(node, "torch computes it in another way for other sizes")
            if refusal is None and (
                node.target is not operator.getitem or isinstance(example, torch.Tensor)
            ):
                refusal = self._compare(node, example, values[node])
            if refusal is not None:
                return refusal
        return None

    def _check_branches(
        self, node: torch.fx.Node, values: Mapping[Any, Any], mode: FakeMode
    ) -> FixSizes | None:
        """The same inside of the graphs that an operator takes."""
        for module, args in branches_of(node.target, map_arg(node.args, values.__getitem__)):
            refusal = self._check(module.graph, args, mode)
            if refusal is not None:
                return refusal
        return None

    def _data_sizes(self, node: torch.fx.Node) -> Callable[[int | None], int]:
        """What stands for the sizes of a node that depend on data, in their order."""
        fresh = iter(node.meta.get("unbacked", ()))

        def next_size(limit: int | None) -> int:
            return self.table.samples[next(fresh)]

        return next_size

    def _failed(self, node: torch.fx.Node, error: Exception) -> FixSizes | None:
        known = self.sizes.table
        if self.is_small and _concerned(node, known) <= known.unbacked:
            return None  # it fails in eager as well
        reason = f"{node.target} fails for other sizes: {error}"
        return FixSizes(frozenset(known.samples), reason, _line(node))

    def _compare(self, node: torch.fx.Node, was: Any, now: Any) -> FixSizes | None:
        if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor):
            if self._agree(was, now):
                return None
            found = [self.sizes.table.express(n) for n in was.shape]
            names = ", ".join(f"{symbol} = {n}" for symbol, n in self.table.samples.items())
            return self._refuse(node, f"sizes {found} became {list(now.shape)} for {names}")
        if isinstance(was, tuple | list) and isinstance(now, tuple | list):
            if len(was) != len(now):
                return self._refuse(node, f"gives {len(was)} or {len(now)} results")
            for before, after in zip(was, now, strict=True):
                refusal = self._compare(node, before, after)
                if refusal is not None:
                    return refusal
        return None

    def _agree(self, was: torch.Tensor, now: torch.Tensor) -> bool:
        express = self.sizes.table.express
        if len(was.shape) != len(now.shape):
            return False
        if [self.table.at(express(n)) for n in was.shape] != [*now.shape]:
            return False
        if self.is_small:
            return True
        return [self.table.at(express(n)) for n in was.stride()] == [*now.stride()]

    def _refuse(self, node: torch.fx.Node, what: str) -> FixSizes:
        known = self.sizes.table
        symbols = _concerned(node, known) or known.samples
        return FixSizes(frozenset(symbols), f"{node.target}: {what}", _line(node))


def _input(example: Any, raw: Any, sizes: FrameSizes, twin: SizeTable) -> Any:
    if isinstance(example, SizeInt):
        return twin.at(example)
    if isinstance(example, OpenFloat):
        return example * 0.875 or 0.875
    # no sample is the size of the real call: where they are equal, the size is not open
    rows = (example.shape, raw.shape), (example.stride(), raw.stride())
    shape, strides = (
        [n if n == real else twin.at(sizes.table.express(n)) for n, real in zip(*row, strict=True)]
        for row in rows
    )
    made = sizes.allocate(shape, strides, example.dtype)
    if not example.requires_grad:
        return made
    made.requires_grad_()
    with torch.enable_grad():
        return made if example.is_leaf else made.view_as(made)


def _run(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    if node.target in RESULTS:
        return RESULTS[node.target](*args, **kwargs)
    return node.target(*args, **kwargs)


def _ran(node: torch.fx.Node, mode: FakeMode) -> tuple[Any, ...]:
    """What a node ran inside of torch, in order; of one step, where that is run for each item of a sequence."""
    called = mode.called or []
    return tuple(dict.fromkeys(called) if node.target in RECURRENT else called)


def _line(node: torch.fx.Node) -> Location | None:
    found = re.findall(r'File "(.*)", line (\d+), in (.*)', node.meta.get("stack_trace") or "")
    return Location(found[-1][0], int(found[-1][1]), found[-1][2]) if found else None


def _concerned(node: torch.fx.Node, table: SizeTable) -> set[Any]:
    """The symbols in the sizes of what a node takes."""
    found: set[Any] = set()
    for argument in node.all_input_nodes:
        example = argument.meta.get("example_value")
        is_tensor = isinstance(example, torch.Tensor)
        numbers = (*example.shape, *example.stride()) if is_tensor else [example]
        for number in numbers:
            size = table.express(number) if isinstance(number, int) else number
            if isinstance(size, SizeInt):
                found |= size.expr.symbols
    return found
