"""native.lower.views: shape ops. A view is an index map and costs nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from argand.native.ir.affine import Affine
from argand.native.ir.tensor import Node
from argand.native.ir.types import DType
from argand.native.lower.context import Lowering, LoweringContext, NotLowered


def _dim(dim: int, rank: int) -> int:
    return dim % max(rank, 1)


def _reshape(c: LoweringContext, x: Node, *_: Any, **__: Any) -> Node:
    return c.build.reshape(x, c.shape)


def _expand(c: LoweringContext, x: Node, *_: Any, **__: Any) -> Node:
    return c.build.expand(x, c.shape)


def _transpose(c: LoweringContext, x: Node, first: int = 0, second: int = 1) -> Node:
    rank = len(x.shape)
    if rank < 2:
        return x
    dims = list(range(rank))
    first, second = _dim(first, rank), _dim(second, rank)
    dims[first], dims[second] = dims[second], dims[first]
    return c.build.permute(x, dims)


def _permute(c: LoweringContext, x: Node, dims: Sequence[int]) -> Node:
    return c.build.permute(x, [_dim(d, len(x.shape)) for d in dims])


def _matrix_transpose(c: LoweringContext, x: Node) -> Node:
    return _transpose(c, x, -2, -1)


def _begin(size: int, start: int | None) -> int:
    begin = 0 if start is None else start
    return min(max(begin + size if begin < 0 else begin, 0), size)


def _slice(
    c: LoweringContext,
    x: Node,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Node:
    dim = _dim(dim, len(x.shape))
    return c.build.slice(x, dim, _begin(x.shape[dim], start), c.shape[dim], step)


def _select(c: LoweringContext, x: Node, dim: int, index: int) -> Node:
    dim = _dim(dim, len(x.shape))
    return c.build.select(x, dim, index + x.shape[dim] if index < 0 else index)


def _split(c: LoweringContext, x: Node, sizes: Any, dim: int = 0) -> tuple[Node, ...]:
    """Consecutive pieces of one dimension, sizes from the fakes."""
    dim, begin, parts = _dim(dim, len(x.shape)), 0, []
    for piece in c.result:
        length = c.express(piece.shape)[dim]
        parts.append(c.build.slice(x, dim, begin, length))
        begin += length
    return tuple(parts)


def _unbind(c: LoweringContext, x: Node, dim: int = 0) -> tuple[Node, ...]:
    dim = _dim(dim, len(x.shape))
    return tuple(c.build.select(x, dim, k) for k in range(x.shape[dim]))


def _diagonal(c: LoweringContext, x: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    rank = len(x.shape)
    first, second = _dim(dim1, rank), _dim(dim2, rank)
    others = iter(range(rank - 2))
    forms = [Affine() if d in (first, second) else Affine.of(next(others)) for d in range(rank)]
    along = Affine.of(rank - 2)
    forms[first] = along.shift(max(-offset, 0))
    forms[second] = along.shift(max(offset, 0))
    return c.build.view(x, c.shape, forms)


def _unfold(c: LoweringContext, x: Node, dim: int, size: int, step: int) -> Node:
    rank = len(x.shape)
    if rank == 0:
        raise NotLowered
    forms = [Affine.of(d) for d in range(rank)]
    dim = _dim(dim, rank)
    forms[dim] = forms[dim].scale(step) + Affine.of(rank)
    return c.build.view(x, c.shape, forms)


def _flip(c: LoweringContext, x: Node, dims: Sequence[int]) -> Node:
    if not x.shape or 0 in x.shape:  # no last element to begin with
        return x
    for dim in {_dim(d, len(x.shape)) for d in dims}:
        x = c.build.slice(x, dim, x.shape[dim] - 1, x.shape[dim], -1)
    return x


def _concat(c: LoweringContext, tensors: Sequence[Node], dim: int = 0) -> Node:
    parts = [c.node(t) for t in tensors if t.shape != (0,) or c.shape == (0,)]
    dim = _dim(dim, len(c.shape))
    if len(parts) == 1:
        return parts[0]
    return c.build.node("concat", tuple(parts), c.shape, c.dtype, (dim,))


def update(c: LoweringContext, base: Node, piece: Node, forms: Sequence[Affine]) -> Node:
    """``base`` with ``piece`` written at affine forms of the piece's coordinates."""
    if 0 in piece.shape:
        return base
    return c.build.node("update", (base, piece), base.shape, base.dtype, tuple(forms))


