"""native.lower.norms: layer, group, batch and rms normalisation, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from argand.native.ir.tensor import Node
from argand.native.lower.context import Context, Lowering, NotLowered, in_float
from argand.native.lower.reductions import keep, moments
from argand.support.symbols import largest


def _rsqrt(c: Context, x: Node) -> Node:
    return c.op("div", 1.0, c.op("sqrt", x))


def _layer_norm(
    c: Context, x: Node, shape: Sequence[int], weight: Node | None, bias: Node | None, eps: float
) -> tuple[Node, Node, Node]:
    x = c.node(x)
    dims = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    if 0 in x.shape:
        raise NotLowered
    mean, squares = moments(c, x, dims)
    count = math.prod(shape)
    rstd = _rsqrt(c, c.op("add", c.op("div", squares, count), eps))
    result = c.op("mul", c.op("sub", x, mean), rstd)
    if weight is not None:
        result = c.op("mul", result, c.node(weight))
    if bias is not None:
        result = c.op("add", result, c.node(bias))
    return result, mean, rstd


def _layer_norm_backward(
    c: Context,
    g: Node,
    x: Node,
    shape: Sequence[int],
    mean: Node,
    rstd: Node,
    weight: Node | None,
    bias: Node | None,
    mask: Sequence[bool],
) -> tuple[Node | None, Node | None, Node | None]:
    g, x, mean, rstd = c.node(g), c.node(x), c.node(mean), c.node(rstd)
    rank = len(x.shape)
    inner = tuple(range(rank - len(shape), rank))
    outer = tuple(range(rank - len(shape)))
    if 0 in x.shape:
        raise NotLowered
    normal = c.op("mul", c.op("sub", x, mean), rstd)
    scaled = g if weight is None else c.op("mul", g, c.node(weight))
    count = math.prod(shape)
    sums = keep(c, c.build.reduce("sum", scaled, inner), x, inner)
    dots = keep(c, c.build.reduce("sum", c.op("mul", scaled, normal), inner), x, inner)
    centred = c.op("sub", c.op("mul", scaled, count), sums)
    inside = c.op("sub", centred, c.op("mul", normal, dots))
    grad_x = c.op("mul", c.op("div", rstd, count), inside) if mask[0] else None
    grad_w = grad_b = None
    if mask[1] and weight is not None:
        grad_w = c.build.reduce("sum", c.op("mul", g, normal), outer)
    if mask[2] and bias is not None:
        grad_b = c.build.reduce("sum", g, outer)
    return grad_x, grad_w, grad_b


def _group_norm(
    c: Context,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    n: int,
    channels: int,
    area: int,
    groups: int,
    eps: float,
) -> tuple[Node, Node, Node]:
    shape = x.shape
    if 0 in shape:
        raise NotLowered
    per = channels // groups
    x = c.build.reshape(c.node(x), (n, groups, per, area))
    mean, squares = moments(c, x, (2, 3))
    rstd = _rsqrt(c, c.op("add", c.op("div", squares, per * area), eps))
    result = c.op("mul", c.op("sub", x, mean), rstd)
    if weight is not None:
        result = c.op("mul", result, c.build.reshape(c.node(weight), (1, groups, per, 1)))
    if bias is not None:
        result = c.op("add", result, c.build.reshape(c.node(bias), (1, groups, per, 1)))
    flat = (n, groups)
    return c.build.reshape(result, shape), c.build.reshape(mean, flat), c.build.reshape(rstd, flat)


def _channels(c: Context, x: Node, like: Node) -> Node:
    return c.build.reshape(c.node(x), (1, like.shape[1]) + (1,) * (len(like.shape) - 2))


def _affine(c: Context, x: Node, mean: Node, rstd: Node, weight: Node | None, bias: Node | None) -> Node:
    result = c.op("mul", c.op("sub", x, mean), rstd)
    if weight is not None:
        result = c.op("mul", result, _channels(c, weight, x))
    return result if bias is None else c.op("add", result, _channels(c, bias, x))


def _batch_norm_functional(
    c: Context,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node | None,
    running_var: Node | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    x = c.node(x)
    dims = (0, *range(2, len(x.shape)))
    if 0 in x.shape:
        raise NotLowered
    if not training:
        if running_mean is None or running_var is None:
            raise NotLowered
        mean = _channels(c, running_mean, x)
        rstd = _rsqrt(c, c.op("add", _channels(c, running_var, x), eps))
        return _affine(c, x, mean, rstd, weight, bias), None, None, running_mean, running_var
    count = math.prod(x.shape[d] for d in dims)
    mean, squares = moments(c, x, dims)
    variance = c.op("div", squares, count)
    rstd = _rsqrt(c, c.op("add", variance, eps))
    result = _affine(c, x, mean, rstd, weight, bias)
    flat = (x.shape[1],)
    saved_mean, saved_rstd = c.build.reshape(mean, flat), c.build.reshape(rstd, flat)
    if running_mean is None or running_var is None:
        return result, saved_mean, saved_rstd, None, None
    unbiased = c.op("div", c.build.reshape(squares, flat), largest(count - 1, 1))
    new_mean = _blend(c, c.node(running_mean), saved_mean, momentum)
    new_var = _blend(c, c.node(running_var), unbiased, momentum)
    return result, saved_mean, saved_rstd, new_mean, new_var


def _blend(c: Context, old: Node, new: Node, momentum: float) -> Node:
    return c.op("add", c.op("mul", new, momentum), c.op("mul", old, 1 - momentum))


def _batch_norm_inference(
    c: Context, x: Node, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    if training or 0 in x.shape:
        raise NotLowered  # changes its running statistics: torch's kernel does that
    return _batch_norm_functional(c, x, weight, bias, mean, var, False, momentum, eps)[:3]


def _batch_norm_no_training(
    c: Context, x: Node, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    return _batch_norm_inference(c, x, weight, bias, mean, var, False, momentum, eps)


def _batch_norm_backward(
    c: Context,
    g: Node,
    x: Node,
    weight: Node | None,
    running_mean: Node | None,
    running_var: Node | None,
    saved_mean: Node | None,
    saved_rstd: Node | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    g, x = c.node(g), c.node(x)
    if 0 in x.shape:
        raise NotLowered
    dims = (0, *range(2, len(x.shape)))
    count = math.prod(x.shape[d] for d in dims)
    if training and saved_mean is not None and saved_rstd is not None:
        mean, rstd = _channels(c, saved_mean, x), _channels(c, saved_rstd, x)
    elif running_mean is not None and running_var is not None:
        mean = _channels(c, running_mean, x)
        rstd = _rsqrt(c, c.op("add", _channels(c, running_var, x), eps))
    else:
        raise NotLowered
    centred = c.op("sub", x, mean)
    sums = c.build.reduce("sum", g, dims)
    dots = c.build.reduce("sum", c.op("mul", g, centred), dims)
    scale = rstd if weight is None else c.op("mul", rstd, _channels(c, weight, x))
    if training:
        projection = c.op(*("mul", c.op("mul", _channels(c, dots, x), c.ratio(1.0, count))), c.op("mul", rstd, rstd))
        average = c.op("mul", _channels(c, sums, x), c.ratio(1.0, count))
        grad_x = c.op("mul", c.op("sub", c.op("sub", g, c.op("mul", centred, projection)), average), scale)
    else:
        grad_x = c.op("mul", g, scale)
    grad_w = c.op("mul", dots, c.build.reshape(rstd, (x.shape[1],)))
    return grad_x if mask[0] else None, grad_w if mask[1] else None, sums if mask[2] else None


_ROWS: Final[Mapping[str, Lowering]] = {
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_layer_norm_backward.default": _layer_norm_backward,
    "aten.native_group_norm.default": _group_norm,
    "aten._native_batch_norm_legit_functional.default": _batch_norm_functional,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm_no_training,
    "aten.native_batch_norm.default": _batch_norm_inference,
    "aten.native_batch_norm_backward.default": _batch_norm_backward,
}

TABLE: Final[Mapping[str, Lowering]] = {name: in_float(row) for name, row in _ROWS.items()}
