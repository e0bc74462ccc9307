"""native.passes.rewrite: rebuild a graph bottom up through a rule.

Equal nodes become one on the way (the builder sees to it), and what nobody needs is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from argand.native.ir.builder import Builder
from argand.native.ir.tensor import Graph, Node, Output
from argand.support.dataclass import replace

Rewrite = Callable[[Builder, Node], Node | None]


def rewrite(graph: Graph, rule: Rewrite) -> Graph:
    """The graph with ``rule`` applied to each node after its inputs; None keeps the node."""
    return replaced(graph, lambda build, _, same: rule(build, same) or same)


def replaced(graph: Graph, change: Callable[[Builder, Node, Node], Node]) -> Graph:
    """The graph with another value for each node, from the node and what it became with its new inputs."""
    build = Builder()
    done: dict[Node, Node] = {}
    for node in graph.nodes:
        build.trace = node.trace
        same = build.rebuild(node, tuple(done[i] for i in node.inputs))
        done[node] = change(build, node, same)
    outputs = tuple(
        replace(o, node=done[o.node]) if isinstance(o, Output) else o for o in graph.outputs
    )
    layouts = {
        done[n]: strides for n, strides in reversed(list(graph.layouts.items())) if n in done
    }
    return Graph.of(graph.inputs, outputs, tuple(done[e] for e in graph.effects), layouts)
