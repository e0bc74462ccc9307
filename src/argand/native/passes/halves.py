"""native.passes.halves: half types are rounded as in eager where a difference in the last bit would be seen.

Before:  %1 = add(%0, 1) : bf16;  %2 = floor(%1)
After:   %1 = add(%0, 1) : bf16;  %2 = round(%1);  %3 = floor(%2)

Kernels compute half types in float, and eager rounds after every op. In bf16 that is no more than a better last bit, until
an op with a jump or a pole reads the value: then all it was computed from is rounded, too, as far as a product of matrices,
which adds up in an order of its own. float16 is always rounded: it overflows long before float does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch

from argand.native.ir.builder import Builder
from argand.native.ir.tensor import ExternCall, Graph, Node, NodeKind, topological
from argand.native.ir.types import DType
from argand.native.passes.rewrite import replaced

_JUMPS: Final = frozenset(
    {
        "floor",
        "ceil",
        "trunc",
        "rint",
        "fmod",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "argmax",
        "argmin",
        "copysign",
    }
)
_POLES: Final = frozenset(
    {
        "log",
        "log2",
        "log10",
        "log1p",
        "tan",
        "asin",
        "acos",
        "acosh",
        "atanh",
        "erfinv",
        "lgamma",
        "digamma",
        "pow",
    }
) | {"atan2"}
# in float they are parts of larger ops, far from their poles
_POLES_OF_HALVES: Final = frozenset({"div", "sqrt"})
_EXACT: Final = frozenset(
    {
        "neg",
        "abs",
        "max",
        "min",
        "select",
        "copy",
        "floor",
        "ceil",
        "trunc",
        "rint",
        "fmod",
        "amax",
        "amin",
        "round",
    }
)
_PRODUCTS: Final = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "convolution", "scaled_dot_product_flash_attention_for_cpu"}
)


def round_halves(graph: Graph) -> Graph:
    """Round half types where eager's rounding is seen."""
    if not any(_is_half(node) for node in graph.nodes):
        return graph
    seen = set(topological(_read_exactly(graph), _made_of))
    exact: dict[Node, bool] = {}
    for node in graph.nodes:
        exact[node] = _is_exact(node, exact) or (
            node.op != "constant" and (node in seen or node.dtype is DType.F16)
        )
    wanted = {node for node in graph.nodes if exact[node] and not _is_exact(node, exact)}

    def change(build: Builder, old: Node, new: Node) -> Node:
        return build.pointwise("round", new) if old in wanted else new

    return replaced(graph, change)


def _is_half(node: Node) -> bool:
    return node.dtype is not None and node.dtype.is_half


def _read_exactly(graph: Graph) -> Iterable[Node]:
    """What is read by an op whose result changes much with a last bit."""
    for node in graph.nodes:
        steep = (
            node.op in _JUMPS
            or node.op in _POLES
            or (node.op in _POLES_OF_HALVES and _is_half(node))
        )
        if steep or _loses_fractions(node) or _chooses(node):
            yield from node.inputs


def _loses_fractions(node: Node) -> bool:
    """A conversion to integers or truth."""
    return node.op == "cast" and node.dtype is not None and not node.dtype.is_float


def _chooses(node: Node) -> bool:
    """Whether a kernel of torch gives indices or truths: sort, unique, bucketize."""
    if not isinstance(node.attribute, ExternCall):
        return False
    types = (spec.torch_dtype for spec in node.attribute.outputs if spec is not None)
    return any(not (dtype.is_floating_point or dtype.is_complex) for dtype in types)


def _made_of(node: Node) -> tuple[Node, ...]:
    """What a value is computed from, unless that is a product of matrices."""
    target = node.attribute.target if isinstance(node.attribute, ExternCall) else None
    name = target._opname if isinstance(target, torch._ops.OpOverload) else ""
    return () if name.removeprefix("_") in _PRODUCTS else node.inputs


def _is_exact(node: Node, exact: dict[Node, bool]) -> bool:
    """Whether a value is one of its type without rounding."""
    if not _is_half(node):
        return True
    if node.op == "constant":
        value = torch.tensor(node.attribute, dtype=node.dtype.row.torch_dtype).item()  # type: ignore[union-attr]
        return bool(value == node.attribute or value != value)
    if node.kind in (NodeKind.LEAF, NodeKind.EXTERN) or node.op in ("cast", "round"):
        return True
    moves = node.kind in (NodeKind.VIEW, NodeKind.GATHER, NodeKind.ASSEMBLED) or node.op in _EXACT
    return moves and all(exact[i] for i in node.inputs)
