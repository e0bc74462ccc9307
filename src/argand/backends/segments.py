"""backends.segments: split a graph between a compiler that takes some ops and torch for the rest.

In: an aten graph and a test "does the other compiler take this node". Out: a callable that runs the
graph, in which every run of consecutive taken nodes was handed over as one segment. Runs of the
graph's own order are convex, so no segment ever waits for another part of itself.

::

    a = mm(x, w)      taken      -> segment 0: (x, w) -> (b,)
    b = relu(a)       taken
    c = special(b)    not taken  -> torch
    d = exp(c)        taken      -> segment 1: (c,) -> (d,)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.fx import GraphModule, Node

from argand.support import events

CompileSegment: TypeAlias = Callable[["Segment"], Callable[..., Sequence[Any]]]


class Segment(NamedTuple):
    """Consecutive nodes for the other compiler, what they read and what is read of them."""

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


def find_segments(
    gm: GraphModule, takes: Callable[[Node], bool], min_nodes: int = 2
) -> list[Segment]:
    """The runs of taken nodes worth handing over."""
    segments: list[Segment] = []
    run: list[Node] = []
    for node in gm.graph.nodes:
        if node.op == "call_function" and takes(node):
            run.append(node)
            continue
        if node.op == "placeholder":
            continue
        if len(run) >= min_nodes:
            segments.append(_make_segment(run))
        run = []
    return segments


def _make_segment(run: Sequence[Node]) -> Segment:
    inside = set(run)
    inputs = dict.fromkeys(
        source for node in run for source in node.all_input_nodes if source not in inside
    )
    outputs = [node for node in run if any(user not in inside for user in node.users)]
    return Segment(tuple(run), tuple(inputs), tuple(outputs))


def run_in_segments(
    gm: GraphModule, segments: Sequence[Segment], compile_segment: CompileSegment
) -> Callable[..., tuple[Any, ...]]:
    """The graph as a callable; a segment whose compilation raises is halved, one node is torch's."""
    compiled: dict[Node, tuple[Segment, Callable[..., Sequence[Any]]]] = {}
    covered: set[Node] = set()
    waiting = list(segments)
    while waiting:
        segment = waiting.pop()
        nodes, middle = segment.nodes, len(segment.nodes) // 2
        try:
            function = compile_segment(segment)
        except Exception as error:  # the other compiler declines
            note = f"{nodes[0]} to {nodes[-1]} ({len(nodes)} nodes) declined: {error}"
            events.artifact("perf_hints", note.strip, "segment declined")
            waiting += [_make_segment(part) for part in (nodes[:middle], nodes[middle:]) if middle]
            continue
        compiled[nodes[-1]] = (segment, function)
        covered.update(nodes)

    class Runner(torch.fx.Interpreter):
        """Runs nodes one by one; a covered node waits for the end of its segment."""

        def run_node(self, n: Node) -> Any:
            if n not in covered:
                return super().run_node(n)
            if n not in compiled:
                return None
            segment, function = compiled[n]
            results = function(*(self.env[source] for source in segment.inputs))
            self.env.update(zip(segment.outputs, results, strict=True))
            return self.env.get(n)

    # Interpreter frees values after their last reader; inside a segment there is no reader.
    return lambda *inputs: tuple(Runner(gm, garbage_collect_values=False).run(*inputs))
