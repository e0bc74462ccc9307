"""native.lower.activations: activation and elementwise loss functions, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from argand.native.ir.tensor import Node
from argand.native.ir.types import DType
from argand.native.lower.context import Context, Lowering, NotLowered, Scalar
from argand.native.lower.pointwise import _same


def _gelu(c: Context, x: Node, approximate: str = "none") -> Node:
    return c.op("gelu" if approximate == "none" else "gelu_tanh", x)


def _gelu_backward(c: Context, gradient: Node, x: Node, approximate: str = "none") -> Node:
    if approximate == "none":
        cdf = c.op("mul", 0.5, c.op("add", 1, c.op("erf", c.op("mul", x, math.sqrt(0.5)))))
        density = c.op("exp", c.op("mul", c.op("mul", x, x), -0.5))
        slope = c.op("add", cdf, c.op("mul", x, c.op("mul", density, 1 / math.sqrt(2 * math.pi))))
        return c.op("mul", gradient, slope)
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    square = c.op("mul", x, x)
    inner = c.op("mul", beta, c.op("add", x, c.op("mul", kappa, c.op("mul", square, x))))
    tanh = c.op("tanh", inner)
    left = c.op("mul", 0.5, c.op("add", 1, tanh))
    sech = c.op("sub", 1, c.op("mul", tanh, tanh))
    growth = c.op("mul", beta, c.op("add", 1, c.op("mul", 3 * kappa, square)))
    right = c.op("mul", c.op("mul", c.op("mul", 0.5, x), sech), growth)
    return c.op("mul", gradient, c.op("add", left, right))


def _silu_backward(c: Context, gradient: Node, x: Node) -> Node:
    s = c.op("sigmoid", x)
    slope = c.op("mul", s, c.op("add", 1, c.op("mul", x, c.op("sub", 1, s))))
    return c.op("mul", gradient, slope)


def _leaky_relu(c: Context, x: Node, slope: Scalar = 0.01) -> Node:
    return c.where(c.op("gt", x, 0), x, c.op("mul", x, slope))


def _leaky_relu_backward(c: Context, g: Node, x: Node, slope: Scalar, result: bool) -> Node:
    return c.where(c.op("gt", x, 0), g, c.op("mul", g, slope))


def _elu(c: Context, x: Node, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> Node:
    low = c.op("mul", c.op("expm1", c.op("mul", x, input_scale)), alpha * scale)
    return c.where(c.op("gt", x, 0), c.op("mul", x, scale), low)


def _elu_backward(
    c: Context, g: Node, alpha: Scalar, scale: Scalar, input_scale: Scalar, result: bool, x: Node
) -> Node:
    if result:
        low = c.op("mul", g, c.op("mul", input_scale, c.op("add", x, alpha * scale)))
    else:
        slope = c.op("mul", c.op("exp", c.op("mul", x, input_scale)), alpha * scale * input_scale)
        low = c.op("mul", g, slope)
    return c.where(c.op("le", x, 0), low, c.op("mul", g, scale))


def _hardsigmoid(c: Context, x: Node) -> Node:
    return c.op("div", c.op("min", c.op("max", c.op("add", x, 3), 0), 6), 6)


def _hardsigmoid_backward(c: Context, g: Node, x: Node) -> Node:
    inside = c.op("and", c.op("gt", x, -3), c.op("lt", x, 3))
    return c.where(inside, c.op("mul", g, 1 / 6), 0.0)


def _hardswish(c: Context, x: Node) -> Node:
    return c.op("div", c.op("mul", x, c.op("min", c.op("max", c.op("add", x, 3), 0), 6)), 6)


def _hardswish_backward(c: Context, g: Node, x: Node) -> Node:
    middle = c.op("mul", g, c.op("add", c.op("div", x, 3), 0.5))
    return c.where(c.op("le", x, -3), 0.0, c.where(c.op("lt", x, 3), middle, g))


def _hardtanh_backward(c: Context, g: Node, x: Node, low: Scalar, high: Scalar) -> Node:
    outside = c.op("or", c.op("le", x, low), c.op("ge", x, high))
    return c.where(outside, 0.0, g)


def _softplus(c: Context, x: Node, beta: Scalar = 1, threshold: Scalar = 20) -> Node:
    scaled = c.op("mul", x, beta)
    soft = c.op("div", c.op("log1p", c.op("exp", scaled)), beta)
    return c.where(c.op("gt", scaled, threshold), x, soft)


def _softplus_backward(c: Context, g: Node, x: Node, beta: Scalar, threshold: Scalar) -> Node:
    scaled = c.op("mul", x, beta)
    z = c.op("exp", scaled)
    return c.where(c.op("gt", scaled, threshold), g, c.op("div", c.op("mul", g, z), c.op("add", z, 1)))


def _log_sigmoid(context: Context, x: Node) -> tuple[Node, Any]:
    c, x = context, context.node(x)
    z = c.op("exp", c.op("neg", c.op("abs", x)))
    return c.op("sub", c.op("min", x, 0), c.op("log1p", z)), z


def _log_sigmoid_backward(c: Context, g: Node, x: Node, buffer: Node) -> Node:
    z = c.op("exp", c.op("neg", c.op("abs", x)))
    negative = c.op("lt", x, 0)
    ratio = c.op("div", z, c.op("add", 1, z))
    slope = c.where(negative, c.op("sub", 1, ratio), ratio)
    return c.op("mul", g, slope)


def _mish(c: Context, x: Node) -> Node:
    return c.op("mul", x, c.op("tanh", c.op("log1p", c.op("exp", x))))


def _dropout_backward(c: Context, g: Node, mask: Node, scale: Scalar) -> Node:
    return c.op("mul", c.op("mul", g, c.node(mask)), scale)


def _softshrink(c: Context, x: Node, bound: Scalar = 0.5) -> Node:
    shrunk = c.where(c.op("gt", x, bound), c.op("sub", x, bound), 0.0)
    shrunk = c.where(c.op("lt", x, -bound), c.op("add", x, bound), shrunk)
    return c.where(c.op("ne", x, x), x, shrunk)


def _hardshrink(c: Context, x: Node, bound: Scalar = 0.5) -> Node:
    inside = c.op("and", c.op("ge", x, -bound), c.op("le", x, bound))
    return c.where(inside, 0.0, x)


def _shrink_backward(c: Context, g: Node, x: Node, bound: Scalar) -> Node:
    inside = c.op("and", c.op("ge", x, -bound), c.op("le", x, bound))
    return c.where(inside, 0.0, g)


def _prelu(c: Context, x: Node, weight: Node) -> Node:
    return c.where(c.op("gt", x, 0), x, c.op("mul", weight, x))


def _threshold(c: Context, x: Node, threshold: Scalar, value: Scalar) -> Node:
    return c.where(c.op("le", x, threshold), value, x)


def _reduced(context: Context, loss: Node, reduction: int) -> Node:
    if reduction == 0:
        return loss
    dims = tuple(range(len(loss.shape)))
    total = context.build.reduce("sum", loss, dims)
    if reduction == 2:
        return total
    count = math.prod(loss.shape)
    if count == 0:
        raise NotLowered
    return context.op("div", total, count)


def _mse_loss(context: Context, x: Node, y: Node, reduction: int = 1) -> Node:
    difference = context.op("sub", context.node(x), context.node(y))
    return _reduced(context, context.op("mul", difference, difference), reduction)


def _mse_loss_backward(c: Context, g: Node, x: Node, y: Node, reduction: int) -> Node:
    difference = c.op("sub", x, y)
    count = max(math.prod(difference.shape), 1) if reduction == 1 else 1
    factor = c.ratio(2.0, count)
    return c.op("mul", c.op("mul", factor, difference), g)


def _bce_logits(
    context: Context, x: Node, y: Node, weight: Node | None = None, pos: Node | None = None, reduction: int = 1
) -> Node:
    c = context
    if pos is not None:
        raise NotLowered
    x, y = c.node(x), c.node(y)
    soft = c.op("log1p", c.op("exp", c.op("neg", c.op("abs", x))))
    loss = c.op("add", c.op("sub", c.op("max", x, 0), c.op("mul", x, y)), soft)
    if weight is not None:
        loss = c.op("mul", loss, c.node(weight))
    return _reduced(c, loss, reduction)


def _smooth_l1(context: Context, x: Node, y: Node, reduction: int = 1, beta: float = 1.0) -> Node:
    c = context
    z = c.op("abs", c.op("sub", c.node(x), c.node(y)))
    if beta == 0:
        return _reduced(c, z, reduction)
    quadratic = c.op("div", c.op("mul", c.op("mul", 0.5, z), z), beta)
    loss = c.where(c.op("lt", z, beta), quadratic, c.op("sub", z, 0.5 * beta))
    return _reduced(c, loss, reduction)


def _huber(context: Context, x: Node, y: Node, reduction: int = 1, delta: float = 1.0) -> Node:
    c = context
    z = c.op("abs", c.op("sub", c.node(x), c.node(y)))
    inner = c.op("mul", c.op("mul", 0.5, z), z)
    outer = c.op("mul", delta, c.op("sub", z, 0.5 * delta))
    return _reduced(c, c.where(c.op("le", z, delta), inner, outer), reduction)


def _relu(c: Context, x: Node) -> Node:
    return x if c.dtype is DType.BOOL else c.op("max", x, 0)


TABLE: Final[Mapping[str, Lowering]] = {
    "aten.relu.default": _same(_relu),
    "aten.relu6.default": _same(lambda c, x: c.op("min", c.op("max", x, 0), 6)),
    "aten.threshold.default": _same(_threshold),
    "aten.threshold_backward.default": _same(lambda c, g, x, threshold: c.where(c.op("le", x, threshold), 0, g)),
    "aten.gelu.default": _same(_gelu),
    "aten.gelu_backward.default": _same(_gelu_backward),
    "aten.silu.default": _same(lambda c, x: c.op("silu", x)),
    "aten.silu_backward.default": _same(_silu_backward),
    "aten.sigmoid_backward.default": _same(lambda c, g, y: c.op("mul", c.op("mul", g, c.op("sub", 1, y)), y)),
    "aten.tanh_backward.default": _same(lambda c, g, y: c.op("mul", g, c.op("sub", 1, c.op("mul", y, y)))),
    "aten.leaky_relu.default": _same(_leaky_relu),
    "aten.leaky_relu_backward.default": _same(_leaky_relu_backward),
    "aten.elu.default": _same(_elu),
    "aten.elu_backward.default": _same(_elu_backward),
    "aten.hardsigmoid.default": _same(_hardsigmoid),
    "aten.hardsigmoid_backward.default": _same(_hardsigmoid_backward),
    "aten.hardswish.default": _same(_hardswish),
    "aten.hardswish_backward.default": _same(_hardswish_backward),
    "aten.hardtanh.default": _same(lambda c, x, low=-1, high=1: c.op("min", c.op("max", x, c.node(low)), c.node(high))),
    "aten.hardtanh_backward.default": _same(_hardtanh_backward),
    "aten.softplus.default": _same(_softplus),
    "aten.softplus_backward.default": _same(_softplus_backward),
    "aten.log_sigmoid_forward.default": _log_sigmoid,
    "aten.log_sigmoid_backward.default": _same(_log_sigmoid_backward),
    "aten.mish.default": _same(_mish),
    "aten.softshrink.default": _same(_softshrink),
    "aten.hardshrink.default": _same(_hardshrink),
    "aten.softshrink_backward.default": _same(_shrink_backward),
    "aten.hardshrink_backward.default": _same(_shrink_backward),
    "aten._prelu_kernel.default": _same(_prelu),
    "aten.native_dropout_backward.default": _same(_dropout_backward),
    "aten.mse_loss.default": _mse_loss,
    "aten.mse_loss_backward.default": _same(_mse_loss_backward),
    "aten.binary_cross_entropy_with_logits.default": _bce_logits,
    "aten.smooth_l1_loss.default": _smooth_l1,
    "aten.huber_loss.default": _huber,
}
