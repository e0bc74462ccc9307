"""native.lower.activations: the activation functions that are kept whole, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from argand.native.ir.tensor import Node
from argand.native.ir.types import DType
from argand.native.lower.context import Lowering, LoweringContext, Scalar, in_float
from argand.native.lower.pointwise import _same


def _gelu(c: LoweringContext, x: Node, approximate: str = "none") -> Node:
    return c.op("gelu" if approximate == "none" else "gelu_tanh", x)


def _dropout_backward(c: LoweringContext, gradient: Node, mask: Node, scale: Scalar) -> Node:
    return c.op("mul", c.op("mul", gradient, mask), scale)


def _relu(c: LoweringContext, x: Node) -> Node:
    return x if c.dtype is DType.BOOL else c.op("max", x, 0)


def _gelu_backward(c: LoweringContext, gradient: Node, x: Node, approximate: str = "none") -> Node:
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


def _silu_backward(c: LoweringContext, gradient: Node, x: Node) -> Node:
    s = c.op("sigmoid", x)
    slope = c.op("mul", s, c.op("add", 1, c.op("mul", x, c.op("sub", 1, s))))
    return c.op("mul", gradient, slope)


def _softplus(c: LoweringContext, x: Node, beta: Scalar = 1, threshold: Scalar = 20) -> Node:
    scaled = c.op("mul", x, beta)
    soft = c.op("div", c.op("log1p", c.op("exp", scaled)), beta)
    return c.where(c.op("gt", scaled, threshold), x, soft)


TABLE: Final[Mapping[str, Lowering]] = {
    "aten.relu.default": _same(_relu),
    "aten.relu6.default": _same(lambda c, x: c.op("min", c.op("max", x, 0), 6)),
    "aten.gelu.default": _same(_gelu),
    "aten.gelu_backward.default": in_float(_same(_gelu_backward)),
    "aten.silu.default": _same(lambda c, x: c.op("silu", x)),
    "aten.silu_backward.default": in_float(_same(_silu_backward)),
    "aten.softplus.default": in_float(_same(_softplus)),
    "aten.native_dropout_backward.default": in_float(_same(_dropout_backward)),
}
