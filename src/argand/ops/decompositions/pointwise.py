"""ops.decompositions.pointwise: activations, their gradients and composite arithmetic.

In: the arguments of the aten op.  Out: its result, from arithmetic, comparisons, exp and the like.
"""

# ruff: noqa: D103 - each function is the aten op of its name, documented by torch

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.decompositions.precision import element, one_rounding
from argand.ops.layout import promote

_SQRT_HALF: Final = math.sqrt(0.5)
_TANH_SCALE: Final = math.sqrt(2 / math.pi)  # of the tanh approximation of gelu
_CUBIC: Final = 0.044715


@one_rounding
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    dtype = promote(self, tensor1, tensor2)
    if not (dtype.is_floating_point or dtype.is_complex):
        value = int(value)  # eager makes it an element of the type of the result
    product = tensor1 * tensor2 if value == 1 else value * tensor1 * tensor2
    return self + product


@one_rounding
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    return self + (tensor1 if value == 1 else value * tensor1) / tensor2


@one_rounding
def _lerp(self: Tensor, end: Tensor, weight: Any) -> Tensor:
    difference = end - self
    if not isinstance(weight, Tensor):
        near = abs(weight) < 0.5
        return self + weight * difference if near else end - difference * (1 - weight)
    near = weight.abs() < 0.5
    base, part = torch.where(near, self, end), torch.where(near, weight, weight - 1)
    if base.dtype is not torch.float32:
        return base + part * difference
    # eager's kernel rounds product and sum once: what the two ends cancel is no error of its own then
    return (base.double() + part.double() * difference.double()).float()


