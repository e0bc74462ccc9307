"""ops.norms: rows of normalisation layers, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.convolution import in_format_of
from argand.ops.layout import refuse
from argand.ops.pointwise import dense, empty_like
from argand.ops.table import Kind, OpDef, rows


def _statistics_dtype(input: Tensor, *parameters: Tensor | None) -> torch.dtype:
    """Half inputs with float parameters keep their statistics in float."""
    return next((p.dtype for p in parameters if p is not None), input.dtype)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    inner = len(normalized_shape)
    axis = input.dim() - inner
    if axis < 0 or not inner or tuple(input.shape[axis:]) != tuple(normalized_shape):
        refuse("normalized_shape does not fit the input")
    for parameter in (weight, bias):
        if parameter is not None and tuple(parameter.shape) != tuple(normalized_shape):
            refuse("parameter does not fit normalized_shape")
    statistics = (*input.shape[:axis], *[1] * inner)
    dtype = _statistics_dtype(input, weight, bias)
    return (dense(input.shape, input.dtype), dense(statistics, dtype), dense(statistics, dtype))


def _wanted(mask: Sequence[bool], *gradients: Tensor) -> tuple[Tensor | None, ...]:
    return tuple(
        gradient if wanted else None for gradient, wanted in zip(gradients, mask, strict=True)
    )


def _layer_norm_backward(*args: Any) -> tuple[Tensor | None, ...]:
    _, input, normalized_shape, _, _, weight, bias, mask = args
    shape = tuple(normalized_shape)
    parameters = [dense(shape, _statistics_dtype(input, parameter)) for parameter in (weight, bias)]
    return _wanted(mask, dense(input.shape, input.dtype), *parameters)


def _group_norm(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    input, weight, bias, batch, channels, _, group, _ = args
    if channels % group or any(p is not None and p.numel() != channels for p in (weight, bias)):
        refuse("groups or parameters do not fit the channels")
    dtype = _statistics_dtype(input, weight, bias)
    return (
        in_format_of(input, input.shape),
        dense((batch, group), dtype),
        dense((batch, group), dtype),
    )


def _group_norm_backward(*args: Any) -> tuple[Tensor | None, ...]:
    _, input, _, _, weight, _, channels, _, _, mask = args
    dtype = _statistics_dtype(input, weight)
    return _wanted(
        mask, in_format_of(input, input.shape), dense((channels,), dtype), dense((channels,), dtype)
    )


def _batch_norm_result(input: Tensor) -> Tensor:
    return (
        dense(input.shape, input.dtype)
        if input.is_contiguous()
        else in_format_of(input, input.shape)
    )


def _batch_norm(
    input: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *_: Any
) -> tuple[Any, ...]:
    channels = input.shape[1]
    for vector in (weight, bias, mean, var):
        if vector is not None and vector.numel() != channels:
            refuse("one value per channel")
    statistics = (channels,) if training else (0,)
    dtype = _statistics_dtype(input, weight, mean)
    if not input.dtype.is_floating_point:
        refuse("integers")
    return _batch_norm_result(input), dense(statistics, dtype), dense(statistics, dtype)


def _batch_norm_no_statistics(
    input: Tensor, weight: Any, bias: Any, training: bool, *_: Any
) -> tuple[Any, ...]:
    return _batch_norm(input, weight, bias, None, None, training)


def _batch_norm_functional(*args: Any) -> tuple[Any, ...]:
    return (*_batch_norm(*args), empty_like(args[3]), empty_like(args[4]))


def _batch_norm_with_update(*args: Any) -> tuple[Any, ...]:
    return (*_batch_norm(*args[:5], True), dense((0,), torch.uint8))


def _batch_norm_backward(*args: Any) -> tuple[Tensor | None, ...]:
    _, input, weight, *_, mask = args
    channels, dtype = (input.shape[1],), _statistics_dtype(input, weight)
    return _wanted(mask, _batch_norm_result(input), dense(channels, dtype), dense(channels, dtype))


def _fused_rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Any, *_: Any
) -> tuple[Tensor, Tensor]:
    result, _, rstd = _layer_norm(input, normalized_shape, weight, None)
    return result, rstd


_R: Final = Kind.REDUCE

ROWS: Final[tuple[OpDef, ...]] = (
    OpDef(name="native_layer_norm", kind=_R, infer=_layer_norm),
    OpDef(name="native_layer_norm_backward", kind=_R, infer=_layer_norm_backward),
    OpDef(name="native_group_norm", kind=_R, infer=_group_norm),
    OpDef(name="native_group_norm_backward", kind=_R, infer=_group_norm_backward),
    *rows(_R, _batch_norm, "native_batch_norm _native_batch_norm_legit"),
    OpDef(name="_native_batch_norm_legit.no_stats", kind=_R, infer=_batch_norm_no_statistics),
    OpDef(
        name="_native_batch_norm_legit_no_training",
        kind=_R,
        infer=lambda *args: _batch_norm(*args[:5], False),
    ),
    OpDef(name="_native_batch_norm_legit_functional", kind=_R, infer=_batch_norm_functional),
    OpDef(name="_batch_norm_with_update", kind=_R, infer=_batch_norm_with_update),
    OpDef(name="native_batch_norm_backward", kind=_R, infer=_batch_norm_backward),
    OpDef(name="_fused_rms_norm", kind=_R, infer=_fused_rms_norm),
)
