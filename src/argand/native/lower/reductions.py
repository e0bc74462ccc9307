"""native.lower.reductions: sums, extrema, statistics, softmax and normalisations.

Composite ops become reductions and pointwise ops over the same rows; the scheduler makes one
kernel of them again, in one pass over a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from argand.native.ir.builder import reduced
from argand.native.ir.tensor import Node
from argand.native.ir.types import DType
from argand.native.lower.context import Context, Lowering, NotLowered, in_float, wrap_dims
from argand.support.symbols import SizeInt, largest

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


def _mean(c: Context, x: Node, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Node:
    dims = wrap_dims(dim, len(x.shape))
    total = c.build.reduce("sum", c.node(x), dims)
    count = _count(x, dims)
    if count == 0:
        raise NotLowered
    return _finish(c, c.op("div", total, count), x, dims, keepdim)


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


def moments(c: Context, x: Node, dims: tuple[int, ...]) -> tuple[Node, Node]:
    """Mean and centred sum of squares, both with the reduced dimensions kept as 1."""
    mean = keep(c, c.op("div", c.build.reduce("sum", x, dims), _count(x, dims)), x, dims)
    centred = c.op("sub", x, mean)
    squares = keep(c, c.build.reduce("sum", c.op("mul", centred, centred), dims), x, dims)
    return mean, squares


def _variance(c: Context, x: Node, dims: tuple[int, ...], correction: float) -> tuple[Node, Node]:
    count = _count(x, dims)
    if count == 0:
        raise NotLowered
    mean, squares = moments(c, x, dims)
    if isinstance(count, SizeInt):
        if not float(correction).is_integer():
            raise NotLowered
        scale: float = largest(count - int(correction), 0)
    else:
        scale = max(0.0, count - correction)
    return c.op("div", squares, scale), mean


def _drop(c: Context, x: Node, dims: tuple[int, ...], keepdim: bool) -> Node:
    return x if keepdim else c.build.reshape(x, reduced(x.shape, dims))


def _spread(root: bool, with_mean: bool) -> Lowering:
    def lower(c: Context, x: Node, dim: Dims = None, *, correction: float | None = 1, keepdim: bool = False) -> Any:
        dims = wrap_dims(dim, len(x.shape))
        variance, mean = _variance(c, c.node(x), dims, 1 if correction is None else correction)
        first = c.op("sqrt", variance) if root else variance
        first = _drop(c, first, dims, keepdim)
        return (first, _drop(c, mean, dims, keepdim)) if with_mean else first

    return lower


def _legacy_spread(root: bool) -> Lowering:
    """var.dim and std.dim: (x, dim, unbiased, keepdim)."""

    def lower(c: Context, x: Node, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        return _spread(root, False)(c, x, dim, correction=1 if unbiased else 0, keepdim=keepdim)

    return lower


def _logsumexp(c: Context, x: Node, dim: Dims, keepdim: bool = False) -> Node:
    x = c.node(x)
    dims = wrap_dims(dim, len(x.shape))
    if _count(x, dims) == 0:
        raise NotLowered
    high = keep(c, c.build.reduce("amax", x, dims), x, dims)
    high = c.where(c.op("eq", c.op("abs", high), math.inf), 0.0, high)
    total = c.build.reduce("sum", c.op("exp", c.op("sub", x, high)), dims)
    result = c.op("add", c.op("log", keep(c, total, x, dims)), high)
    return _drop(c, result, dims, keepdim)


def _vector_norm(
    c: Context, x: Node, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Node:
    x = c.node(x)
    dims = wrap_dims(dim, len(x.shape))
    if _count(x, dims) == 0:
        raise NotLowered
    size = c.op("abs", x)
    build = c.build
    if ord == 2:
        result = c.op("sqrt", build.reduce("sum", c.op("mul", x, x), dims))
    elif ord == 1:
        result = build.reduce("sum", size, dims)
    elif ord == math.inf:
        result = build.reduce("amax", size, dims)
    elif ord == -math.inf:
        result = build.reduce("amin", size, dims)
    elif ord == 0:
        result = build.reduce("sum", build.cast(c.op("ne", x, 0), c.dtype), dims)
    else:
        total = build.reduce("sum", c.op("pow", size, float(ord)), dims)
        result = c.op("pow", total, 1.0 / ord)
    return _finish(c, result, x, dims, keepdim)


def softmax(c: Context, x: Node, dim: int) -> tuple[Node, Node, Node]:
    """(x - max, exp of it, sum of that along dim)."""
    dims = wrap_dims(dim, len(x.shape))
    if _count(x, dims) == 0:
        raise NotLowered
    centred = c.op("sub", x, keep(c, c.build.reduce("amax", x, dims), x, dims))
    power = c.op("exp", centred)
    return centred, power, keep(c, c.build.reduce("sum", power, dims), x, dims)


def _softmax(c: Context, x: Node, dim: int, half_to_float: bool = False) -> Node:
    _, power, total = softmax(c, c.node(x), dim)
    return c.op("div", power, total)


def _log_softmax(c: Context, x: Node, dim: int, half_to_float: bool = False) -> Node:
    centred, _, total = softmax(c, c.node(x), dim)
    return c.op("sub", centred, c.op("log", total))


def _softmax_backward(c: Context, g: Node, y: Node, dim: int, dtype: Any) -> Node:
    g, y = c.node(g), c.node(y)
    dims = wrap_dims(dim, len(y.shape))
    product = c.op("mul", g, y)
    total = keep(c, c.build.reduce("sum", product, dims), y, dims)
    return c.op("sub", product, c.op("mul", y, total))


def _log_softmax_backward(c: Context, g: Node, y: Node, dim: int, dtype: Any) -> Node:
    g, y = c.node(g), c.node(y)
    dims = wrap_dims(dim, len(y.shape))
    total = keep(c, c.build.reduce("sum", g, dims), y, dims)
    return c.op("sub", g, c.op("mul", c.op("exp", y), total))


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
    "aten.mean.default": _mean,
    "aten.mean.dim": _mean,
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
    "aten.var.correction": _spread(False, False),
    "aten.std.correction": _spread(True, False),
    "aten.var_mean.correction": _spread(False, True),
    "aten.std_mean.correction": _spread(True, True),
    "aten.var.dim": _legacy_spread(False),
    "aten.std.dim": _legacy_spread(True),
    "aten.var.default": _legacy_spread(False),
    "aten.std.default": _legacy_spread(True),
    "aten.logsumexp.default": _logsumexp,
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten._softmax.default": _softmax,
    "aten._log_softmax.default": _log_softmax,
    "aten._softmax_backward_data.default": _softmax_backward,
    "aten._log_softmax_backward_data.default": _log_softmax_backward,
}

TABLE: Final[Mapping[str, Lowering]] = {name: in_float(row) for name, row in _ROWS.items()}