def _pad(c: LoweringContext, x: Node, pad: Sequence[int], value: float | None = 0) -> Node:
    rank = len(x.shape)
    forms = [Affine.of(d) for d in range(rank)]
    for k in range(len(pad) // 2):
        dim, low, high = rank - 1 - k, pad[2 * k], pad[2 * k + 1]
        start, length = max(-low, 0), x.shape[dim] + min(low, 0) + min(high, 0)
        if length < 0:
            raise NotLowered
        x = c.build.slice(x, dim, start, length)
        forms[dim] = forms[dim].shift(max(low, 0))
    base = c.build.constant(value or 0, c.dtype, c.shape)
    return x if x.shape == c.shape else update(c, base, x, forms)


def _slice_forms(x: Node, dim: int, start: int | None, step: int) -> list[Affine]:
    forms = [Affine.of(d) for d in range(len(x.shape))]
    forms[dim] = forms[dim].scale(step).shift(_begin(x.shape[dim], start))
    return forms


def _refuse_gaps(c: LoweringContext) -> None:
    """A result with holes in its memory, as eager copies it from a view, is torch's to make."""
    if c.result.stride() != torch.empty_like(c.result).stride():
        raise NotLowered


def _slice_scatter(
    c: LoweringContext,
    x: Node,
    piece: Node,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Node:
    _refuse_gaps(c)
    return update(c, x, c.node(piece), _slice_forms(x, _dim(dim, len(c.shape)), start, step))


def _select_forms(shape: Sequence[int], dim: int, index: int) -> list[Affine]:
    forms = [Affine.of(d if d < dim else d - 1) for d in range(len(shape))]
    forms[dim] = Affine(index + shape[dim] if index < 0 else index)
    return forms


def _select_scatter(c: LoweringContext, x: Node, piece: Node, dim: int, index: int) -> Node:
    _refuse_gaps(c)
    return update(c, x, c.node(piece), _select_forms(c.shape, _dim(dim, len(c.shape)), index))


def iota(c: LoweringContext, shape: Sequence[int], dim: int) -> Node:
    """The coordinate along one dimension, as i64."""
    return c.build.node("iota", (), tuple(shape), DType.I64, (dim,))


_VIEWS: Final[Mapping[str, Lowering]] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "_reshape_alias"), _reshape),
    **dict.fromkeys(("flatten", "squeeze", "unsqueeze"), _reshape),
    **dict.fromkeys(("transpose", "t"), _transpose),
    **dict.fromkeys(("split", "split_with_sizes"), _split),
    "expand": _expand,
    "permute": _permute,
    "slice": _slice,
    "select": _select,
    "unbind": _unbind,
    "diagonal": _diagonal,
    "unfold": _unfold,
}
_OVERLOADS: Final = ("default", "int", "dim", "dims", "Tensor", "using_ints")

TABLE: Final[Mapping[str, Lowering]] = {
    f"aten.{name}.{overload}": row for name, row in _VIEWS.items() for overload in _OVERLOADS
} | {
    "aten.mT.default": _matrix_transpose,
    "aten.expand_as.default": _expand,
    "aten.view_as.default": _reshape,
    "aten.flip.default": _flip,
    "aten.cat.default": _concat,
    "aten.constant_pad_nd.default": _pad,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.select_scatter.default": _select_scatter,
}
