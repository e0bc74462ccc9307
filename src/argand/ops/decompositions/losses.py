"""ops.decompositions.losses: losses and their gradients from arithmetic and reductions."""

# ruff: noqa: D103 - each function is the aten op of its name, documented by torch

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.decompositions.checks import require
from argand.ops.decompositions.precision import one_rounding, widen

_NONE, _MEAN, _SUM = 0, 1, 2  # the numbers of torch's Reduction


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    if reduction == _NONE:
        return loss
    if reduction != _MEAN:
        return loss.sum()
    return (widen(loss).sum() / loss.numel()).to(loss.dtype)  # the sum of halves may be no half


def _share(grad_output: Tensor, count: int, reduction: int) -> Tensor:
    """The gradient that reaches one element of the loss."""
    return grad_output / count if reduction == _MEAN else grad_output


def _of_one_type(function: Callable[..., Any]) -> Callable[..., Any]:
    """Leave to torch's kernel what it lays out and rounds by one of its operands, or refuses."""
    names = inspect.signature(function).bind

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        operands = [
            value for value in args if isinstance(value, Tensor) and value.is_floating_point()
        ]
        if len({value.dtype for value in operands}) > 1:
            return NotImplemented
        if names(*args, **kwargs).arguments.get("reduction", _MEAN) == _NONE:
            steps = {value.stride() for value in operands if value.dim() == operands[0].dim()}
            return function(*args, **kwargs) if len(steps) == 1 else NotImplemented
        return function(*args, **kwargs)

    return wrapped


def mse_loss(self: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    if self.is_complex() or target.is_complex():
        return NotImplemented
    difference = self - target
    return _reduced(difference * difference, reduction)


@one_rounding
def mse_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    return _share(grad_output, self.numel(), reduction) * 2 * (self - target)


@one_rounding
def smooth_l1_loss(
    self: Tensor, target: Tensor, reduction: int = _MEAN, beta: float = 1.0
) -> Tensor:
    distance = (self - target).abs()
    if beta == 0:
        return _reduced(distance, reduction)
    near = 0.5 * distance * distance / beta
    return _reduced(torch.where(distance < beta, near, distance - 0.5 * beta), reduction)


@one_rounding
def smooth_l1_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    difference = self - target
    share = _share(grad_output, self.numel(), reduction)
    if beta == 0:
        return share * torch.sign(difference)
    slope = torch.where(difference.abs() < beta, difference / beta, torch.sign(difference))
    return share * slope


@_of_one_type
@one_rounding
def huber_loss(self: Tensor, target: Tensor, reduction: int = _MEAN, delta: float = 1.0) -> Tensor:
    distance = (self - target).abs()
    far = delta * (distance - 0.5 * delta)
    return _reduced(torch.where(distance < delta, 0.5 * distance * distance, far), reduction)


@_of_one_type
@one_rounding
def huber_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, delta: float
) -> Tensor:
    slope = (self - target).clamp(-delta, delta)
    return _share(grad_output, self.numel(), reduction) * slope


@_of_one_type
def soft_margin_loss(self: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    # four ops in eager, so float16 overflows in between
    return _reduced(torch.log1p(torch.exp(-target * self)), reduction)


@one_rounding
def soft_margin_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: int
) -> Tensor:
    slope = target * (torch.sigmoid(target * self) - 1)
    return _share(grad_output, self.numel(), reduction) * slope


@one_rounding
def binary_cross_entropy(
    self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    for name, values in (("input", self), ("target", target)):
        require(
            ((values >= 0) & (values <= 1)).all(),
            f"all elements of {name} should be between 0 and 1",
        )
    # Eager cuts the logarithms at -100 so that a confident mistake stays finite.
    hit = torch.log(self).clamp_min(-100)
    miss = torch.log1p(-self).clamp_min(-100)
    loss = (target - 1) * miss - target * hit
    return _reduced(loss if weight is None else loss * weight, reduction)


@one_rounding
def binary_cross_entropy_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    slope = (self - target) / ((1 - self) * self).clamp_min(1e-12)
    slope = grad_output * (slope if weight is None else slope * weight)
    return slope / self.numel() if reduction == _MEAN else slope


@_of_one_type
@one_rounding
def binary_cross_entropy_with_logits(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    log_sigmoid = self.clamp_max(0) - torch.log1p(torch.exp(-self.abs()))
    if pos_weight is None:
        loss = (1 - target) * self - log_sigmoid
    else:
        loss = (1 - target) * self - ((pos_weight - 1) * target + 1) * log_sigmoid
    return _reduced(loss if weight is None else loss * weight, reduction)


def _valid_classes(
    target: Tensor, ignore_index: int, weight: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Classes that exist (0 for ignored samples), and each sample's weight (0 for ignored)."""
    counted = target != ignore_index
    classes = torch.where(counted, target, 0)
    if weight is None:
        return classes, counted.to(dtype)
    return classes, torch.where(counted, widen(weight)[classes], 0.0)


def nll_loss_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    wide = widen(self)
    axis = 0 if self.dim() == 1 else 1
    classes, sample_weight = _valid_classes(target, ignore_index, weight, wide.dtype)
    picked = wide.gather(axis, classes.unsqueeze(axis)).squeeze(axis)
    # An ignored sample is no sample: where, not a product, so that its nan or inf stays out.
    loss = torch.where(target != ignore_index, -picked * sample_weight, 0.0)
    if reduction == _NONE and self.dim() > 1:
        return loss.to(self.dtype), torch.zeros((), dtype=self.dtype)
    total = sample_weight.sum()
    summed = loss.sum()
    result = summed / total if reduction == _MEAN else summed
    return result.to(self.dtype), total.to(self.dtype)


def nll_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    wide = widen(grad_output)
    axis = 0 if self.dim() == 1 else 1
    classes, sample_weight = _valid_classes(target, ignore_index, weight, wide.dtype)
    share = wide / widen(total_weight) if reduction == _MEAN else wide
    # A comparison with every class instead of a scatter: it fuses with what comes after.
    labels = torch.arange(self.shape[axis]).reshape(-1, *[1] * (self.dim() - 1 - axis))
    chosen = (labels == classes.unsqueeze(axis)) & (target != ignore_index).unsqueeze(axis)
    amount = -(share * sample_weight)
    return torch.where(chosen, amount.unsqueeze(axis), 0.0).to(self.dtype)


TABLE: Final[Mapping[str, Callable[..., Any]]] = {
    "nll_loss2d_forward": nll_loss_forward,
    "nll_loss2d_backward": nll_loss_backward,
}
