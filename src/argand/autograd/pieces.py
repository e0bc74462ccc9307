"""autograd.pieces: a graph whose formulas of users' own are run by torch, and what lies between them compiled.

In: a graph, and which of its nodes have backwards that are not linear in the gradient. Out: a callable. Such a backward must
be given all of its gradient at once, at every order, and only torch's engine collects it: so these nodes are run as they
are, as after a graph break, and the nodes between them are programs of their own, compiled when they are first called.

::

    a = x * w         piece 0: (x, w) -> (a,)
    b = user(a)       torch
    c = b.sin()       piece 1: (b,) -> (c,)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import torch
from torch.fx import Graph, GraphModule, Node

from argand.ops.hooks import HOOKS
from argand.runtime import quiet
from argand.runtime.disk.graphs import attribute
from argand.runtime.lifetimes import LazyGraph
from argand.support.locks import Turns

CompilePiece: TypeAlias = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


@final
class _Piece:
    """Consecutive nodes as a program; compiled for the first inputs."""

    def __init__(
        self,
        module: GraphModule,
        inputs: Sequence[Node],
        outputs: Sequence[Node],
        compile: CompilePiece,
    ) -> None:
        self.module, self.inputs, self.outputs = module, tuple(inputs), tuple(outputs)
        self.compile, self.turns = compile, Turns()
        self.call: Callable[..., Any] | None = None

    def run(self, values: dict[Node, Any]) -> None:
        given = [values[node] for node in self.inputs]
        if self.call is None:
            with self.turns.take("piece"), quiet.compiling():
                if self.call is None:
                    self.call = self.compile(self.module, given)
        values.update(zip(self.outputs, self.call(*given), strict=True))


def in_pieces(
    gm: GraphModule, is_apart: Callable[[Node], bool], compile: CompilePiece
) -> Callable[..., Any] | None:
    """The graph as a callable; None where what lies between two pieces is no tensor."""
    nodes = [
        node for node in gm.graph.nodes if node.op not in ("placeholder", "output", "get_attr")
    ]
    steps: list[Node | _Piece] = []
    runs = _runs(nodes, is_apart)
    if any(_is_effect(node) for run in runs for node in run if not is_apart(node)):
        return None
    for run in runs:
        if is_apart(run[0]):
            steps.append(run[0])
            continue
        piece = _make_piece(gm, run, compile)
        if not all(_is_tensor(node) for node in (*piece.inputs, *piece.outputs)):
            return None
        steps.append(piece)
    places = [node for node in gm.graph.nodes if node.op == "placeholder"]
    attributes = [node for node in gm.graph.nodes if node.op == "get_attr"]
    result = gm.graph.output_node().args[0]

    def call(*inputs: Any) -> Any:
        values: dict[Node, Any] = dict(zip(places, inputs, strict=True))
        values.update((node, attribute(gm, str(node.target))) for node in attributes)
        for step in steps:
            if isinstance(step, _Piece):
                step.run(values)
            else:
                values[step] = _run(gm, step, values)
        return torch.fx.node.map_arg(result, values.__getitem__)

    return call


def _runs(nodes: Sequence[Node], is_apart: Callable[[Node], bool]) -> list[list[Node]]:
    """The nodes in order: single ones that are run apart, and runs between them.

    A value that gets a hook ends its run: what else is made of it must reach the hook through torch's engine.
    """
    hooked = {node.args[0] for node in nodes if node.target in HOOKS}
    runs: list[list[Node]] = [[]]
    for node in nodes:
        if is_apart(node):
            runs += [[node], []]
        else:
            runs[-1].append(node)
            if node in hooked:
                runs.append([])
    return [run for run in runs if run]


def _make_piece(gm: GraphModule, run: Sequence[Node], compile: CompilePiece) -> _Piece:
    inside = set(run)
    sources = dict.fromkeys(source for node in run for source in node.all_input_nodes)
    inputs = [node for node in sources if node not in inside and node.op != "get_attr"]
    outputs = [node for node in run if any(user not in inside for user in node.users)]
    graph, copies = Graph(), dict[Node, Node]()
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in (*(n for n in sources if n.op == "get_attr"), *run):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in outputs))
    return _Piece(LazyGraph(gm, graph, "Piece"), inputs, outputs, compile)


def _run(gm: GraphModule, node: Node, values: dict[Node, Any]) -> Any:
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    target: Any = attribute(gm, str(node.target)) if node.op == "call_module" else node.target
    return target(*args, **kwargs)


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.Tensor)


def _is_effect(node: Node) -> bool:
    """Whether a node is there for what it does, as one that changes torch's state: it would end with its piece."""
    return not node.users and node.meta.get("example_value") is None