def _rsub(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    # Not `other - self`: with a number on the left that is rsub again. In the type of the result negation is exact.
    dtype = promote(self, other)
    self = self.to(dtype)
    other = other if isinstance(other, Tensor) else element(other, dtype)
    return (torch.neg(self if alpha == 1 else self * alpha) + other).to(dtype)


@one_rounding
def silu(self: Tensor) -> Tensor:
    return self * torch.sigmoid(self)


@one_rounding
def silu_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    gate = torch.sigmoid(self)
    return grad_output * gate * (1 + self * (1 - gate))


@one_rounding
def mish(self: Tensor) -> Tensor:
    return self * torch.tanh(softplus(self))


@one_rounding
def mish_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    squashed = torch.tanh(softplus(self))
    gate = torch.sigmoid(self)
    return grad_output * (squashed + self * gate * (1 - squashed * squashed))


@one_rounding
def gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        inner = _TANH_SCALE * (self + _CUBIC * self * self * self)
        return 0.5 * self * (1 + torch.tanh(inner))
    return self * 0.5 * (1 + torch.erf(self * _SQRT_HALF))


@one_rounding
def gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        squared = self * self
        squashed = torch.tanh(_TANH_SCALE * (self + _CUBIC * squared * self))
        slope = (1 - squashed * squashed) * _TANH_SCALE * (1 + 3 * _CUBIC * squared)
        return grad_output * (0.5 * (1 + squashed) + 0.5 * self * slope)
    distribution = 0.5 * (1 + torch.erf(self * _SQRT_HALF))
    density = torch.exp(self * self * -0.5) * (1 / math.sqrt(2 * math.pi))
    return grad_output * (distribution + self * density)


@one_rounding
def hardsigmoid(self: Tensor) -> Tensor:
    return (self + 3).clamp(0, 6) / 6


@one_rounding
def hardsigmoid_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    inside = (self > -3) & (self < 3)
    return torch.where(inside, grad_output * (1 / 6), 0.0)


@one_rounding
def hardswish(self: Tensor) -> Tensor:
    return self * (self + 3).clamp(0, 6) / 6


@one_rounding
def hardswish_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    sloped = grad_output * (self / 3 + 0.5)
    return torch.where(self <= -3, 0.0, torch.where(self < 3, sloped, grad_output))


def hardtanh(self: Tensor, min_val: Any = -1, max_val: Any = 1) -> Tensor:
    if not self.is_floating_point():
        min_val, max_val = int(min_val), int(max_val)
    return self.clamp(min_val, max_val)


def hardtanh_backward(grad_output: Tensor, self: Tensor, min_val: Any, max_val: Any) -> Tensor:
    return torch.where((self <= min_val) | (self >= max_val), 0.0, grad_output)


@one_rounding
def elu(self: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    below = torch.expm1(self * input_scale) * (alpha * scale)
    return torch.where(self < 0, below, self * scale)


@one_rounding
def elu_backward(
    grad_output: Tensor,
    alpha: Any,
    scale: Any,
    input_scale: Any,
    is_result: bool,
    self_or_result: Tensor,
) -> Tensor:
    below = (
        grad_output * input_scale * (self_or_result + alpha * scale)
        if is_result
        else grad_output * (input_scale * alpha * scale) * torch.exp(self_or_result * input_scale)
    )
    return torch.where(self_or_result <= 0, below, grad_output * scale)


@one_rounding
def leaky_relu(self: Tensor, negative_slope: Any = 0.01) -> Tensor:
    return torch.where(self > 0, self, self * negative_slope)


@one_rounding
def leaky_relu_backward(
    grad_output: Tensor, self: Tensor, negative_slope: Any, self_is_result: bool
) -> Tensor:
    return torch.where(self > 0, grad_output, grad_output * negative_slope)


def _prelu_backward(grad_output: Tensor, self: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    positive = self > 0
    return (
        torch.where(positive, grad_output, weight * grad_output),
        torch.where(positive, 0.0, self * grad_output),
    )


@one_rounding
def softplus(self: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    scaled = self * beta
    return torch.where(scaled > threshold, self, torch.log1p(torch.exp(scaled)) / beta)


@one_rounding
def softplus_backward(grad_output: Tensor, self: Tensor, beta: Any, threshold: Any) -> Tensor:
    scaled = self * beta
    return torch.where(scaled > threshold, grad_output, grad_output * torch.sigmoid(scaled))


@one_rounding
def softshrink(self: Tensor, lambd: Any = 0.5) -> Tensor:
    shrunk = torch.where(self < -lambd, self + lambd, self * 0)  # self * 0 lets nan through
    return torch.where(self > lambd, self - lambd, shrunk)


def hardshrink(self: Tensor, lambd: Any = 0.5) -> Tensor:
    return torch.where((self >= -lambd) & (self <= lambd), 0.0, self)


def _shrink_backward(grad_output: Tensor, self: Tensor, lambd: Any) -> Tensor:
    return torch.where((self >= -lambd) & (self <= lambd), 0.0, grad_output)


def threshold(self: Tensor, threshold: Any, value: Any) -> Tensor:
    return torch.where(self <= threshold, value, self).to(self.dtype)


def threshold_backward(grad_output: Tensor, self: Tensor, threshold: Any) -> Tensor:
    return torch.where(self <= threshold, 0, grad_output)


@one_rounding
def tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    return grad_output * (1 - output * output)


@one_rounding
def sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    return grad_output * (1 - output) * output


def logit(self: Tensor, eps: float | None = None) -> Tensor:
    if not self.is_floating_point():
        self = self.to(torch.get_default_dtype())
    if eps is None:
        return _log_odds(self)
    low = element(eps, self.dtype)
    return _log_odds(self.clamp(low, element(1 - low, self.dtype)))


@one_rounding
def _log_odds(share: Tensor) -> Tensor:
    return torch.log(share / (1 - share))


@one_rounding
def logit_backward(grad_output: Tensor, self: Tensor, eps: float | None = None) -> Tensor:
    low, high = (0.0, 1.0) if eps is None else (eps, 1.0 - eps)
    outside = (self < low) | (self > high)
    slope = grad_output / (self * (1 - self))
    return torch.where(outside, float("nan") if eps is None else 0.0, slope)


@one_rounding
def log_sigmoid_forward(self: Tensor) -> tuple[Tensor, Tensor]:
    small = torch.exp(-self.abs())
    return self.clamp_max(0) - torch.log1p(small), small


@one_rounding
def log_sigmoid_backward(grad_output: Tensor, self: Tensor, buffer: Tensor) -> Tensor:
    small = torch.exp(-self.abs())
    slope = torch.where(self < 0, 1.0, small)
    return grad_output * (slope / (1 + small))


@one_rounding
def glu(self: Tensor, dim: int = -1) -> Tensor:
    value, gate = self.chunk(2, dim)
    return value * torch.sigmoid(gate)


@one_rounding
def glu_backward(grad_output: Tensor, self: Tensor, dim: int) -> Tensor:
    value, gate = self.chunk(2, dim)
    open_share = torch.sigmoid(gate)
    for_value = open_share * grad_output
    return torch.cat([for_value, for_value * (1 - open_share) * value], dim)


def clamp(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    self = self.to(promote(self, min, max))  # -1 is no number of the type of a byte
    result = self if min is None else torch.clamp_min(self, min)
    return result if max is None else torch.clamp_max(result, max)


def _clamp_tensor(self: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    result = self if min is None else torch.maximum(self, min)
    return result if max is None else torch.minimum(result, max)


def _masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    # Where promotes; filling keeps the dtype of self.
    value = value.to(self.dtype) if isinstance(value, Tensor) else value
    return torch.where(mask, value, self).to(self.dtype)


def _rows_and_columns(self: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = self.shape[-2:]
    return torch.arange(rows).unsqueeze(1), torch.arange(columns)


def tril(self: Tensor, diagonal: int = 0) -> Tensor:
    row, column = _rows_and_columns(self)
    return torch.where(column - row <= diagonal, self, 0).to(self.dtype)


def triu(self: Tensor, diagonal: int = 0) -> Tensor:
    row, column = _rows_and_columns(self)
    return torch.where(column - row >= diagonal, self, 0).to(self.dtype)


def frac(self: Tensor) -> Tensor:
    return self - torch.trunc(self)


def _scaled(self: Tensor, scale: float) -> Tensor:
    result = self * scale
    # the kernel keeps those of single and of no elements
    same = result.stride() == torch.empty_like(self).stride()
    return result if same else NotImplemented


def deg2rad(self: Tensor) -> Tensor:
    return _scaled(self, math.pi / 180)


def rad2deg(self: Tensor) -> Tensor:
    return _scaled(self, 180 / math.pi)


@one_rounding
def sinc(self: Tensor) -> Tensor:
    angle = self * math.pi
    return torch.where(self == 0, 1.0, torch.sin(angle) / angle)


@one_rounding
def logaddexp(self: Tensor, other: Tensor) -> Tensor:
    larger = torch.maximum(self, other)
    both_same_infinity = torch.isinf(self) & (self == other)
    spread = torch.log1p(torch.exp(-(self - other).abs()))
    return torch.where(both_same_infinity, self, larger + spread)


def _xlogy(self: Any, other: Any) -> Tensor:
    dtype = promote(self, other)
    if dtype.is_complex:
        return NotImplemented
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    # as eager: in one type from the start, and a half logarithm is rounded before the product
    self, other = (
        value.to(dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=dtype)
        for value in (self, other)
    )
    product = self * torch.log(other)
    return torch.where(torch.isnan(other), other, torch.where(self == 0, 0.0, product))


def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    if self.is_complex():
        return torch.complex(*[nan_to_num(x, nan, posinf, neginf) for x in (self.real, self.imag)])
    if not self.is_floating_point():
        return self.clone()
    limits = torch.finfo(self.dtype)
    result = torch.where(self != self, 0.0 if nan is None else nan, self)
    result = torch.where(self == float("inf"), limits.max if posinf is None else posinf, result)
    return torch.where(self == float("-inf"), limits.min if neginf is None else neginf, result)


def native_dropout(self: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return self.clone(), torch.ones_like(self, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(self), torch.zeros_like(self, dtype=torch.bool)
    mask = torch.ops.aten.bernoulli.p(torch.empty_like(self, dtype=torch.bool), 1 - p)
    return native_dropout_backward(self, mask, 1 / (1 - p)), mask


@one_rounding
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    return grad_output * mask * scale


TABLE: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys(("lerp.Scalar", "lerp.Tensor"), _lerp),
    **dict.fromkeys(("rsub.Tensor", "rsub.Scalar"), _rsub),
    "_prelu_kernel": lambda self, weight: torch.where(self > 0, self, weight * self),
    "_prelu_kernel_backward": _prelu_backward,
    **dict.fromkeys(("softshrink_backward", "hardshrink_backward"), _shrink_backward),
    **dict.fromkeys(("clamp.Tensor", "clamp_min.Tensor"), _clamp_tensor),
    "clamp_max.Tensor": lambda self, max: torch.minimum(self, max),
    **dict.fromkeys(("masked_fill.Scalar", "masked_fill.Tensor"), _masked_fill),
    **dict.fromkeys(("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other"), _xlogy),
}
