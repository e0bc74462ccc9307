"""native.lower.reductions: sums, products and extrema.

What composite ops (softmax, norms, variance) come apart into; the scheduler makes one kernel of it again,
in one pass over a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from argand.native.ir.tensor import Node
from argand.native.ir.types import DType
from argand.native.lower.context import (
    Lowering,
    LoweringContext,
    NotLowered,
    dtype_of,
    in_float,
    wrap_dims,
)
from argand.ops.layout import Dims


def _finish(c: LoweringContext, x: Node, like: Node, dims: tuple[int, ...], keepdim: bool) -> Node:
    return c.build.keep_dims(x, like.shape, dims) if keepdim else x


def _dims_of(x: Node, dim: Dims) -> tuple[int, ...]:
    """The dimensions of an extremum, which nothing at all does not have."""
    dims = wrap_dims(dim, len(x.shape))
    if any(x.shape[d] == 0 for d in dims):
        raise NotLowered
    return dims


def _total(op: str) -> Lowering:
    """Sums and products: elements become the type of the result first, as in eager; half types add up in float."""

    def lower(
        c: LoweringContext, x: Node, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Node:
        dims = wrap_dims(dim, len(x.shape))
        element = dtype_of(c.result.dtype)
        terms = c.build.cast(x, element)
        if element.is_half:
            terms = c.build.cast(terms, DType.F32)
        return _finish(c, c.build.reduce(op, terms, dims), x, dims, keepdim)

    return lower


def _extreme(op: str) -> Lowering:
    def lower(c: LoweringContext, x: Node, dim: Dims = None, keepdim: bool = False) -> Node:
        dims = _dims_of(x, dim)
        return _finish(c, c.build.reduce(op, x, dims), x, dims, keepdim)

    return lower


def _argument(op: str) -> Lowering:
    def lower(c: LoweringContext, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
        if not x.shape or x.dtype is DType.BOOL:
            raise NotLowered
        dims = _dims_of(x, dim)
        if dim is None:
            flat = c.build.reshape(x, (math.prod(x.shape),))
            return c.build.reshape(c.build.reduce(op, flat, (0,)), c.shape)
        return _finish(c, c.build.reduce(op, x, dims), x, dims, keepdim)

    return lower


def _extreme_with_index(op: str) -> Lowering:
    def lower(c: LoweringContext, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
        value = _extreme(f"a{op}")(c, x, dim, keepdim)
        return value, _argument(f"arg{op}")(c, x, dim, keepdim)

    return lower


def _truth(op: str) -> Lowering:
    """any and all: the extreme of booleans; uint8 keeps its type as in eager."""

    def lower(c: LoweringContext, x: Node, dim: Dims = None, keepdim: bool = False) -> Node:
        return c.node(_extreme(op)(c, c.build.cast(x, DType.BOOL), dim, keepdim))

    return lower


_ROWS: Final[Mapping[str, Lowering]] = {
    **dict.fromkeys(("aten.sum.default", "aten.sum.dim_IntList"), _total("sum")),
    **dict.fromkeys(("aten.prod.default", "aten.prod.dim_int"), _total("prod")),
    **dict.fromkeys(("aten.amax.default", "aten.max.default"), _extreme("amax")),
    **dict.fromkeys(("aten.amin.default", "aten.min.default"), _extreme("amin")),
    "aten.max.dim": _extreme_with_index("max"),
    "aten.min.dim": _extreme_with_index("min"),
    "aten.argmax.default": _argument("argmax"),
    "aten.argmin.default": _argument("argmin"),
    **{f"aten.any.{overload}": _truth("amax") for overload in ("default", "dim", "dims")},
    **{f"aten.all.{overload}": _truth("amin") for overload in ("default", "dim", "dims")},
}

TABLE: Final[Mapping[str, Lowering]] = {name: in_float(row) for name, row in _ROWS.items()}
