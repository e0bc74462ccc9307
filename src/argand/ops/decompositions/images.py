"""ops.decompositions.images: pooling and resampling of images as arithmetic on shifted views.

Each place of a small kernel is one strided view of the whole image, so a window is a chain of pointwise ops
that fuses with what comes before and after. Larger kernels and odd geometries stay with torch.
"""

# ruff: noqa: D103 - each function is the aten op of its name, documented by torch

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as functional
from torch import Tensor

from argand.ops.decompositions.precision import widen
from argand.ops.layout import Sizes

_LARGEST: Final = 16  # places of a kernel; more loads than that per result gain nothing


def _pair(value: Sizes, default: Sizes = ()) -> tuple[int, int]:
    given = list(value) or list(default)
    return given[0], given[-1]


def _windows(
    image: Tensor, kernel: tuple[int, int], stride: tuple[int, int]
) -> list[tuple[int, int, Tensor]]:
    """(row, column) of each place of the kernel with the elements it covers in all windows."""
    unfolded = image.unfold(-2, kernel[0], stride[0]).unfold(-2, kernel[1], stride[1])
    return [
        (row, column, unfolded[..., row, column])
        for row in range(kernel[0])
        for column in range(kernel[1])
    ]


def _padded(
    self: Tensor, padding: tuple[int, int], value: float, over: tuple[int, int] = (0, 0)
) -> Tensor:
    """The image with a border, and ``over`` more below and to the right."""
    if not any((*padding, *over)):
        return self
    (high, wide), (below, right) = padding, over
    return functional.pad(self, (wide, wide + right, high, high + below), value=value)


