"""bisect.case: a captured graph with the inputs it fails on, as a value.

In: a graph that a child process was about to run, kept in a folder. Out: a `GraphCase`; every function here makes a new one of
another: `restricted` to some of its nodes (values of the others become inputs), `with_outputs`, `resized`. None of them says
whether it still fails: that is found out by running it (`bisect.shrink`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree

from argand.differences.copies import copy_inputs
from argand.runtime.disk.graphs import GraphWriter, read_graph, write_graph
from argand.runtime.disk.values import Reader, Unstorable, Writer

_ROWS: Final = "graph.json"
_BYTES: Final = "tensors.bin"
_NAMES: Final = re.compile(r"^l_|^self_|_?(?:self|modules|parameters|buffers)_(?=\w)|_+$")


@final
class GraphCase(NamedTuple):
    """A graph and the calls that make it fail. Nothing here is ever changed."""

    graph: Graph
    calls: tuple[tuple[Any, ...], ...]  # inputs of each call; the last one fails
    grad: bool = True  # whether gradients are recorded
    dynamic: bool = False  # whether its sizes are open

    @property
    def nodes(self) -> list[Node]:
        """Its operations."""
        return [node for node in self.graph.nodes if node.op not in ("placeholder", "output")]

    @property
    def inputs(self) -> list[Node]:
        """Its placeholders."""
        return [node for node in self.graph.nodes if node.op == "placeholder"]


def write_case(
    folder: Path, graph: GraphModule, calls: Sequence[Sequence[Any]], *, grad: bool, dynamic: bool
) -> bool:
    """Keep a graph in a folder; False if it cannot be written down."""
    writer, values = GraphWriter(), Writer()
    try:
        rows = write_graph(graph, writer, values=False)
        given = [[values.write(value) for value in call] for call in calls]
    except Unstorable:
        return False
    data = {
        "rows": rows,
        "calls": given,
        "grad": grad,
        "dynamic": dynamic,
        "constants": writer.size,
    }
    (folder / _BYTES).write_bytes(b"".join([*writer.blobs, *values.blobs]))
    (folder / _ROWS).write_text(json.dumps(data))
    return True


def read_case(folder: Path) -> GraphCase | None:
    """The graph that was kept, with constants as inputs; None if there is none."""
    if not (folder / _ROWS).is_file():
        return None
    data, tensors = json.loads((folder / _ROWS).read_text()), (folder / _BYTES).read_bytes()
    module = read_graph(data["rows"], tensors[: data["constants"]], values=False)
    reader = Reader(tensors[data["constants"] :])
    calls = tuple(tuple(reader.read(value) for value in call) for call in data["calls"])
    return _lifted(module, GraphCase(module.graph, calls, data["grad"], data["dynamic"]))


def _lifted(module: GraphModule, case: GraphCase) -> GraphCase:
    """The same with tensors that are constants of the graph as inputs, and with names that can be read."""
    constants = [node for node in case.graph.nodes if node.op == "get_attr"]
    values = tuple(getattr(module, str(node.target)) for node in constants)
    if not all(isinstance(value, torch.Tensor) for value in values):
        return case
    graph = Graph()
    known: dict[Node, Any] = {}
    for node in (*case.inputs, *constants):
        known[node] = graph.placeholder(_readable(node.name))
    for node in case.nodes:
        if node not in known:
            known[node] = graph.node_copy(node, known.__getitem__)
    graph.output(map_arg(case.graph.output_node().args[0], known.__getitem__))
    return case._replace(graph=graph, calls=tuple((*call, *values) for call in case.calls))


def _readable(name: str) -> str:
    while (shorter := _NAMES.sub("", name)) != name:
        name = shorter
    return name if name.isidentifier() else f"x_{name}"


def restricted(case: GraphCase, kept: Collection[Node]) -> GraphCase:
    """The case with some of its operations only.

    What an operation reads of others becomes an input, with the value it has in eager; what no other reads is a result.
    """
    chosen = set(kept)
    border = [
        n for n in case.graph.nodes if n not in chosen and any(user in chosen for user in n.users)
    ]
    graph = Graph()
    known: dict[Node, Any] = {}
    for node in border:
        known[node] = graph.placeholder(node.name)
    for node in case.nodes:
        if node in chosen:
            known[node] = graph.node_copy(node, known.__getitem__)
    returned = set(results_of(case))
    ends = [
        n
        for n in case.nodes
        if n in chosen and (n in returned or not any(u in chosen for u in n.users))
    ]
    graph.output(tuple(known[node] for node in ends))
    return case._replace(
        graph=graph, calls=tuple(_values(case, call, border) for call in case.calls)
    )


def results_of(case: GraphCase) -> list[Node]:
    """The nodes that a case returns."""
    return [x for x in pytree.tree_leaves(case.graph.output_node().args[0]) if isinstance(x, Node)]


def with_results(case: GraphCase, results: Sequence[Node]) -> GraphCase:
    """The case with fewer results."""
    graph = Graph()
    known: dict[Node, Any] = {}
    for node in case.graph.nodes:
        if node.op != "output":
            known[node] = graph.node_copy(node, known.__getitem__)
    graph.output(tuple(known[node] for node in results))
    return case._replace(graph=graph)


def _values(case: GraphCase, inputs: Sequence[Any], wanted: Sequence[Node]) -> tuple[Any, ...]:
    """What some nodes are in eager, at the moment they are computed."""
    given = iter(copy_inputs(inputs).values)
    values: dict[Node, Any] = {}
    kept: dict[Node, Any] = {}
    with torch.set_grad_enabled(case.grad):
        for node in case.graph.nodes:
            if node.op == "output":
                break
            values[node] = next(given) if node.op == "placeholder" else _run(node, values)
            if node in wanted:
                kept[node] = map_aggregate(values[node], _apart)
    return tuple(kept[node] for node in wanted)


def _run(node: Node, values: dict[Node, Any]) -> Any:
    args, kwargs = map_arg(node.args, values.__getitem__), map_arg(node.kwargs, values.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _apart(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def resized(case: GraphCase, change: Callable[[int], int]) -> GraphCase:
    """The case with other sizes: inputs are cut, and integers of operations that are such sizes change as well."""
    graph = Graph()
    known: dict[Node, Any] = {}
    for node in case.graph.nodes:
        if node.op == "output":
            graph.output(map_arg(node.args[0], known.__getitem__))
            continue
        made = known[node] = graph.node_copy(node, known.__getitem__)
        made.args, made.kwargs = (
            map_aggregate(made.args, _number(change)),
            map_aggregate(made.kwargs, _number(change)),
        )
    cut = _cut(change)
    return case._replace(
        graph=graph, calls=tuple(tuple(map_aggregate(v, cut) for v in call) for call in case.calls)
    )


def _number(change: Callable[[int], int]) -> Callable[[Any], Any]:
    return lambda value: change(value) if type(value) is int and value > 1 else value


def _cut(change: Callable[[int], int]) -> Callable[[Any], Any]:
    def cut(value: Any) -> Any:
        if type(value) is int:
            return change(value) if value > 1 else value
        if not isinstance(value, torch.Tensor):
            return value
        part = value.detach()
        for dim, size in enumerate(value.shape):
            part = part.narrow(dim, 0, change(size))
        if part.shape == value.shape:
            return value
        # indices that fit the sizes before may not fit now
        if value.dtype in (torch.int64, torch.int32):
            part = part.remainder(max(min(part.shape, default=1), 1))
        return part.clone().requires_grad_(value.requires_grad)

    return cut


def sizes_of(case: GraphCase) -> list[int]:
    """All sizes of inputs above one, the largest first."""
    tensors = [x for x in pytree.tree_leaves(case.calls) if isinstance(x, torch.Tensor)]
    return sorted({size for x in tensors for size in x.shape if size > 1}, reverse=True)
