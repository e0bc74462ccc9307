"""ops.decompositions.norms: normalisation layers, forward and backward, from sums and arithmetic.

Statistics are computed in float32 for half inputs and rounded only where eager stores them.
"""

# ruff: noqa: D103 - each function is the aten op of its name, documented by torch

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.decompositions.precision import widen


def _moments(value: Tensor, dims: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance (biased) and 1 / standard deviation over dims, which are kept."""
    count = math.prod(value.shape[dim] for dim in dims)
    mean = value.sum(dims, keepdim=True) / count
    centered = value - mean
    variance = (centered * centered).sum(dims, keepdim=True) / count
    return mean, variance, torch.rsqrt(variance + eps)


def _scaled(value: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        value = value * weight
    return value if bias is None else value + bias


def _statistics_dtype(input: Tensor, *parameters: Tensor | None) -> torch.dtype:
    return next((p.dtype for p in parameters if p is not None), input.dtype)


def native_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    inner = len(normalized_shape)
    dims = list(range(input.dim() - inner, input.dim()))
    wide = widen(input)
    mean, _, rstd = _moments(wide, dims, eps)
    result = _scaled((wide - mean) * rstd, widen(weight), widen(bias))
    dtype = _statistics_dtype(input, weight, bias)
    return result.to(input.dtype), mean.to(dtype), rstd.to(dtype)


def _input_gradient(
    grad: Tensor, normalized: Tensor, rstd: Tensor, dims: list[int], count: int
) -> Tensor:
    """What reaches the input of a normalisation over dims, of ``count`` elements, whose result was scaled already."""
    along_mean = grad.sum(dims, keepdim=True)
    along_scale = (grad * normalized).sum(dims, keepdim=True)
    return (grad - (along_mean + normalized * along_scale) / count) * rstd


def native_layer_norm_backward(*args: Any) -> tuple[Tensor | None, ...]:
    grad_out, input, normalized_shape, mean, rstd, weight, bias, mask = args
    outer = list(range(input.dim() - len(normalized_shape)))
    inner = list(range(len(outer), input.dim()))
    grad, wide_rstd = widen(grad_out), widen(rstd)
    normalized = (widen(input) - widen(mean)) * wide_rstd
    grads: list[Tensor | None] = [None, None, None]
    if mask[0]:
        scaled = grad if weight is None else grad * widen(weight)
        count = math.prod(normalized_shape)
        grads[0] = _input_gradient(scaled, normalized, wide_rstd, inner, count).to(input.dtype)
    if mask[1]:
        product = grad * normalized
        grads[1] = (product.sum(outer) if outer else product).to(_statistics_dtype(input, weight))
    if mask[2]:
        grads[2] = (grad.sum(outer) if outer else grad.clone()).to(_statistics_dtype(input, bias))
    return tuple(grads)


def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    wide = widen(input)
    floor = torch.finfo(wide.dtype).eps if eps is None else eps
    mean_square = (wide * wide).sum(dims, keepdim=True) / math.prod(normalized_shape)
    rstd = torch.rsqrt(mean_square + floor)
    return _scaled(wide * rstd, widen(weight), None).to(input.dtype), rstd


def native_group_norm(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    input, weight, bias, N, C, HxW, group, eps = args
    wide = widen(input).reshape(N, group, C // group, HxW)
    mean, _, rstd = _moments(wide, [2, 3], eps)
    normalized = ((wide - mean) * rstd).reshape(input.shape)
    rank, dtype = input.dim(), _statistics_dtype(input, weight, bias)
    result = _scaled(normalized, _per_channel(weight, rank), _per_channel(bias, rank))
    return (
        result.to(input.dtype),
        mean.reshape(N, group).to(dtype),
        rstd.reshape(N, group).to(dtype),
    )


def native_group_norm_backward(*args: Any) -> tuple[Tensor | None, ...]:
    grad_out, input, mean, rstd, weight, N, C, HxW, group, mask = args
    grouped = (N, group, C // group, HxW)
    grad = widen(grad_out).reshape(grouped)
    center = widen(mean).reshape(N, group, 1, 1)
    scale = widen(rstd).reshape(N, group, 1, 1)
    normalized = (widen(input).reshape(grouped) - center) * scale
    grads: list[Tensor | None] = [None, None, None]
    dtype = _statistics_dtype(input, weight)
    if mask[0]:
        scaled = grad if weight is None else grad * widen(weight).reshape(1, group, C // group, 1)
        gradient = _input_gradient(scaled, normalized, scale, [2, 3], C // group * HxW)
        grads[0] = gradient.reshape(input.shape).to(input.dtype)
    if mask[1]:
        grads[1] = (grad * normalized).sum([0, 3]).reshape(C).to(dtype)
    if mask[2]:
        grads[2] = grad.sum([0, 3]).reshape(C).to(dtype)
    return tuple(grads)


def _per_channel(vector: Tensor | None, rank: int) -> Any:
    return None if vector is None else widen(vector).reshape(1, -1, *[1] * (rank - 2))


def _normalize(
    input: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    rank = input.dim()
    result = _scaled(
        (widen(input) - mean) * rstd, _per_channel(weight, rank), _per_channel(bias, rank)
    )
    return result.to(input.dtype)


def _batch_norm_functional(*args: Any) -> tuple[Any, ...]:
    """Result, saved statistics, and the running statistics after this batch."""
    input, weight, bias, running_mean, running_var, training, momentum, eps = args
    if not training:
        result, *saved = _batch_norm_inference(
            input, weight, bias, running_mean, running_var, momentum, eps
        )
        return (result, *saved, running_mean, running_var)
    dims = [0, *range(2, input.dim())]
    mean, variance, rstd = _moments(widen(input), dims, eps)
    result = _normalize(input, mean, rstd, weight, bias)
    dtype = _statistics_dtype(input, weight, running_mean)
    count = input.numel() // input.shape[1]
    channels = input.shape[1]
    mean, variance = mean.reshape(channels), variance.reshape(channels)
    if running_mean is not None:
        running_mean = (mean * momentum + running_mean * (1 - momentum)).to(running_mean.dtype)
    if running_var is not None:
        # integers: a quotient would hide an open size
        unbiased = variance * count / max(count - 1, 1)
        running_var = (unbiased * momentum + running_var * (1 - momentum)).to(running_var.dtype)
    return result, mean.to(dtype), rstd.reshape(channels).to(dtype), running_mean, running_var


def native_batch_norm(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Writes the running statistics, as the op does."""
    result, mean, rstd, new_mean, new_var = _batch_norm_functional(*args)
    _, _, _, running_mean, running_var, training, _, _ = args
    if training:
        for running, new in ((running_mean, new_mean), (running_var, new_var)):
            if running is not None:
                running.copy_(new)
    return result, mean, rstd


def _batch_norm_no_statistics(
    input: Tensor, weight: Any, bias: Any, *options: Any
) -> tuple[Any, ...]:
    return _batch_norm_functional(input, weight, bias, None, None, *options)[:3]


def _batch_norm_inference(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    input, weight, bias, running_mean, running_var, _, eps = args
    rank = input.dim()
    mean = _per_channel(running_mean, rank)
    rstd = torch.rsqrt(_per_channel(running_var, rank) + eps)
    dtype = _statistics_dtype(input, weight, running_mean)
    nothing = torch.empty(0, dtype=dtype)
    return _normalize(input, mean, rstd, weight, bias), nothing, nothing.clone()


def native_batch_norm_backward(*args: Any) -> tuple[Tensor | None, ...]:
    (
        grad_out,
        input,
        weight,
        running_mean,
        running_var,
        save_mean,
        save_invstd,
        train,
        eps,
        output_mask,
    ) = args
    rank, channels = input.dim(), input.shape[1]
    dims = [0, *range(2, rank)]
    mean = _per_channel(save_mean if train else running_mean, rank)
    rstd = (
        _per_channel(save_invstd, rank)
        if train
        else torch.rsqrt(_per_channel(running_var, rank) + eps)
    )
    grad = widen(grad_out)
    normalized = (widen(input) - mean) * rstd
    along_mean = grad.sum(dims, keepdim=True)
    along_scale = (grad * normalized).sum(dims, keepdim=True)
    dtype = _statistics_dtype(input, weight)
    grads: list[Tensor | None] = [None, None, None]
    if output_mask[0]:
        scale = rstd if weight is None else rstd * _per_channel(weight, rank)
        count = input.numel() // channels
        centered = grad - (along_mean + normalized * along_scale) / count if train else grad
        grads[0] = (centered * scale).to(input.dtype)
    if output_mask[1]:
        grads[1] = along_scale.reshape(channels).to(dtype)
    if output_mask[2]:
        grads[2] = along_mean.reshape(channels).to(dtype)
    return tuple(grads)


TABLE: Final[Mapping[str, Callable[..., Any]]] = {
    "_fused_rms_norm": _rms_norm,
    "_native_batch_norm_legit": native_batch_norm,
    "_native_batch_norm_legit.no_stats": _batch_norm_no_statistics,
    "_native_batch_norm_legit_no_training": _batch_norm_inference,
    "_native_batch_norm_legit_functional": _batch_norm_functional,
}
