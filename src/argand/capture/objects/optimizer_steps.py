"""capture.objects.optimizer_steps: updates of optimizers that branch on numbers in their state, without branches.

torch's own read `step.item()` and the like; here such numbers stay in the graph, as float64, which is what Python
computes with. Interpreted in place of torch's functions, in their one-by-one and their foreach forms alike: what they
compute is the same but for rounding. Signatures are torch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def _number(x: Any) -> Any:
    """A number of the state, as exact as Python's, and as it is now."""
    return x.to(torch.float64, copy=True) if isinstance(x, Tensor) else x


def _as_real(x: Any) -> Any:
    return torch.view_as_real(x) if isinstance(x, Tensor) and x.is_complex() else x


def radam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    *,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
    eps: float,
    decoupled_weight_decay: bool,
    maximize: bool,
    **rest: Any,
) -> None:
    """RAdam: the rectified step where the variance is known well enough, a plain one before."""
    longest = 2 / (1 - beta2) - 1
    for param, grad, mean, square, count in zip(
        params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True
    ):
        param, grad, mean, square = (
            _as_real(param),
            _as_real(grad),
            _as_real(mean),
            _as_real(square),
        )
        grad = -grad if maximize else grad
        count += 1
        step = _number(count)
        if weight_decay != 0 and decoupled_weight_decay:
            param.mul_(1 - lr * weight_decay)
        elif weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        left = 1 - beta2**step
        length = longest - 2 * step * beta2**step / left
        rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        factor = torch.where(
            length > 5, rectified.sqrt() * (left.sqrt() / square.sqrt().add(eps)), 1.0
        )
        param.sub_(mean / (1 - beta1**step) * lr * factor)


def asgd(
    params: list[Tensor],
    grads: list[Tensor],
    axs: list[Tensor],
    mus: list[Tensor],
    etas: list[Tensor],
    state_steps: list[Tensor],
    *,
    lambd: float,
    lr: Any,
    t0: float,
    alpha: float,
    weight_decay: float,
    maximize: bool,
    **rest: Any,
) -> None:
    """ASGD: the average is the parameter itself until it begins."""
    rate = _number(lr)
    for param, grad, average, mu, eta, count in zip(
        params, grads, axs, mus, etas, state_steps, strict=True
    ):
        param, grad, average = _as_real(param), _as_real(grad), _as_real(average)
        grad = -grad if maximize else grad
        count += 1
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        size = _number(eta)
        param.mul_(1 - lambd * size)
        param.sub_(grad * size)
        average.copy_(torch.where(mu == 1, param, average + (param - average) * mu))
        step = _number(count)
        eta.copy_(rate / (1 + lambd * rate * step) ** alpha)
        mu.copy_(1 / (step - t0).clamp(min=1))


def adafactor(
    params: list[Tensor],
    grads: list[Tensor],
    row_vars: list[Any],
    col_vars: list[Any],
    variances: list[Any],
    state_steps: list[Tensor],
    grad_scale: Any,
    found_inf: Any,
    *,
    d: float,
    lr: Any,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
    **rest: Any,
) -> None:
    """Adafactor: second moments by rows and columns, steps relative to the size of the parameters."""
    rate = torch.as_tensor(lr, dtype=torch.float64)
    rows = zip(params, grads, row_vars, col_vars, variances, state_steps, strict=True)
    for param, grad, row, column, variance, count in rows:
        least = torch.finfo(param.dtype).eps if eps1 is None else eps1
        grad = -grad if maximize else grad
        count += 1
        step = _number(count)
        size = torch.minimum(rate, step**-0.5) * (
            param.norm(2).double() / param.numel() ** 0.5
        ).clamp(min=eps2)
        if weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        weight = step**beta2_decay
        if grad.dim() > 1:
            row.lerp_(
                grad.norm(dim=-1, keepdim=True).square() / grad.size(-1), weight.to(row.dtype)
            )
            column.lerp_(
                grad.norm(dim=-2, keepdim=True).square() / grad.size(-2), weight.to(column.dtype)
            )
            estimate = row @ column / row.mean(dim=-2, keepdim=True).clamp(min=least)
        else:
            variance.lerp_(grad * grad, weight.to(variance.dtype))
            estimate = variance
        update = estimate.clamp(min=least * least).rsqrt() * grad
        most = (update.norm(2).double() / (update.numel() ** 0.5 * d)).clamp(min=1.0)
        param.sub_(update * (size / most))


def update_average(averaged: Any, model: Any) -> None:
    """`AveragedModel.update_parameters`: a copy the first time, then the average; which of them the graph decides."""
    first = averaged.n_averaged == 0
    own = (
        [*averaged.module.parameters(), *averaged.module.buffers()]
        if averaged.use_buffers
        else [*averaged.parameters()]
    )
    new = [*model.parameters(), *model.buffers()] if averaged.use_buffers else [*model.parameters()]
    own, new = [x.detach() for x in own], [x.detach() for x in new]
    if averaged.multi_avg_fn is not None:
        groups = torch.optim.swa_utils._group_tensors_by_device_and_dtype([own, new])
        for [means, values], _ in groups.values():
            averaged.multi_avg_fn(means, values, averaged.n_averaged)
    else:
        mean = torch.optim.swa_utils.get_swa_avg_fn()
        for x, value in zip(own, new, strict=False):
            x.copy_(mean(x, value, averaged.n_averaged))
    for x, value in zip(own, new, strict=False):
        x.copy_(torch.where(first, value, x))
    if not averaged.use_buffers:
        for x, value in zip([*averaged.module.buffers()], [*model.buffers()], strict=True):
            x.detach().copy_(value.detach())
    averaged.n_averaged += 1
