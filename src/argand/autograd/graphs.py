"""autograd.graphs: fx graphs as data: modules made without generating code, dead code, printing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

from argand.autograd.functional import is_random


def make_module(graph: Graph, constants: Mapping[str, torch.Tensor], name: str) -> GraphModule:
    """A GraphModule that generates its Python code only when somebody calls or prints it."""
    root = {
        node.target: constants[str(node.target)] for node in graph.nodes if node.op == "get_attr"
    }
    return _LazyGraphModule(root, graph, class_name=name)


def remove_dead(graph: Graph) -> None:
    """Remove what no output needs. Forward draws stay: eager draws them too."""
    for node in reversed(graph.nodes):
        if node.op in ("call_function", "get_attr") and not node.users:
            if is_random(node.target, node.args) and not node.meta.get("is_backward"):
                continue
            graph.erase_node(node)


def flat_outputs(graph: Graph) -> list[Any]:
    """The flat list a graph returns."""
    return list(graph.output_node().args[0])


def ancestors(nodes: Iterable[Any]) -> set[Node]:
    """The nodes and everything they are computed from."""
    found: set[Node] = set()
    pending = [node for node in nodes if isinstance(node, Node)]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.all_input_nodes)
    return found


def extract(
    nodes: Iterable[Node], inputs: Sequence[Node], outputs: Sequence[Any], *, draws: bool
) -> Graph:
    """A graph of its own computing ``outputs`` from ``inputs`` by those of ``nodes`` it needs.

    With ``draws``, random ops among ``nodes`` stay even when nobody reads them.
    """
    needed: set[Node] = set()
    pending = [node for node in outputs if isinstance(node, Node)]
    given = set(inputs)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            if node not in given:
                pending.extend(node.all_input_nodes)
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = graph.create_node("placeholder", node.name, name=node.name)
        copies[node].meta = node.meta
    for node in nodes:
        if node in copies or node.op in ("placeholder", "output"):
            continue
        if node in needed or (draws and is_random(node.target, node.args)):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    # placeholders keep their order, whatever the outputs are
    returned = [copies[value] if isinstance(value, Node) else value for value in outputs]
    graph.output(returned)
    return graph


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
