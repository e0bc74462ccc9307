"""ops.convolution: rows of convolutions, pooling and resampling."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from argand.ops.layout import Shape, Sizes, refuse
from argand.ops.pointwise import dense, empty_like
from argand.ops.reductions import suggested_format
from argand.ops.table import Kind, OpDef, rows


def _each(values: Sizes, count: int) -> Sizes:
    return list(values) * count if len(values) == 1 else values


def _as_2d(value: Tensor) -> Tensor:
    """Convolutions over one dimension run as two-dimensional ones of height one."""
    return value.unsqueeze(2) if value.dim() == 3 else value


class ConvolutionGeometry(NamedTuple):
    """What all convolutions share: the arguments from ``stride`` to ``groups``."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool
    output_padding: Sizes
    groups: int

    def result(self, shape: Shape, weight: Shape) -> Shape:
        """The shape after a convolution with such a weight."""
        lists = (self.stride, self.padding, self.dilation, self.output_padding)
        options = [_each(values, len(shape) - 2) for values in lists]
        if any(len(values) != len(shape) - 2 for values in options):
            refuse("one number per dimension")
        sizes = []
        for size, width, stride, padding, dilation, more in zip(
            shape[2:], weight[2:], *options, strict=True
        ):
            reach = dilation * (width - 1) + 1
            if self.transposed:
                sizes.append((size - 1) * stride - 2 * padding + reach + more)
            else:
                sizes.append((size + 2 * padding - reach) // stride + 1)
        return (shape[0], weight[1] * self.groups if self.transposed else weight[0], *sizes)


def _check_convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool, groups: int
) -> None:
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    if input.dim() != weight.dim() or not 3 <= input.dim() <= 5 or input.shape[1] != channels:
        refuse("input and weight do not fit")
    if input.dtype is not weight.dtype or (bias is not None and bias.dtype is not input.dtype):
        refuse("different dtypes")
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    if weight.shape[0] % groups or (bias is not None and tuple(bias.shape) != (outputs,)):
        refuse("groups or bias do not fit")


