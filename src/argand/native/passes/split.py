"""native.passes.split: a long reduction with few results becomes two, so that threads can share it.

Before:  %1 = sum[0](%0) : f32[]                       (%0 : f32[1048576])
After:   %1 = reshape(%0) : f32[64,16384];  %2 = sum[1](%1) : f32[64];  %3 = sum[0](%2) : f32[]

The cut depends on shapes only: results are the same for any number of threads. Shorter chains of
sums are more exact, too.
"""

from __future__ import annotations

from typing import Final

from argand.native.ir.builder import Builder
from argand.native.ir.tensor import Graph, Node
from argand.native.ir.types import divides, numel
from argand.native.passes.rewrite import rewrite

FEW_RESULTS: Final = 16
LONG: Final = 65536  # elements per result below which one thread does it
PIECES: Final = (64, 32, 48, 40, 16, 24, 20, 128, 12, 10, 8)


def split_reductions(graph: Graph) -> Graph:
    """Split long sums, products and extremes over all dimensions or the leading ones."""
    return rewrite(graph, _split)


def _split(build: Builder, node: Node) -> Node | None:
    if node.op not in ("sum", "prod", "amax", "amin") or numel(node.shape) > FEW_RESULTS:
        return None
    source = node.inputs[0]
    dims: tuple[int, ...] = node.attribute  # type: ignore[assignment]
    if numel(source.shape) < LONG * max(numel(node.shape), 1):
        return None
    dim = max(dims, key=lambda d: source.shape[d])
    size = source.shape[dim]
    pieces = next((p for p in PIECES if divides(p, size) and size > p), None)
    if pieces is None:
        return None
    shape = (*source.shape[:dim], pieces, size // pieces, *source.shape[dim + 1 :])
    cut = build.reshape(source, shape)
    inner = [d if d < dim else d + 1 for d in dims]
    partial = build.reduce(node.op, cut, inner)
    kept = [d for d in range(len(shape)) if d not in inner]
    return build.reduce(node.op, partial, (kept.index(dim),))
