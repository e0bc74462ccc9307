"""capture.sizes.twin: a graph with open sizes is run again on fakes of other sizes.

In: a recorded graph whose fakes have samples for sizes, and the table that explains their shapes.
Raises `Specialise` when a shape is not what its expression says, so that an integer that only looked
like a size, and an operator without a formula, are found out.
"""

from __future__ import annotations

import operator
import re
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

from argand.capture.sizes.frame_sizes import FrameSizes
from argand.ops.fakes import FakeMode
from argand.sizes.expressions import SizeInt
from argand.sizes.floats import OpenFloat
from argand.sizes.refusals import Specialise
from argand.sizes.table import SizeTable
from argand.support import events
from argand.support.errors import Location


def check_twin(graph: torch.fx.Graph, inputs: dict[torch.fx.Node, Any], sizes: FrameSizes) -> None:
    """Run a graph for other sizes, and compare all shapes; `inputs` are the real ones."""
    with events.stage("capture.twin"):
        _check(graph, inputs, sizes, sizes.table.twin())
        for few in filter(None, map(sizes.table.small, (1, 0))):
            _check(graph, inputs, sizes, few, is_small=True)


def _check(
    graph: torch.fx.Graph,
    inputs: dict[torch.fx.Node, Any],
    sizes: FrameSizes,
    twin: SizeTable,
    **how: bool,
) -> None:
    values: dict[torch.fx.Node, Any] = {}
    with FakeMode() as mode:
        for node in graph.nodes:
            if node.op == "output":
                continue
            example = node.meta.get("example_value")
            if node.op == "placeholder":
                values[node] = _input(example, inputs.get(node), sizes, twin)
                continue
            fresh = iter(node.meta.get("unbacked", ()))
            mode.unbacked = lambda _, fresh=fresh: twin.samples[next(fresh)]
            try:
                values[node] = _run(node, values, sizes)
            except Specialise:
                if how and _concerned(node, sizes.table) <= sizes.table.unbacked:
                    return  # it fails in eager as well
                raise
            if node.target is not operator.getitem or isinstance(example, torch.Tensor):
                _compare(node, example, values[node], sizes.table, twin, **how)


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
    return made if example.is_leaf else made.view_as(made)


def _run(node: torch.fx.Node, values: dict[torch.fx.Node, Any], sizes: FrameSizes) -> Any:
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    try:
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)
    except Exception as error:
        raise Specialise(
            sizes.table.samples, f"{node.target} fails for other sizes: {error}", _line(node)
        ) from None


def _compare(
    node: torch.fx.Node,
    was: Any,
    now: Any,
    table: SizeTable,
    twin: SizeTable,
    is_small: bool = False,
) -> None:
    if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor):
        wanted = [
            twin.at(table.express(n)) for n in (*was.shape, *(() if is_small else was.stride()))
        ]
        if len(was.shape) == len(now.shape) and wanted == [
            *now.shape,
            *(() if is_small else now.stride()),
        ]:
            return
        found = [*map(table.express, was.shape)]
        names = ", ".join(f"{symbol} = {n}" for symbol, n in twin.samples.items())
        where = f"{node.target}: sizes {found} became {list(now.shape)} for {names}"
        raise Specialise(_concerned(node, table) or table.samples, where, _line(node))
    if isinstance(was, tuple | list) and isinstance(now, tuple | list):
        if len(was) != len(now):
            many = f"{node.target} gives {len(was)} or {len(now)} results"
            raise Specialise(_concerned(node, table) or table.samples, many, _line(node))
        for before, after in zip(was, now, strict=True):
            _compare(node, before, after, table, twin, is_small)


def _line(node: torch.fx.Node) -> Location | None:
    found = re.findall(r'File "(.*)", line (\d+), in (.*)', node.meta.get("stack_trace") or "")
    return Location(found[-1][0], int(found[-1][1]), found[-1][2]) if found else None


def _concerned(node: torch.fx.Node, table: SizeTable) -> set[Any]:
    """The symbols in the sizes of what a node takes."""
    found: set[Any] = set()
    for argument in node.all_input_nodes:
        example = argument.meta.get("example_value")
        numbers = example.shape if isinstance(example, torch.Tensor) else [example]
        for number in numbers:
            size = table.express(number) if isinstance(number, int) else number
            if isinstance(size, SizeInt):
                found |= size.expr.symbols
    return found
