"""ops.layers: rows of whole layers torch has one kernel for: recurrent cells, grouped products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.convolution import in_format_of
from argand.ops.layout import DataDependent, broadcast_shapes, refuse
from argand.ops.pointwise import dense
from argand.ops.table import Kind, OpDef


def _recurrent(input: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """The last result, a workspace only oneDNN can size, is handed from forward to backward as is."""
    hx, cx, hidden_size = args[4], args[5], args[9]
    output = dense((input.shape[0], input.shape[1], hidden_size), input.dtype)
    return output, like_dense(hx), like_dense(cx), dense((0,), torch.uint8)


def like_dense(self: Tensor) -> Tensor:
    """A row-major tensor of the same shape and dtype."""
    return dense(self.shape, self.dtype)


def _recurrent_backward(*args: Any) -> tuple[Tensor, ...]:
    return tuple(map(like_dense, args[:7]))


def _lstm_cell(input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, *_: Any) -> Any:
    return like_dense(cx), like_dense(cx), like_dense(input_gates)


def _grouped_mm(
    self: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: torch.dtype | None = None
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


def _histc(self: Tensor, bins: int = 100, *_: Any, **__: Any) -> Tensor:
    return dense((bins,), self.dtype)


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
    shape = (*batch, channels * downscale_factor**2, height // downscale_factor, width // downscale_factor)
    return in_format_of(self, shape)


def _sampler_backward(grad_output: Tensor, input: Tensor, grid: Tensor, *rest: Any) -> tuple[Tensor | None, Tensor]:
    mask: Sequence[bool] = rest[3]
    return like_dense(input) if mask[0] else None, dense(grid.shape, grid.dtype)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    return like_dense(v), like_dense(g)


def _weight_norm_backward(grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return like_dense(saved_v), like_dense(saved_g)


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
    return like_dense(query), weights


def _encoder_layer(src: Tensor, *_: Any) -> Tensor:
    return like_dense(src) if not src.is_nested else refuse("nested")


_O: Final = Kind.OTHER

ROWS: Final[tuple[OpDef, ...]] = (
    OpDef(name="mkldnn_rnn_layer", kind=_O, infer=_recurrent),
    OpDef(name="mkldnn_rnn_layer_backward", kind=_O, infer=_recurrent_backward),
    OpDef(name="_thnn_fused_lstm_cell", kind=_O, infer=_lstm_cell),
    OpDef(name="_native_multi_head_attention", kind=Kind.MATMUL, infer=_attention_layer),
    OpDef(name="_transformer_encoder_layer_fwd", kind=Kind.MATMUL, infer=_encoder_layer),
    OpDef(name="_grouped_mm", kind=Kind.MATMUL, infer=_grouped_mm),
    OpDef(name="histc", kind=_O, infer=_histc),
    OpDef(name="_cdist_forward", kind=_O, infer=_cdist),
    OpDef(name="repeat_interleave.Tensor", kind=_O, infer=_repeat_interleave),
    OpDef(name="pixel_shuffle", kind=Kind.GATHER, infer=_pixel_shuffle),
    OpDef(name="pixel_unshuffle", kind=Kind.GATHER, infer=_pixel_unshuffle),
    OpDef(name="grid_sampler_2d_backward", kind=_O, infer=_sampler_backward),
    OpDef(name="grid_sampler_3d_backward", kind=_O, infer=_sampler_backward),
    OpDef(name="_weight_norm_interface", kind=Kind.REDUCE, infer=_weight_norm),
    OpDef(name="_weight_norm_interface_backward", kind=Kind.REDUCE, infer=_weight_norm_backward),
    OpDef(name="linalg_cross", kind=_O, infer=_cross),
)
