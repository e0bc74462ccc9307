"""native.lower.reductions: sums, products and extrema.

What composite ops (softmax, norms, variance) come apart into; the scheduler makes one kernel of it again,
in one pass over a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from argand.native.ir.tensor import Node
from argand.native.ir.types import DType
from argand.native.lower.context import Context, Lowering, NotLowered, in_float, wrap_dims

Dims = int | Sequence[int] | None


def keep(c: Context, x: Node, like: Node, dims: Sequence[int]) -> Node:
    """A reduction of ``like`` over ``dims``, with these dimensions back as size 1."""
    return c.build.keep_dims(x, like.shape, dims)


def _finish(c: Context, x: Node, like: Node, dims: tuple[int, ...], keepdim: bool) -> Node:
    return keep(c, x, like, dims) if keepdim else x


def _count(x: Node, dims: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


def _sum(c: Context, x: Node, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Node:
    dims = wrap_dims(dim, len(x.shape))
    return _finish(c, c.build.reduce("sum", c.node(x), dims), x, dims, keepdim)


def _extreme(op: str) -> Lowering:
    def lower(c: Context, x: Node, dim: Dims = None, keepdim: bool = False) -> Node:
        dims = wrap_dims(dim, len(x.shape))
        if _count(x, dims) == 0:
            raise NotLowered
        return _finish(c, c.build.reduce(op, x, dims), x, dims, keepdim)

    return lower


def _argument(op: str) -> Lowering:
    def lower(c: Context, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
        if not x.shape or x.dtype is DType.BOOL:
            raise NotLowered
        if dim is None:
            flat = c.build.reshape(x, (math.prod(x.shape),))
            if 0 in x.shape:
                raise NotLowered
            return c.build.reshape(c.build.reduce(op, flat, (0,)), c.shape)
        dims = wrap_dims(dim, len(x.shape))
        if _count(x, dims) == 0:
            raise NotLowered
        return _finish(c, c.build.reduce(op, x, dims), x, dims, keepdim)

    return lower


def _extreme_with_index(op: str) -> Lowering:
    def lower(c: Context, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
        if not x.shape or x.dtype is DType.BOOL:
            raise NotLowered
        dims = wrap_dims(dim, len(x.shape))
        if _count(x, dims) == 0:
            raise NotLowered
        value = c.build.reduce(f"a{op}", x, dims)
        index = c.build.reduce(f"arg{op}", x, dims)
        return _finish(c, value, x, dims, keepdim), _finish(c, index, x, dims, keepdim)

    return lower


def _truth(op: str) -> Lowering:
    """any and all: the extreme of booleans; uint8 keeps its type as in eager."""

    def lower(c: Context, x: Node, dim: Dims = None, keepdim: bool = False) -> Node:
        dims = wrap_dims(dim, len(x.shape))
        if _count(x, dims) == 0:
            raise NotLowered
        result = c.build.reduce(op, c.build.cast(x, DType.BOOL), dims)
        return c.node(_finish(c, result, x, dims, keepdim))

    return lower


def _amax_like(op: str) -> Callable[..., Node]:
    def lower(c: Context, x: Node) -> Node:
        return _extreme(op)(c, x)

    return lower


def _product(c: Context, x: Node, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Node:
    dims = wrap_dims(dim, len(x.shape))
    return _finish(c, c.build.reduce("prod", c.node(x), dims), x, dims, keepdim)


_ROWS: Final[Mapping[str, Lowering]] = {
    "aten.sum.default": _sum,
    "aten.sum.dim_IntList": _sum,
    "aten.prod.default": _product,
    "aten.prod.dim_int": _product,
    "aten.amax.default": _extreme("amax"),
    "aten.amin.default": _extreme("amin"),
    "aten.max.default": _amax_like("amax"),
    "aten.min.default": _amax_like("amin"),
    "aten.max.dim": _extreme_with_index("max"),
    "aten.min.dim": _extreme_with_index("min"),
    "aten.argmax.default": _argument("argmax"),
    "aten.argmin.default": _argument("argmin"),
    "aten.any.default": _truth("amax"),
    "aten.any.dim": _truth("amax"),
    "aten.any.dims": _truth("amax"),
    "aten.all.default": _truth("amin"),
    "aten.all.dim": _truth("amin"),
    "aten.all.dims": _truth("amin"),
}

TABLE: Final[Mapping[str, Lowering]] = {name: in_float(row) for name, row in _ROWS.items()}
