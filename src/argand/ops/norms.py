"""ops.norms: rows of normalisation layers, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.layout import refuse
from argand.ops.pointwise import dense, empty_like
from argand.ops.reductions import suggested_format
from argand.ops.table import Kind, OpDef, rows


def _statistics_dtype(input: Tensor, weight: Tensor | None) -> torch.dtype:
    """Half inputs with float parameters keep their statistics in float."""
    return input.dtype if weight is None else weight.dtype


def _layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    inner = len(normalized_shape)
    axis = input.dim() - inner
    if axis < 0 or not inner or tuple(input.shape[axis:]) != tuple(normalized_shape):
        refuse("normalized_shape does not fit the input")
    for parameter in (weight, bias):
        if parameter is not None and tuple(parameter.shape) != tuple(normalized_shape):
            refuse("parameter does not fit normalized_shape")
    statistics = (*input.shape[:axis], *[1] * inner)
    dtype = _statistics_dtype(input, weight if weight is not None else bias)
    return (dense(input.shape, input.dtype), dense(statistics, dtype), dense(statistics, dtype))


def _layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    return (
        dense(input.shape, input.dtype) if output_mask[0] else None,
        dense(tuple(normalized_shape), (input if weight is None else weight).dtype) if output_mask[1] else None,
        dense(tuple(normalized_shape), (input if bias is None else bias).dtype) if output_mask[2] else None,
    )


def _formatted(input: Tensor) -> Tensor:
    return torch.empty(input.shape, dtype=input.dtype, memory_format=suggested_format(input))


def _group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if C % group or any(p is not None and p.numel() != C for p in (weight, bias)):
        refuse("groups or parameters do not fit the channels")
    dtype = _statistics_dtype(input, weight if weight is not None else bias)
    return _formatted(input), dense((N, group), dtype), dense((N, group), dtype)


def _group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    dtype = (input if weight is None else weight).dtype
    return (
        _formatted(input) if output_mask[0] else None,
        dense((C,), dtype) if output_mask[1] else None,
        dense((C,), dtype) if output_mask[2] else None,
    )


def _batch_norm_result(input: Tensor) -> Tensor:
    if input.is_contiguous():
        return dense(input.shape, input.dtype)
    return _formatted(input)


def _batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    channels = input.shape[1]
    for vector in (weight, bias, running_mean, running_var):
        if vector is not None and vector.numel() != channels:
            refuse("one value per channel")
    statistics = (channels,) if training else (0,)
    dtype = _statistics_dtype(input, weight if weight is not None else running_mean)
    if not input.dtype.is_floating_point:
        refuse("integers")
    return _batch_norm_result(input), dense(statistics, dtype), dense(statistics, dtype)


def _batch_norm_no_statistics(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _batch_norm(input, weight, bias, None, None, training, momentum, eps)


def _batch_norm_inference(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return _batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


def _batch_norm_functional(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    results = _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    return (*results, empty_like(running_mean), empty_like(running_var))


def _batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    channels = (input.shape[1],)
    dtype = (input if weight is None else weight).dtype
    return (
        _batch_norm_result(input) if output_mask[0] else None,
        dense(channels, dtype) if output_mask[1] else None,
        dense(channels, dtype) if output_mask[2] else None,
    )


def _with_reserve(*args: Any) -> tuple[Tensor, ...]:
    return (*_batch_norm(*args), dense((0,), torch.uint8))


def _batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    return _with_reserve(input, weight, bias, running_mean, running_var, True, momentum, eps)


def _fused_rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    result, _, rstd = _layer_norm(input, normalized_shape, weight, None, 0.0)
    return result, rstd


_R: Final = Kind.REDUCE

ROWS: Final[tuple[OpDef, ...]] = (
    OpDef(name="native_layer_norm", kind=_R, infer=_layer_norm),
    OpDef(name="native_layer_norm_backward", kind=_R, infer=_layer_norm_backward),
    OpDef(name="native_group_norm", kind=_R, infer=_group_norm),
    OpDef(name="native_group_norm_backward", kind=_R, infer=_group_norm_backward),
    *rows(_R, _batch_norm, "native_batch_norm _native_batch_norm_legit"),
    OpDef(name="_native_batch_norm_legit.no_stats", kind=_R, infer=_batch_norm_no_statistics),
    OpDef(name="_native_batch_norm_legit_no_training", kind=_R, infer=_batch_norm_inference),
    OpDef(name="_native_batch_norm_legit_functional", kind=_R, infer=_batch_norm_functional),
    OpDef(name="_batch_norm_with_update", kind=_R, infer=_batch_norm_with_update),
    OpDef(name="native_batch_norm_backward", kind=_R, infer=_batch_norm_backward),
    OpDef(name="_fused_rms_norm", kind=_R, infer=_fused_rms_norm),
)