def _convolution(input: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    geometry = ConvolutionGeometry(*options[:6])
    _check_convolution(input, weight, bias, geometry.transposed, geometry.groups)
    shape = geometry.result(input.shape, weight.shape)
    if min(shape[1:]) <= 0:
        refuse("kernel larger than the input")
    return _formatted(shape, input.dtype, _backend_format(input, weight, bias, geometry))


def _formatted(shape: Shape, dtype: torch.dtype, memory_format: torch.memory_format) -> Tensor:
    if len(shape) == 3:
        return torch.empty(
            (*shape[:2], 1, shape[2]), dtype=dtype, memory_format=memory_format
        ).squeeze(2)
    return torch.empty(shape, dtype=dtype, memory_format=memory_format)


def _backend_format(
    input: Tensor, weight: Tensor, bias: Tensor | None, geometry: ConvolutionGeometry
) -> torch.memory_format:
    """Asks torch which of its kernels it would choose, and that kernel's memory format."""
    stride, padding, dilation, transposed, output_padding, groups = geometry
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


def _convolution_backward(*args: Any) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    grad_output, input, weight, _, *options, mask = args
    memory_format = _backend_format(input, weight, None, ConvolutionGeometry(*options))
    if weight.dim() > 3 and all(size == 1 for size in weight.shape[2:]):
        weight_gradient = dense(weight.shape, weight.dtype)  # kernel of size one: both at once
    else:
        weight_gradient = _formatted(weight.shape, weight.dtype, memory_format)
    return (
        _formatted(input.shape, input.dtype, memory_format) if mask[0] else None,
        weight_gradient if mask[1] else None,
        dense((grad_output.shape[1],), grad_output.dtype) if mask[2] else None,
    )


def _pooled_size(size: int, kernel: int, stride: int, pad: int, dilation: int, ceil: bool) -> int:
    span = size + 2 * pad - dilation * (kernel - 1) - 1 + (stride - 1 if ceil else 0)
    result = span // stride + 1
    if ceil and (result - 1) * stride >= size + pad:
        result -= 1  # the last window must start inside the input or its left padding
    return result


def _pooled(
    spatial: int,
    self: Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil: bool = False,
) -> Shape:
    if self.dim() not in (spatial + 1, spatial + 2) or 0 in self.shape[1:]:
        refuse("not a batch of images")
    kernel = _each(kernel, spatial)
    stride = _each(stride, spatial) if stride else kernel
    padding, dilation = _each(padding, spatial), _each(dilation, spatial)
    if any(2 * pad > width for pad, width in zip(padding, kernel, strict=True)):
        refuse("padding larger than half of the kernel")
    sizes = [
        _pooled_size(size, kernel[d], stride[d], padding[d], dilation[d], ceil)
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


def _max_pool(spatial: int, self: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    shape = _pooled(spatial, self, *options)
    return in_format_of(self, shape), in_format_of(self, shape, torch.int64)


def _avg_pool(
    spatial: int,
    self: Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    pad: Sizes = (0,),
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    if divisor_override == 0:
        refuse("a divisor of zero")
    return in_format_of(
        self,
        _pooled(spatial, self, kernel=kernel, stride=stride, padding=pad, dilation=(1,), ceil=ceil),
    )


def _in_format_of_input(grad_output: Tensor, self: Tensor, *_: Any) -> Tensor:
    return in_format_of(self, self.shape)


def _batched_format(self: Tensor, shape: Shape, spatial: int, dtype: torch.dtype) -> Tensor:
    """Only a batch has a memory format; one 3-d image looks like a batch of 2-d ones."""
    return in_format_of(self, shape, dtype) if self.dim() == spatial + 2 else dense(shape, dtype)


def _adaptive_avg_pool(
    self: Tensor, output_size: Sizes, dtype: torch.dtype | None = None
) -> Tensor:
    spatial = len(output_size)
    if self.dim() not in (spatial + 1, spatial + 2) or 0 in self.shape[1:]:
        refuse("not a batch of images")
    return _batched_format(
        self, (*self.shape[:-spatial], *output_size), spatial, dtype or self.dtype
    )


def _adaptive_max_pool(self: Tensor, output_size: Sizes) -> tuple[Tensor, Tensor]:
    return _adaptive_avg_pool(self, output_size), _adaptive_avg_pool(self, output_size, torch.int64)


def _pool3d_backward(grad_output: Tensor, self: Tensor, *_: Any) -> Tensor:
    return _batched_format(self, self.shape, 3, self.dtype)


def _upsample(self: Tensor, output_size: Sizes, *_: Any) -> Tensor:
    if self.dim() != len(output_size) + 2 or min(output_size) <= 0 or 0 in self.shape[1:]:
        refuse("not a batch of images")
    return in_format_of(self, (*self.shape[:2], *output_size))


def _upsample_backward(
    grad_output: Tensor, output_size: Sizes, input_size: Sizes, *_: Any
) -> Tensor:
    return in_format_of(grad_output, tuple(input_size))


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


_O: Final = Kind.OTHER
_G: Final = Kind.GATHER
_UPSAMPLED: Final = """upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d
_upsample_bilinear2d_aa _upsample_bicubic2d_aa"""

ROWS: Final[tuple[OpDef, ...]] = (
    *rows(Kind.CONV, _convolution, "convolution _convolution"),
    *rows(Kind.CONV, _convolution_backward, "convolution_backward"),
    *rows(_O, partial(_max_pool, 2), "max_pool2d_with_indices"),
    *rows(_O, partial(_max_pool, 3), "max_pool3d_with_indices"),
    *rows(_O, partial(_avg_pool, 2), "avg_pool2d"),
    *rows(_O, partial(_avg_pool, 3), "avg_pool3d"),
    *rows(
        _O, _in_format_of_input, "max_pool2d_with_indices_backward max_pool3d_with_indices_backward"
    ),
    *rows(_O, _in_format_of_input, "avg_pool2d_backward avg_pool3d_backward"),
    *rows(_O, _in_format_of_input, "_adaptive_avg_pool2d_backward adaptive_max_pool2d_backward"),
    *rows(_O, _pool3d_backward, "_adaptive_avg_pool3d_backward adaptive_max_pool3d_backward"),
    *rows(_O, _adaptive_avg_pool, "_adaptive_avg_pool2d _adaptive_avg_pool3d"),
    *rows(_O, _adaptive_max_pool, "adaptive_max_pool2d adaptive_max_pool3d"),
    *rows(_G, _upsample, f"{_UPSAMPLED} upsample_bicubic2d"),
    *rows(_O, _upsample_backward, " ".join(f"{name}_backward" for name in _UPSAMPLED.split())),
    *rows(
        _O,
        lambda grad, _, input_size, *__: dense(tuple(input_size), grad.dtype),
        "upsample_bicubic2d_backward",
    ),
    *rows(_G, _grid_sampler, "grid_sampler_2d grid_sampler_3d"),
    *rows(_G, _constant_pad, "constant_pad_nd"),
    *rows(_G, _edge_pad, "replication_pad1d replication_pad2d replication_pad3d"),
    *rows(_G, _reflect_pad, "reflection_pad1d reflection_pad2d reflection_pad3d"),
    *rows(
        _O,
        _in_format_of_input,
        "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward",
    ),
    *rows(
        _O,
        _in_format_of_input,
        "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward",
    ),
)
