"""ops.convolution: rows of convolutions, pooling and resampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.layout import Shape, refuse
from argand.ops.pointwise import dense, empty_like
from argand.ops.reductions import suggested_format
from argand.ops.table import Kind, OpDef, rows

Sizes = Sequence[int]


def _each(values: Sizes, count: int) -> Sizes:
    return list(values) * count if len(values) == 1 else values


def _as_2d(value: Tensor) -> Tensor:
    """Convolutions over one dimension run as two-dimensional ones of height one."""
    return value.unsqueeze(2) if value.dim() == 3 else value


def _convolved(
    shape: Shape,
    weight: Shape,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Shape:
    spatial = len(shape) - 2
    stride, padding = _each(stride, spatial), _each(padding, spatial)
    dilation, output_padding = _each(dilation, spatial), _each(output_padding, spatial)
    if transposed:
        sizes = [
            (shape[2 + d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (weight[2 + d] - 1) + output_padding[d] + 1
            for d in range(spatial)
        ]
        return (shape[0], weight[1] * groups, *sizes)
    sizes = [
        (shape[2 + d] + 2 * padding[d] - dilation[d] * (weight[2 + d] - 1) - 1) // stride[d] + 1 for d in range(spatial)
    ]
    return (shape[0], weight[0], *sizes)


def _check_convolution(input: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool, groups: int) -> None:
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    if input.dim() != weight.dim() or not 3 <= input.dim() <= 5 or input.shape[1] != channels:
        refuse("input and weight do not fit")
    if input.dtype is not weight.dtype or (bias is not None and bias.dtype is not input.dtype):
        refuse("different dtypes")
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    if weight.shape[0] % groups or (bias is not None and tuple(bias.shape) != (outputs,)):
        refuse("groups or bias do not fit")


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    *_: bool,
) -> Tensor:
    _check_convolution(input, weight, bias, transposed, groups)
    shape = _convolved(input.shape, weight.shape, stride, padding, dilation, transposed, output_padding, groups)
    if min(shape[1:]) <= 0:
        refuse("kernel larger than the input")
    memory_format = _backend_format(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    if len(shape) == 3:
        wide = (shape[0], shape[1], 1, shape[2])
        return torch.empty(wide, dtype=input.dtype, memory_format=memory_format).squeeze(2)
    return torch.empty(shape, dtype=input.dtype, memory_format=memory_format)


def _backend_format(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> torch.memory_format:
    """Asks torch which of its kernels it would choose, and that kernel's memory format."""
    if input.dim() == 3:
        # Made contiguous first: a permuted sequence is no reason to go channels-last.
        input = _as_2d(input if input.is_contiguous() else dense(input.shape, input.dtype))
        weight = _as_2d(weight)
        stride, dilation = [1, *stride], [1, *dilation]
        padding, output_padding = [0, *padding], [0, *output_padding]
    backend = torch._C._select_conv_backend(
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, None
    )
    return torch._C._conv_determine_backend_memory_format(input, weight, backend)


def _convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    memory_format = _backend_format(input, weight, None, stride, padding, dilation, transposed, output_padding, groups)

    def gradient(of: Tensor) -> Tensor:
        if of.dim() == 3:
            wide = torch.empty(_as_2d(of).shape, dtype=of.dtype, memory_format=memory_format)
            return wide.squeeze(2)
        return torch.empty(of.shape, dtype=of.dtype, memory_format=memory_format)

    channels = grad_output.shape[1]
    if weight.dim() > 3 and all(size == 1 for size in weight.shape[2:]):
        weight_gradient = dense(weight.shape, weight.dtype)  # kernel of size one: both at once
    else:
        weight_gradient = gradient(weight)
    return (
        gradient(input) if output_mask[0] else None,
        weight_gradient if output_mask[1] else None,
        dense((channels,), grad_output.dtype) if output_mask[2] else None,
    )


def _pooled_size(size: int, kernel: int, stride: int, pad: int, dilation: int, ceil: bool) -> int:
    span = size + 2 * pad - dilation * (kernel - 1) - 1 + (stride - 1 if ceil else 0)
    result = span // stride + 1
    if ceil and (result - 1) * stride >= size + pad:
        result -= 1  # the last window must start inside the input or its left padding
    return result


