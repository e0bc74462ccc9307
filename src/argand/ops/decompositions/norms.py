"""ops.decompositions.norms: normalisation layers, forward and backward, from sums and arithmetic.

Statistics are computed in float32 for half inputs and rounded only where eager stores them.
"""

# ruff: noqa: D103 - each function is the aten op of its name in TABLE, documented by torch

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.decompositions.precision import widen

Mask = Sequence[bool]


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


def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    inner = len(normalized_shape)
    dims = list(range(input.dim() - inner, input.dim()))
    wide = widen(input)
    mean, _, rstd = _moments(wide, dims, eps)
    result = _scaled((wide - mean) * rstd, widen(weight), widen(bias))
    dtype = _statistics_dtype(input, weight, bias)
    return result.to(input.dtype), mean.to(dtype), rstd.to(dtype)


def layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Mask,
) -> tuple[Tensor | None, ...]:
    outer = list(range(input.dim() - len(normalized_shape)))
    inner = list(range(len(outer), input.dim()))
    grad, wide_rstd = widen(grad_out), widen(rstd)
    normalized = (widen(input) - widen(mean)) * wide_rstd
    grads: list[Tensor | None] = [None, None, None]
    if output_mask[0]:
        count = math.prod(normalized_shape)
        scaled = grad if weight is None else grad * widen(weight)
        along_mean = scaled.sum(inner, keepdim=True)
        along_scale = (scaled * normalized).sum(inner, keepdim=True)
        centered = scaled - (along_mean + normalized * along_scale) / count
        grads[0] = (centered * wide_rstd).to(input.dtype)
    if output_mask[1]:
        dtype = (input if weight is None else weight).dtype
        product = grad * normalized
        grads[1] = (product.sum(outer) if outer else product).to(dtype)
    if output_mask[2]:
        dtype = (input if bias is None else bias).dtype
        grads[2] = (grad.sum(outer) if outer else grad.clone()).to(dtype)
    return tuple(grads)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    wide = widen(input)
    floor = torch.finfo(wide.dtype).eps if eps is None else eps
    mean_square = (wide * wide).sum(dims, keepdim=True) / math.prod(normalized_shape)
    rstd = torch.rsqrt(mean_square + floor)
    return _scaled(wide * rstd, widen(weight), None).to(input.dtype), rstd


def group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    wide = widen(input).reshape(N, group, C // group, HxW)
    mean, _, rstd = _moments(wide, [2, 3], eps)
    normalized = ((wide - mean) * rstd).reshape(input.shape)
    channels = (1, C, *[1] * (input.dim() - 2))
    result = _scaled(
        normalized,
        None if weight is None else widen(weight).reshape(channels),
        None if bias is None else widen(bias).reshape(channels),
    )
    dtype = _statistics_dtype(input, weight, bias)
    return (result.to(input.dtype), mean.reshape(N, group).to(dtype), rstd.reshape(N, group).to(dtype))


def group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Mask,
) -> tuple[Tensor | None, ...]:
    grouped = (N, group, C // group, HxW)
    grad = widen(grad_out).reshape(grouped)
    center = widen(mean).reshape(N, group, 1, 1)
    scale = widen(rstd).reshape(N, group, 1, 1)
    normalized = (widen(input).reshape(grouped) - center) * scale
    grads: list[Tensor | None] = [None, None, None]
    dtype = (input if weight is None else weight).dtype
    if output_mask[0]:
        gamma = None if weight is None else widen(weight).reshape(1, group, C // group, 1)
        scaled = grad if gamma is None else grad * gamma
        along_mean = scaled.sum([2, 3], keepdim=True)
        along_scale = (scaled * normalized).sum([2, 3], keepdim=True)
        centered = scaled - (along_mean + normalized * along_scale) / (C // group * HxW)
        grads[0] = (centered * scale).reshape(input.shape).to(input.dtype)
    if output_mask[1]:
        grads[1] = (grad * normalized).sum([0, 3]).reshape(C).to(dtype)
    if output_mask[2]:
        grads[2] = grad.sum([0, 3]).reshape(C).to(dtype)
    return tuple(grads)


def _per_channel(vector: Tensor, rank: int) -> Tensor:
    return widen(vector).reshape(1, -1, *[1] * (rank - 2))


def _normalize(input: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    rank = input.dim()
    result = _scaled(
        (widen(input) - mean) * rstd,
        None if weight is None else _per_channel(weight, rank),
        None if bias is None else _per_channel(bias, rank),
    )
    return result.to(input.dtype)


def batch_norm_functional(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """Result, saved statistics, and the running statistics after this batch."""
    if not training:
        result, *saved = batch_norm_inference(input, weight, bias, running_mean, running_var, momentum, eps)
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
        unbiased = variance * count / max(count - 1, 1)  # integers: a quotient would hide an open size
        running_var = (unbiased * momentum + running_var * (1 - momentum)).to(running_var.dtype)
    return result, mean.to(dtype), rstd.reshape(channels).to(dtype), running_mean, running_var


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Writes the running statistics, as the op does."""
    result, mean, rstd, new_mean, new_var = batch_norm_functional(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )
    if training:
        for running, new in ((running_mean, new_mean), (running_var, new_var)):
            if running is not None:
                running.copy_(new)
    return result, mean, rstd


def batch_norm_no_statistics(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    return batch_norm_functional(input, weight, bias, None, None, training, momentum, eps)[:3]


def batch_norm_inference(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    rank = input.dim()
    mean = _per_channel(running_mean, rank)
    rstd = torch.rsqrt(_per_channel(running_var, rank) + eps)
    dtype = _statistics_dtype(input, weight, running_mean)
    nothing = torch.empty(0, dtype=dtype)
    return _normalize(input, mean, rstd, weight, bias), nothing, nothing.clone()


def batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: Mask,
) -> tuple[Tensor | None, ...]:
    rank, channels = input.dim(), input.shape[1]
    dims = [0, *range(2, rank)]
    mean = _per_channel(save_mean if train else running_mean, rank)
    rstd = _per_channel(save_invstd, rank) if train else torch.rsqrt(_per_channel(running_var, rank) + eps)
    grad = widen(grad_out)
    normalized = (widen(input) - mean) * rstd
    along_mean = grad.sum(dims, keepdim=True)
    along_scale = (grad * normalized).sum(dims, keepdim=True)
    dtype = (input if weight is None else weight).dtype
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
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": layer_norm_backward,
    "_fused_rms_norm": rms_norm,
    "native_group_norm": group_norm,
    "native_group_norm_backward": group_norm_backward,
    "native_batch_norm": batch_norm,
    "_native_batch_norm_legit": batch_norm,
    "_native_batch_norm_legit.no_stats": batch_norm_no_statistics,
    "_native_batch_norm_legit_no_training": batch_norm_inference,
    "_native_batch_norm_legit_functional": batch_norm_functional,
    "native_batch_norm_backward": batch_norm_backward,
}
