"""ops.layers: rows of whole layers torch has one kernel for: recurrent cells, grouped products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.convolution import in_format_of
from argand.ops.layout import DataDependent, broadcast_shapes, refuse
from argand.ops.pointwise import dense, dense_each, dense_self
from argand.ops.table import Kind, OpDef, rows

# Functions of torch that run one step as often as a sequence is long: the same ops, more or fewer times.
RECURRENT: Final = frozenset({torch.gru, torch.lstm, torch.rnn_relu, torch.rnn_tanh})


def _recurrent(input: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """The last result, a workspace only oneDNN can size, is handed from forward to backward as is."""
    hx, cx, hidden_size = args[4], args[5], args[9]
    output = dense((input.shape[0], input.shape[1], hidden_size), input.dtype)
    return output, dense_self(hx), dense_self(cx), dense((0,), torch.uint8)


def _grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Any = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    rows, columns = self.shape[-2], mat2.shape[-1]
    if self.dim() == 2 and mat2.dim() == 2:
        if offs is None:
            refuse("offsets say where groups end")
        shape: tuple[int, ...] = (offs.shape[0], rows, columns)
    elif self.dim() == 2 or mat2.dim() == 2:
        shape = (rows, columns)
    else:
        shape = (self.shape[0], rows, columns)
    return dense(shape, out_dtype or self.dtype)


def _cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    batch = broadcast_shapes(x1.shape[:-2], x2.shape[:-2]) if x1.dim() > 2 or x2.dim() > 2 else ()
    return dense((*batch, x1.shape[-2], x2.shape[-2]), x1.dtype)


def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    if output_size is None:
        raise DataDependent("aten.repeat_interleave.Tensor")
    return dense((output_size,), repeats.dtype)


def _pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    *batch, channels, height, width = self.shape
    if channels % upscale_factor**2:
        refuse("channels do not divide")
    shape = (*batch, channels // upscale_factor**2, height * upscale_factor, width * upscale_factor)
    return in_format_of(self, shape)


def _pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor:
    *batch, channels, height, width = self.shape
    if not self.numel() or height % downscale_factor or width % downscale_factor:
        refuse("nothing, or sizes do not divide")
    shape = (
        *batch,
        channels * downscale_factor**2,
        height // downscale_factor,
        width // downscale_factor,
    )
    return in_format_of(self, shape)


def _sampler_backward(
    grad_output: Tensor, input: Tensor, grid: Tensor, *rest: Any
) -> tuple[Tensor | None, Tensor]:
    mask: Sequence[bool] = rest[3]
    return dense_self(input) if mask[0] else None, dense(grid.shape, grid.dtype)


def _cross(self: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    shape = broadcast_shapes(self.shape, other.shape)
    if self.dim() != other.dim() or shape[dim] != 3 or self.dtype is not other.dtype:
        refuse("not vectors of three")
    return dense(shape, self.dtype)


def _attention_layer(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, *rest: Any
) -> tuple[Tensor, Tensor | None]:
    need_weights, average = len(rest) <= 5 or rest[5], len(rest) <= 6 or rest[6]
    if query.dim() != 3 or query.is_nested:
        refuse("not (batch, length, size)")
    batch, length, _ = query.shape
    heads = () if average else (num_head,)
    weights = dense((batch, *heads, length, key.shape[1]), query.dtype) if need_weights else None
    return dense_self(query), weights


def _encoder_layer(src: Tensor, *_: Any) -> Tensor:
    return dense_self(src) if not src.is_nested else refuse("nested")


_O: Final = Kind.OTHER

ROWS: Final[tuple[OpDef, ...]] = (
    *rows(_O, _recurrent, "mkldnn_rnn_layer"),
    *rows(_O, dense_each(*range(7)), "mkldnn_rnn_layer_backward"),
    *rows(_O, dense_each(2, 2, 0), "_thnn_fused_lstm_cell"),
    *rows(Kind.MATMUL, _attention_layer, "_native_multi_head_attention"),
    *rows(Kind.MATMUL, _encoder_layer, "_transformer_encoder_layer_fwd"),
    *rows(Kind.MATMUL, _grouped_mm, "_grouped_mm"),
    *rows(_O, lambda self, bins=100, *_, **__: dense((bins,), self.dtype), "histc"),
    *rows(_O, _cdist, "_cdist_forward"),
    *rows(_O, _repeat_interleave, "repeat_interleave.Tensor"),
    *rows(Kind.GATHER, _pixel_shuffle, "pixel_shuffle"),
    *rows(Kind.GATHER, _pixel_unshuffle, "pixel_unshuffle"),
    *rows(_O, _sampler_backward, "grid_sampler_2d_backward grid_sampler_3d_backward"),
    *rows(Kind.REDUCE, dense_each(0, 1), "_weight_norm_interface"),
    *rows(Kind.REDUCE, dense_each(1, 2), "_weight_norm_interface_backward"),
    *rows(_O, _cross, "linalg_cross"),
)
