"""native.passes.split: a long reduction with few results becomes two, so that threads can share it.

Before:  %1 = sum[0](%0) : f32[]                       (%0 : f32[1048576])
After:   %1 = reshape(%0) : f32[64,16384];  %2 = sum[1](%1) : f32[64];  %3 = sum[0](%2) : f32[]

The cut depends on shapes only: results are the same for any number of threads. Shorter chains of
sums are more exact, too. Sums of many rows are cut into pieces of rows: a piece is read from one end to the
other, with its sums in the nearest cache (``schedule.loop_order``).
"""

from __future__ import annotations

import functools
from typing import Final

from argand.native.ir.builder import Builder
from argand.native.ir.tensor import Graph, Node
from argand.native.ir.types import Size, at_least, divides, numel
from argand.native.passes.rewrite import rewrite
from argand.native.target import CPU_LIMITS, Limits

PIECES: Final = (64, 32, 48, 40, 16, 24, 20, 128, 12, 10, 8)
ROW_PIECES: Final = (16, 8, 32, 12, 10, 20, 14)
LONGEST_ROW: Final = 8192  # elements whose sums fit a cache
FEW_ROWS: Final = 32  # per piece: below, writing partial sums costs too much


def split_reductions(graph: Graph, limits: Limits = CPU_LIMITS) -> Graph:
    """Split long sums, products and extremes over all dimensions or the leading ones."""
    return rewrite(graph, functools.partial(_split, limits))


def _split(limits: Limits, build: Builder, node: Node) -> Node | None:
    if node.op not in ("sum", "prod", "amax", "amin"):
        return None
    dims: tuple[int, ...] = node.attribute  # type: ignore[assignment]
    dim = max(dims, key=lambda d: node.inputs[0].shape[d])
    pieces = _pieces(limits, node, dims, node.inputs[0].shape[dim])
    return None if pieces is None else _cut(build, node, dims, dim, pieces)


def _pieces(limits: Limits, node: Node, dims: tuple[int, ...], size: Size) -> int | None:
    """How many pieces to cut the longest reduced dimension into; None: none."""
    source, results = node.inputs[0], numel(node.shape)
    if numel(source.shape) < limits.long_row * (
        max(results, 1) if results <= limits.few_results else 1
    ):
        return None
    if results <= limits.few_results:
        return next((p for p in PIECES if divides(p, size) and size > p), None)
    rows = numel(source.shape[: len(dims)])
    if node.op != "sum" or dims != tuple(range(len(dims))) or not at_least(LONGEST_ROW, results):
        return None
    return next((p for p in ROW_PIECES if divides(p, size) and at_least(rows, FEW_ROWS * p)), None)


def _cut(build: Builder, node: Node, dims: tuple[int, ...], dim: int, pieces: int) -> Node:
    source = node.inputs[0]
    shape = (*(*source.shape[:dim], pieces, source.shape[dim] // pieces), *source.shape[dim + 1 :])
    inner = [d if d < dim else d + 1 for d in dims]
    partial = build.reduce(node.op, build.reshape(source, shape), inner)
    kept = [d for d in range(len(shape)) if d not in inner]
    return build.reduce(node.op, partial, (kept.index(dim),))
