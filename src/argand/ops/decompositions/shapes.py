"""ops.decompositions.shapes: joins, gradients of views, copies of views, and factories."""

# ruff: noqa: D103 - each function is the aten op of its name, documented by torch

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.indexing import COPIED_VIEWS
from argand.ops.layout import Sizes

_aten: Final = torch.ops.aten


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return torch.cat([tensor.unsqueeze(dim) for tensor in tensors], dim)


def slice_backward(
    grad_output: Tensor, input_sizes: Sizes, dim: int, start: int, end: int, step: int
) -> Tensor:
    return _aten.slice_scatter(
        grad_output.new_zeros(input_sizes), grad_output, dim, start, end, step
    )


def select_backward(grad_output: Tensor, input_sizes: Sizes, dim: int, index: int) -> Tensor:
    return _aten.select_scatter(grad_output.new_zeros(input_sizes), grad_output, dim, index)


def diagonal_backward(
    grad_output: Tensor, input_sizes: Sizes, offset: int, dim1: int, dim2: int
) -> Tensor:
    blank = grad_output.new_zeros(input_sizes)
    return _aten.diagonal_scatter(blank, grad_output, offset, dim1, dim2)


def repeat(self: Tensor, repeats: Sizes) -> Tensor:
    missing = len(repeats) - self.dim()
    shape = [1] * missing + list(self.shape)
    interleaved = [size for pair in zip([1] * len(shape), shape, strict=True) for size in pair]
    expanded = [size for pair in zip(repeats, shape, strict=True) for size in pair]
    final = [times * size for times, size in zip(repeats, shape, strict=True)]
    return (
        self.reshape(interleaved)
        .expand(expanded)
        .clone(memory_format=torch.contiguous_format)
        .reshape(final)
    )


def roll(self: Tensor, shifts: Sizes, dims: Sizes = ()) -> Tensor:
    if not self.numel():
        return self.clone()
    if not dims:
        return roll(self.flatten(), shifts, [0]).reshape(self.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = self.shape[dim]
        start = -shift % size
        self = torch.cat([self.narrow(dim, start, size - start), self.narrow(dim, 0, start)], dim)
    return self


def addr(self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    if self.dtype is torch.bool:
        return NotImplemented
    outer = (vec1 if alpha == 1 else vec1 * alpha).unsqueeze(1) * vec2
    if beta == 0:
        return outer
    return (self if beta == 1 else self * beta) + outer


def full_like(
    self: Tensor, fill_value: Any, *, dtype: Any = None, memory_format: Any = None, **options: Any
) -> Tensor:
    return torch.full(self.shape, fill_value, dtype=dtype or self.dtype, **options)


def new_full(
    self: Tensor, size: Sizes, fill_value: Any, *, dtype: Any = None, **options: Any
) -> Tensor:
    return torch.full(size, fill_value, dtype=dtype or self.dtype, **options)


def _full(size: Sizes, fill_value: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    return torch.full(size, fill_value, dtype=dtype or torch.get_default_dtype(), **options)


def _filled(of: Callable[..., Tensor], fill_value: Any) -> Callable[..., Tensor]:
    """The same with a fixed number."""
    return lambda *args, **options: of(*args, fill_value, **options)


def scalar_tensor(s: Any, **options: Any) -> Tensor:
    return _full((), s, **options)


def _fill(self: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(self.dtype).expand(self.shape).clone()
    return torch.full(self.shape, value, dtype=self.dtype)


def eye(n: int, m: int | None = None, *, dtype: Any = None, **options: Any) -> Tensor:
    columns = torch.arange(n if m is None else m)
    return (torch.arange(n).unsqueeze(1) == columns).to(dtype or torch.get_default_dtype())


def _copy_of(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")

    def copy(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        view = getattr(getattr(_aten, packet), overload or "default")(self, *args, **kwargs)
        dense = torch.contiguous_format
        if isinstance(view, Tensor):
            return view.clone(memory_format=dense)
        return [part.clone(memory_format=dense) for part in view]

    return copy


TABLE: Final[Mapping[str, Callable[..., Any]]] = {
    **{f"zeros{end}": _filled(of, 0) for end, of in (("", _full), ("_like", full_like))},
    **{f"ones{end}": _filled(of, 1) for end, of in (("", _full), ("_like", full_like))},
    "new_zeros": _filled(new_full, 0),
    "new_ones": _filled(new_full, 1),
    **dict.fromkeys(("fill.Scalar", "fill.Tensor"), _fill),
    "eye.m": eye,
    **{
        name.partition(".")[0] + "_copy" + "".join(name.partition(".")[1:]): _copy_of(name)
        for name in COPIED_VIEWS.split()
    },
}