def _over(size: int, kernel: int, step: int, pad: int) -> int:
    """How far the last window reaches over a padded image where a part of a window counts (``ceil_mode``)."""
    last = -(-(size + 2 * pad - kernel) // step) * step
    if last >= size + pad:  # a window of padding alone
        last -= step
    return max(last + kernel - size - 2 * pad, 0)


def max_pool2d_with_indices(
    self: Tensor,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    kernel, pad = _pair(kernel_size), _pair(padding)
    step = _pair(stride, kernel_size)
    plain = self.is_floating_point() and _pair(dilation) == (1, 1) and self.numel()
    if not plain or kernel[0] * kernel[1] > _LARGEST:
        return NotImplemented
    height, width = self.shape[-2:]
    over = (0, 0)
    if ceil_mode:
        sides = zip((height, width), kernel, step, pad, strict=True)
        below, right = (_over(*side) for side in sides)
        over = (below, right)
    # torch's kernel for images with the channels last is good; ours would have to copy the image to pad it
    if any((*pad, *over)) and self.dim() == 4 and not self.is_contiguous():
        return NotImplemented
    places = _windows(_padded(self, pad, float("-inf"), over), kernel, step)
    _, _, best = places[0]
    rows = torch.arange(best.shape[-2]).unsqueeze(1) * step[0] - pad[0]
    columns = torch.arange(best.shape[-1]) * step[1] - pad[1]

    # inside the image, also for a window that is all -inf
    def place(row: int, column: int) -> Tensor:
        return (rows + row).clamp(0, height - 1) * width + (columns + column).clamp(0, width - 1)

    found = place(0, 0).expand(best.shape)
    for row, column, value in places[1:]:
        better = (value > best) | (value != value)
        best, found = (
            torch.where(better, value, best),
            torch.where(better, place(row, column), found),
        )
    return best.clone(memory_format=torch.contiguous_format), found.clone(
        memory_format=torch.contiguous_format
    )


def avg_pool2d(
    self: Tensor,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    kernel, pad = _pair(kernel_size), _pair(padding)
    area = kernel[0] * kernel[1]
    plain = (
        self.is_floating_point()
        and not ceil_mode
        and self.numel()
        and (count_include_pad or not any(pad))
    )
    if not plain or area > _LARGEST:
        return NotImplemented
    places = _windows(_padded(widen(self), pad, 0.0), kernel, _pair(stride, kernel_size))
    total = places[0][2]
    for _, _, value in places[1:]:
        total = total + value
    return (total / (divisor_override or area)).to(self.dtype)


def _adaptive_avg_pool2d(self: Tensor, output_size: Sizes) -> Tensor:
    height, width = self.shape[-2:]
    if (
        not self.numel()
        or not self.is_floating_point()
        or height % output_size[0]
        or width % output_size[1]
    ):
        return NotImplemented
    rows, columns = height // output_size[0], width // output_size[1]
    if rows == columns == 1:
        return self.clone(memory_format=torch.contiguous_format)
    tiles = widen(self).unfold(-2, rows, rows).unfold(-2, columns, columns)
    return (tiles.sum((-2, -1)) / (rows * columns)).to(self.dtype)


def avg_pool2d_backward(grad_output: Tensor, self: Tensor, *options: Any) -> Tensor:
    kernel_size, stride, padding, _, _, divisor_override = options
    kernel = _pair(kernel_size)
    apart = _times(grad_output.shape, self.shape[-2:], ()) == _pair(stride, kernel_size) == kernel
    if not apart or self.dim() != 4 or any(padding):
        return NotImplemented
    return _tiled(
        (widen(grad_output) / (divisor_override or kernel[0] * kernel[1])).to(self.dtype), *kernel
    )


def _tiled(image: Tensor, rows: int, columns: int) -> Tensor:
    """Each element ``rows`` times ``columns`` times."""
    height, width = image.shape[-2:]
    row = torch.arange(height * rows).unsqueeze(1) // rows
    return torch.ops.aten._unsafe_index(
        image, [None, None, row, torch.arange(width * columns) // columns]
    )


def _times(sizes: Sizes, output: Sizes, scales: Sequence[float | None]) -> tuple[int, int] | None:
    """How many times each row and column stands in a larger image; None when that is no whole number."""
    rows, columns = output[0] // max(sizes[-2], 1), output[1] // max(sizes[-1], 1)
    whole = 0 not in sizes and (rows * sizes[-2], columns * sizes[-1]) == tuple(output)
    return (
        (rows, columns)
        if whole and all(s in (None, n) for s, n in zip(scales, (rows, columns), strict=False))
        else None
    )


def upsample_nearest2d(self: Tensor, output_size: Sizes, *scales: float | None) -> Tensor:
    times = _times(self.shape, output_size, scales)
    return NotImplemented if times is None else _tiled(self, *times)


def upsample_nearest2d_backward(
    grad_output: Tensor, output_size: Sizes, input_size: Sizes, *scales: float | None
) -> Tensor:
    times = _times(input_size, output_size, scales)
    if times is None:
        return NotImplemented
    tiles = widen(grad_output).unfold(-2, times[0], times[0]).unfold(-2, times[1], times[1])
    return tiles.sum((-2, -1)).to(grad_output.dtype)


def _between(
    size: int, output: int, scale: float | None, corners: bool, dtype: torch.dtype
) -> list[Tensor]:
    """For each place of a resized dimension: the two it lies between, and how near to the second."""
    place = torch.arange(output, dtype=dtype)
    if corners:
        place = place * ((size - 1) / (output - 1) if output > 1 else 0.0)
    else:
        place = ((place + 0.5) * (1 / scale if scale else size / output) - 0.5).clamp_min(0)
    low = place.to(torch.int64).clamp_max(size - 1)
    return [low, (low + 1).clamp_max(size - 1), place - low]


def upsample_bilinear2d(
    self: Tensor,
    output_size: Sizes,
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    if not self.is_floating_point() or not self.numel():
        return NotImplemented
    wide, corners = widen(self), align_corners
    top, bottom, down = (
        part.unsqueeze(1)
        for part in _between(self.shape[2], output_size[0], scales_h, corners, wide.dtype)
    )
    left, right, along = _between(self.shape[3], output_size[1], scales_w, corners, wide.dtype)

    def row(place: Tensor) -> Tensor:
        first = torch.ops.aten._unsafe_index(wide, [None, None, place, left])
        return (
            first * (1 - along)
            + torch.ops.aten._unsafe_index(wide, [None, None, place, right]) * along
        )

    return (row(top) * (1 - down) + row(bottom) * down).to(self.dtype)


TABLE: Final[Mapping[str, Callable[..., Any]]] = {"_adaptive_avg_pool2d": _adaptive_avg_pool2d}