def _pooled(
    self: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool, spatial: int
) -> Shape:
    if self.dim() not in (spatial + 1, spatial + 2) or 0 in self.shape[1:]:
        refuse("not a batch of images")
    kernel = _each(kernel, spatial)
    stride = _each(stride, spatial) if stride else kernel
    padding, dilation = _each(padding, spatial), _each(dilation, spatial)
    if any(2 * pad > width for pad, width in zip(padding, kernel, strict=True)):
        refuse("padding larger than half of the kernel")
    sizes = [
        _pooled_size(size, kernel[d], stride[d], padding[d], dilation[d], ceil_mode)
        for d, size in enumerate(self.shape[-spatial:])
    ]
    if min(sizes) <= 0:
        refuse("output too small")
    return (*self.shape[:-spatial], *sizes)


def in_format_of(self: Tensor, shape: Shape, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor in the memory format that this one suggests."""
    if suggested_format(self) is torch.contiguous_format:
        return dense(shape, dtype or self.dtype)
    return torch.empty(shape, dtype=dtype or self.dtype, memory_format=suggested_format(self))


def _max_pool(spatial: int) -> Any:
    def rule(
        self: Tensor,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        dilation: Sizes = (1,),
        ceil_mode: bool = False,
    ) -> tuple[Tensor, Tensor]:
        shape = _pooled(self, kernel_size, stride, padding, dilation, ceil_mode, spatial)
        return in_format_of(self, shape), in_format_of(self, shape, torch.int64)

    return rule


def _avg_pool(spatial: int) -> Any:
    def rule(
        self: Tensor,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        shape = _pooled(self, kernel_size, stride, padding, (1,), ceil_mode, spatial)
        return in_format_of(self, shape)

    return rule


def _pool_backward(grad_output: Tensor, self: Tensor, *_: Any) -> Tensor:
    return in_format_of(self, self.shape)


def _adaptive_shape(self: Tensor, output_size: Sizes) -> Shape:
    spatial = len(output_size)
    if self.dim() not in (spatial + 1, spatial + 2) or 0 in self.shape[1:]:
        refuse("not a batch of images")
    return (*self.shape[:-spatial], *output_size)


def _batched_format(self: Tensor, shape: Shape, spatial: int, dtype: torch.dtype) -> Tensor:
    """Only a batch has a memory format; one 3-d image looks like a batch of 2-d ones."""
    return in_format_of(self, shape, dtype) if self.dim() == spatial + 2 else dense(shape, dtype)


def _adaptive_avg_pool(self: Tensor, output_size: Sizes) -> Tensor:
    shape = _adaptive_shape(self, output_size)
    return _batched_format(self, shape, len(output_size), self.dtype)


def _adaptive_max_pool(self: Tensor, output_size: Sizes) -> tuple[Tensor, Tensor]:
    shape = _adaptive_shape(self, output_size)
    spatial = len(output_size)
    return (_batched_format(self, shape, spatial, self.dtype), _batched_format(self, shape, spatial, torch.int64))


def _pool3d_backward(grad_output: Tensor, self: Tensor, *_: Any) -> Tensor:
    return _batched_format(self, self.shape, 3, self.dtype)


def _upsample(self: Tensor, output_size: Sizes, *_: Any) -> Tensor:
    if self.dim() != len(output_size) + 2 or min(output_size) <= 0 or 0 in self.shape[1:]:
        refuse("not a batch of images")
    return in_format_of(self, (*self.shape[:2], *output_size))


def _upsample_backward(grad_output: Tensor, output_size: Sizes, input_size: Sizes, *_: Any) -> Tensor:
    return in_format_of(grad_output, tuple(input_size))


def _dense_upsample_backward(grad_output: Tensor, output_size: Sizes, input_size: Sizes, *_: Any) -> Tensor:
    return dense(tuple(input_size), grad_output.dtype)


def _grid_sampler(input: Tensor, grid: Tensor, *_: Any) -> Tensor:
    shape = (*input.shape[:2], *grid.shape[1:-1])
    return dense(shape, input.dtype)


def _constant_pad(self: Tensor, pad: Sizes, value: Any = 0) -> Tensor:
    if len(pad) % 2 or len(pad) > 2 * self.dim():
        refuse("pads are pairs, at most one per dimension")
    shape = list(self.shape)
    for place in range(len(pad) // 2):
        shape[-1 - place] += pad[2 * place] + pad[2 * place + 1]
    if min(shape, default=0) < 0:
        refuse("negative size")
    if max(pad, default=0) <= 0:  # only cut: eager clones the narrowed view
        return empty_like(_narrowed(self, pad))
    return in_format_of(self, tuple(shape))


def _narrowed(self: Tensor, pad: Sizes) -> Tensor:
    for place in range(len(pad) // 2):
        dim = -1 - place
        before, after = pad[2 * place], pad[2 * place + 1]
        self = self.narrow(dim, -before, self.shape[dim] + before + after)
    return self


def _edge_pad(self: Tensor, padding: Sizes) -> Tensor:
    spatial = len(padding) // 2
    if self.dim() not in (spatial + 1, spatial + 2):
        refuse("not a batch of images")
    shape = list(self.shape)
    for place in range(spatial):
        shape[-1 - place] += padding[2 * place] + padding[2 * place + 1]
        if shape[-1 - place] < 1:
            refuse("negative size")
    return in_format_of(self, tuple(shape))


def _reflect_pad(self: Tensor, padding: Sizes) -> Tensor:
    for place, pad in enumerate(padding):
        if pad >= self.shape[-1 - place // 2]:
            refuse("padding as wide as the input")
    return _edge_pad(self, padding)


def _pad_backward(grad_output: Tensor, self: Tensor, padding: Sizes) -> Tensor:
    return in_format_of(self, self.shape)


_O: Final = Kind.OTHER
_G: Final = Kind.GATHER

ROWS: Final[tuple[OpDef, ...]] = (
    *rows(Kind.CONV, _convolution, "convolution _convolution"),
    OpDef(name="convolution_backward", kind=Kind.CONV, infer=_convolution_backward),
    OpDef(name="max_pool2d_with_indices", kind=_O, infer=_max_pool(2)),
    OpDef(name="max_pool3d_with_indices", kind=_O, infer=_max_pool(3)),
    OpDef(name="avg_pool2d", kind=_O, infer=_avg_pool(2)),
    OpDef(name="avg_pool3d", kind=_O, infer=_avg_pool(3)),
    *rows(
        _O,
        _pool_backward,
        """max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward
        _adaptive_avg_pool2d_backward adaptive_max_pool2d_backward avg_pool3d_backward""",
    ),
    *rows(_O, _pool3d_backward, "_adaptive_avg_pool3d_backward adaptive_max_pool3d_backward"),
    *rows(_O, _adaptive_avg_pool, "_adaptive_avg_pool2d _adaptive_avg_pool3d"),
    *rows(_O, _adaptive_max_pool, "adaptive_max_pool2d adaptive_max_pool3d"),
    *rows(
        _G,
        _upsample,
        """upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
        _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
        upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa""",
    ),
    *rows(
        _O,
        _upsample_backward,
        """upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
        _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward
        _upsample_nearest_exact3d_backward upsample_linear1d_backward upsample_bilinear2d_backward
        upsample_trilinear3d_backward _upsample_bilinear2d_aa_backward
        _upsample_bicubic2d_aa_backward""",
    ),
    OpDef(name="upsample_bicubic2d_backward", kind=_O, infer=_dense_upsample_backward),
    *rows(_G, _grid_sampler, "grid_sampler_2d grid_sampler_3d"),
    OpDef(name="constant_pad_nd", kind=_G, infer=_constant_pad, cheap=True),
    *rows(_G, _edge_pad, "replication_pad1d replication_pad2d replication_pad3d"),
    *rows(_G, _reflect_pad, "reflection_pad1d reflection_pad2d reflection_pad3d"),
    *rows(
        _O,
        _pad_backward,
        """replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
        reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward""",
    ),
)
