"""ops.losses: rows of losses and their gradients."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.layout import broadcast_shapes, refuse
from argand.ops.pointwise import dense, dense_second, empty_like, like, over
from argand.ops.table import Kind, OpDef, rows

_pair: Final = over(0, 1)
_none, _mean, _sum = 0, 1, 2  # the numbers of torch's Reduction


def _reduced(reduction: int, elementwise: Tensor) -> Tensor:
    return elementwise if reduction == _none else dense((), elementwise.dtype)


def _pair_loss(self: Tensor, target: Tensor, reduction: int = _mean, *_: Any) -> Tensor:
    return _reduced(reduction, _pair(self, target))


def _loss_of_own_type(self: Tensor, target: Tensor, reduction: int = _mean, *_: Any) -> Tensor:
    """Losses whose kernels write to an ``empty_like(self)``, whatever the type of the target is."""
    elementwise = _pair(self, target)
    if not torch.can_cast(elementwise.dtype, self.dtype):
        refuse("the loss does not fit the type of the input")
    if self.shape == elementwise.shape:
        return _reduced(reduction, empty_like(self))
    return _reduced(reduction, like(elementwise, self.dtype))


def _binary_cross_entropy(
    self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _mean
) -> Tensor:
    if self.shape != target.shape:
        refuse("input and target differ in shape")
    return _reduced(reduction, empty_like(self))


def _with_logits(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = _mean,
) -> Tensor:
    if self.shape != target.shape:
        refuse("input and target differ in shape")
    if not target.is_floating_point() or not torch.can_cast(self.dtype, target.dtype):
        refuse("the loss does not fit the type of the target")
    return _reduced(reduction, like(target, target.dtype))  # it is made of ``1 - target``, in place


def _nll_loss(
    self: Tensor, target: Tensor, weight: Any, reduction: int, *_: Any
) -> tuple[Tensor, Tensor]:
    if self.dim() not in (1, 2) or target.dim() != self.dim() - 1:
        refuse("a batch of scores and a batch of classes")
    if target.dim() and target.shape[0] != self.shape[0]:
        refuse("batch sizes differ")
    if weight is not None and (weight.dim() != 1 or weight.numel() != self.shape[-1]):
        refuse("one weight per class")
    shape = target.shape if reduction == _none and self.dim() == 2 else ()
    return dense(tuple(shape), self.dtype), dense((), self.dtype)


def _nll_loss2d(
    self: Tensor, target: Tensor, weight: Any, reduction: int, *_: Any
) -> tuple[Tensor, Tensor]:
    if self.dim() != 4 or target.shape != (self.shape[0], *self.shape[2:]):
        refuse("a batch of score images and a batch of class images")
    shape = tuple(target.shape) if reduction == _none else ()
    return dense(shape, self.dtype), dense((), self.dtype)


def _pair_gradient(grad_output: Tensor, self: Tensor, target: Tensor, *_: Any) -> Tensor:
    return dense(broadcast_shapes(self.shape, target.shape), self.dtype)


_R: Final = Kind.REDUCE
_P: Final = Kind.POINTWISE

ROWS: Final[tuple[OpDef, ...]] = (
    *rows(_R, _pair_loss, "mse_loss smooth_l1_loss"),
    *rows(_R, _loss_of_own_type, "huber_loss soft_margin_loss"),
    *rows(_R, _binary_cross_entropy, "binary_cross_entropy"),
    *rows(_R, _with_logits, "binary_cross_entropy_with_logits"),
    *rows(_P, lambda _, self, *__: empty_like(self), "binary_cross_entropy_backward"),
    *rows(_P, _pair_gradient, "mse_loss_backward smooth_l1_loss_backward huber_loss_backward"),
    *rows(_P, over(1, 2, 0), "soft_margin_loss_backward"),
    *rows(_R, _nll_loss, "nll_loss_forward"),
    *rows(_R, _nll_loss2d, "nll_loss2d_forward"),
    *rows(Kind.SCATTER, dense_second, "nll_loss_backward nll_loss2d_backward"),
)
