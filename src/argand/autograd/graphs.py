"""autograd.graphs: fx graphs as data: modules made without generating code, dead code, printing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from argand.autograd.functional import is_effect, is_random
from argand.ops.copied import Copied
from argand.ops.rows import may_raise
from argand.runtime.lifetimes import LazyGraph
from argand.support.errors import InternalError


def make_module(graph: Graph, constants: Mapping[str, torch.Tensor], name: str) -> GraphModule:
    """A GraphModule that generates its Python code only when somebody calls or prints it."""
    root = {
        node.target: constants[str(node.target)] for node in graph.nodes if node.op == "get_attr"
    }
    return LazyGraph(root, graph, name)


def remove_dead(graph: Graph) -> None:
    """Remove what no output needs, but for what must run all the same."""
    for node in reversed(graph.nodes):
        dead = node.op in ("call_function", "get_attr") and not node.users
        if dead and not must_run(node, forward=not node.meta.get("is_backward")):
            graph.erase_node(node)


def must_run(node: Node, *, forward: bool) -> bool:
    """Whether a node runs although nobody reads it.

    Eager draws what the forward draws, and raises what a value in it makes it raise. What a backward
    computes beyond the gradients that are asked for, eager does not compute at all.
    """
    if is_effect(node.target):
        return True
    if not forward or not isinstance(node.target, OpOverload | Copied):
        return False
    return is_random(node.target, node.args) or (
        isinstance(node.target, OpOverload) and may_raise(node.target, node.meta.get("val"))
    )


def flat_outputs(graph: Graph) -> list[Any]:
    """The flat list a graph returns."""
    return list(graph.output_node().args[0])


def ancestors(nodes: Iterable[Any], stop: Collection[Node] = ()) -> set[Node]:
    """The nodes and everything they are computed from, not going beyond ``stop``."""
    found: set[Node] = set()
    pending = [node for node in nodes if isinstance(node, Node)]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            if node not in stop:
                pending.extend(node.all_input_nodes)
    return found


def is_view(node: Node) -> bool:
    """Whether a node is a view of another node's value."""
    return isinstance(node.target, OpOverload) and node.target.is_view


def add_node(graph: Graph, op: str, target: Any, args: Any, kwargs: Any, name: str) -> Node:
    """``graph.create_node`` without its search for symbolic numbers, which takes most of its time."""
    name = graph._graph_namespace.create_name(name, None)
    node = Node(graph, name, op, target, args, kwargs, None)
    graph._graph_namespace.associate_name_with_obj(name, node)
    graph._insert(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


def extract(
    nodes: Iterable[Node], inputs: Sequence[Node], outputs: Sequence[Any], *, forward: bool
) -> Graph:
    """A graph of its own computing ``outputs`` from ``inputs``.

    It keeps the order of ``nodes``; anything else it needs is computed just before its first use.
    What must run among ``nodes`` stays even when nobody reads it.
    """
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = add_node(graph, "placeholder", node.name, (), {}, node.name)
        copies[node].meta = dict(node.meta)
    given = set(inputs)
    needed = ancestors(outputs, given)

    def copy(node: Node) -> None:
        pending = [node]
        while pending:
            current = pending[-1]
            missing = [source for source in current.all_input_nodes if source not in copies]
            if missing:
                pending.extend(reversed(missing))
                continue
            pending.pop()
            if current.op == "placeholder" and current not in copies:
                raise InternalError("autograd.partition", f"{current.name} was not saved")
            if current not in copies:
                args = map_arg(current.args, copies.__getitem__)
                kwargs = map_arg(current.kwargs, copies.__getitem__)
                new = add_node(graph, current.op, current.target, args, kwargs, current.name)
                new.meta = dict(current.meta)
                copies[current] = new

    for node in nodes:
        if node.op in ("placeholder", "output") or node in copies:
            continue
        if node in needed or must_run(node, forward=forward and not node.meta.get("is_backward")):
            copy(node)
    for node in outputs:
        if isinstance(node, Node) and node not in copies:
            copy(node)
    results = [copies[value] if isinstance(value, Node) else value for value in outputs]
    graph.output(results if forward else [_own(graph, value) for value in results])
    return graph


def _own(graph: Graph, gradient: Any) -> Any:
    """A gradient in memory of its own: who writes to one must not write to what is kept for the next backward."""
    source = gradient
    while isinstance(source, Node) and is_view(source):
        source = source.args[0]
    if not isinstance(source, Node) or source.op not in ("placeholder", "get_attr"):
        return gradient
    if str(source.target).startswith("tangents"):
        return gradient  # as in eager
    clone = torch.ops.aten.clone.default
    made = add_node(graph, "call_function", clone, (gradient,), {}, "own")
    made.meta = dict(gradient.meta)
    return made


def readable(module: GraphModule) -> str:
    """Runnable Python of a graph, each call under the user's line."""
    body = module.graph.python_code("self").src
    lines: list[str] = []
    traces = {node.name: node.meta.get("stack_trace") for node in module.graph.nodes}
    last = None
    for line in body.splitlines():
        stripped = line.strip()
        name = stripped.split(" ", 1)[0].rstrip(":")
        trace = traces.get(name)
        if trace and trace != last:
            last = trace
            place = [text.strip() for text in trace.strip().splitlines()][-2:]
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}# {' '.join(place)}")
        lines.append(line)
    header = "import torch\nfrom torch import device\nimport operator\ninf, nan = float('inf'), float('nan')\n"
    return header + "\n".join(lines) + "\n"
