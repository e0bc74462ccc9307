"""runtime.disk.graphs: torch.fx graphs as data.

In: a GraphModule, at torch or aten level. Out: nodes as rows (a stable text for keys), and the module
back from them. Kept: structure, names, constants, the region of a checkpoint, and for aten graphs the
metadata of each value. Sizes that are open are expressions: their samples differ from process to process. Not
kept: the user's lines, which move without changing anything.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from typing_extensions import override

from argand.ops.layout import extent
from argand.runtime.disk.format import Damaged
from argand.runtime.disk.values import Reader, Unstorable, Writer
from argand.runtime.lifetimes import LazyGraph


def spec_of(value: Any, table: Any = None) -> Any:
    """The data of a fake: what compiled code may rely on. ``table``: what its sizes stand for."""
    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise Unstorable(f"a tensor of type {type(value).__name__}")
        flags = (value.is_conj(), value.is_neg())
        kind = [str(value.dtype), str(value.device), str(value.layout), *flags]
        if value.layout is not torch.strided:
            raise Unstorable(f"a tensor of layout {value.layout}")
        return ["~", *(_sizes(row, table) for row in (value.shape, value.stride())), *kind]
    if isinstance(value, tuple | list):
        return ["(", *(spec_of(item, table) for item in value)]
    return Writer().write(value)


def _sizes(sizes: Any, table: Any) -> list[Any]:
    found = sizes if table is None else map(table.express, sizes)
    return [size if type(size) is int else Writer().write(size) for size in found]


def opened(value: torch.Tensor, shown: torch.Tensor, table: Any) -> list[list[int]]:
    """Sizes and strides of a real tensor; those that are open in the fake that stands for it are expressions."""
    pairs = (value.shape, shown.shape), (value.stride(), shown.stride())
    return [
        [r if r == n else table.express(n) for r, n in zip(*pair, strict=True)] for pair in pairs
    ]


def read_spec(data: Any, table: Any = None) -> Any:
    """A fake from its data."""
    read = Reader(sizes=table).read
    if type(data) is not list or data[0] not in ("~", "("):
        return read(data)
    if data[0] == "(":
        return tuple(read_spec(item, table) for item in data[1:])
    _, shape, strides, dtype, device, _, conj, neg = data
    shape, strides = ([int(read(size)) for size in row] for row in (shape, strides))
    kind = getattr(torch, dtype.removeprefix("torch."))
    if device != "cpu" or extent(tuple(shape), tuple(strides)) < 0:
        return torch.empty_strided(shape, strides, dtype=kind, device="meta")
    fake = torch.empty_strided(shape, strides, dtype=kind)
    fake = torch._conj(fake) if conj else fake
    return torch._neg_view(fake) if neg else fake


class GraphWriter(Writer):
    """A writer that also knows the nodes of one graph at a time: the graphs that operators of it take are written within."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[Node, int] = {}

    @override
    def write(self, value: Any) -> Any:
        """The data of a value that may hold nodes."""
        if type(value) is Node:
            return ["%", self.numbers[value]]
        return super().write(value)


def write_graph(
    module: GraphModule, writer: GraphWriter, table: Any = None, *, values: bool
) -> list[Any]:
    """One row per node; ``values`` for aten graphs: the metadata of results belongs to them."""
    rows: list[Any] = []
    for node in module.graph.nodes:
        row = [node.op, node.name, _target(module, node, writer, table, values)]
        row += [writer.write(node.args), writer.write(node.kwargs)]
        known = node.meta.get("val" if values else "checkpoint")
        row.append(None if node.op == "output" else spec_of(known, table))
        if table is not None and node.op == "placeholder" and not values:
            row.append(spec_of(node.meta["example_value"], table))
        writer.numbers[node] = len(rows)
        rows.append(row)
    return rows


def attribute(module: Any, target: str) -> Any:
    """What a get_attr node reads."""
    for part in target.split("."):
        module = getattr(module, part)
    return module


def constants_of(module: GraphModule) -> dict[str, Any]:
    """The attributes a graph reads, by name."""
    names = [str(node.target) for node in module.graph.nodes if node.op == "get_attr"]
    return {name: attribute(module, name) for name in names}


def _target(module: GraphModule, node: Node, writer: GraphWriter, table: Any, values: bool) -> Any:
    match node.op:
        case "call_function":
            return writer.write(node.target)
        case "get_attr":
            found = attribute(module, str(node.target))
            if not isinstance(found, GraphModule):
                return [str(node.target), writer.write(found)]
            numbers, writer.numbers = writer.numbers, {}
            rows = write_graph(found, writer, table, values=values)
            writer.numbers = numbers
            return [str(node.target), ["graph", *rows]]
        case "call_module":
            raise Unstorable(f"a module called inside of a graph: {node.target}")
        case _:
            return str(node.target)


class _GraphReader(Reader):
    def __init__(self, tensors: bytes, table: Any) -> None:
        super().__init__(tensors, sizes=table)
        self.nodes: list[Node] = []

    @override
    def read(self, item: Any) -> Any:
        if type(item) is list and item[0] == "%":
            return self.nodes[item[1]]
        return super().read(item)


def read_graph(rows: list[Any], tensors: bytes, table: Any = None, *, values: bool) -> GraphModule:
    """The module of rows that ``write_graph`` made."""
    graph, constants, reader = Graph(), {}, _GraphReader(tensors, table)
    for row in rows:
        op, name, target, args, kwargs = row[:5]
        if op == "get_attr":
            target, constant = target
            is_graph = type(constant) is list and constant[0] == "graph"
            constants[target] = (
                read_graph(constant[1:], tensors, table, values=values)
                if is_graph
                else reader.read(constant)
            )
        elif op == "call_function":
            target = reader.read(target)
        if not all(
            part.isidentifier()
            for part in (name, *(target.split(".") if isinstance(target, str) else ()))
        ):
            raise Damaged(f"the name {name!r} or {target!r}")  # torch.fx writes Python with names
        read_args, read_kwargs = reader.read(args), reader.read(kwargs)
        node = graph.create_node(op, target, read_args, read_kwargs, name)
        if row[5] is not None:
            node.meta["val" if values else "checkpoint"] = read_spec(row[5], table)
        if len(row) > 6:
            node.meta["example_value"] = read_spec(row[6], table)
        reader.nodes.append(node)
    return LazyGraph(constants, graph, "Stored")
