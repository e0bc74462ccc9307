"""native.passes.gather: look up few elements before they are computed with, not after all of them are.

Before:  %2 = exp(%0) : f32[512,4096];          %3 = gather[d0, #1](%2, %1) : f32[512,1]
After:   %2 = gather[d0, #1](%0, %1) : f32[512,1];  %3 = exp(%2) : f32[512,1]

Cross entropy then reads its logits, and the log-softmax of all classes is never written.
"""

from __future__ import annotations

from typing import Any, Final

from argand.native.ir.affine import Affine
from argand.native.ir.builder import Builder
from argand.native.ir.tensor import GatherMap, Graph, Node, NodeKind
from argand.native.ir.types import at_least, numel
from argand.native.passes.rewrite import rewrite

# times as many elements must the source have: it may be needed for something else, too
FEWER: Final = 8


def sink_gathers(graph: Graph) -> Graph:
    """Exchange gathers and the pointwise ops below them."""
    return rewrite(graph, _sink)


def _sink(build: Builder, node: Node) -> Node | None:
    if node.op != "gather":
        return None
    source = node.inputs[0]
    if source.kind is not NodeKind.POINTWISE or not at_least(
        numel(source.shape), FEWER * numel(node.shape)
    ):
        return None
    places = [_place(node, value) for value in source.inputs]
    looked = [any(isinstance(form, int) for form in forms) for forms in places]
    if not any(looked):
        return None  # nobody would check the index any more
    pieces: list[Node] = []
    for value, forms, look in zip(source.inputs, places, looked, strict=True):
        if look and value.kind is NodeKind.LEAF and value.op not in ("input", "tensor"):
            return None  # no memory to look in
        if look:
            found = build.node("gather", (value, *node.inputs[1:]), node.shape, value.dtype, forms)
            pieces.append(_sink(build, found) or found)
        else:
            pieces.append(build.view(value, node.shape, forms))  # type: ignore[arg-type]
    return build.node(source.op, tuple(pieces), node.shape, source.dtype)


def _place(node: Node, value: Node) -> GatherMap:
    """Where a gather looks in one input of its source, which may be broadcast."""
    every: Any = node.attribute
    offset = len(every) - len(value.shape)
    constant = value.op == "constant"
    return tuple(
        Affine() if size == 1 or constant else every[d + offset]
        for d, size in enumerate(value.shape)
    )
