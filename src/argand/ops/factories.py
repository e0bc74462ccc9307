"""ops.factories: rows of ops that make tensors from sizes and numbers, random ones among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from argand.ops.layout import new, number_dtype, promote, refuse
from argand.ops.pointwise import dense, empty_like, formatted_like, like, over
from argand.ops.table import Kind, OpDef, rows

_pair: Final = over(0, 1)
Dtype: TypeAlias = torch.dtype | None


def _is_here(layout: Any, device: Any) -> bool:
    return layout in (None, torch.strided) and (device is None or device.type == "cpu")


def _check_here(layout: Any, device: Any) -> None:
    if not _is_here(layout, device):
        refuse("another device or layout")


def _made(
    size: Sequence[int],
    *_: Any,
    dtype: Dtype = None,
    layout: Any = None,
    device: Any = None,
    memory_format: Any = None,
    **__: Any,
) -> Tensor:
    _check_here(layout, device)
    dtype = dtype or torch.get_default_dtype()
    if memory_format is not None:
        return torch.empty(size, dtype=dtype, memory_format=memory_format)
    if any(extent < 0 for extent in size):
        refuse("negative size")
    return dense(tuple(size), dtype)


def _empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Dtype = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> Tensor:
    _check_here(layout, device)
    return new(size, stride, dtype=dtype or torch.get_default_dtype())


def _full(size: Sequence[int], fill_value: Any, *, dtype: Dtype = None, **options: Any) -> Tensor:
    dtype = dtype or number_dtype(type(fill_value), torch.get_default_dtype())
    return _made(size, dtype=dtype, **options)


def _arange_length(start: Any, end: Any, step: Any) -> int:
    if step == 0 or (end - start) * step < 0:
        refuse("empty or endless range")
    if all(isinstance(value, int) for value in (start, end, step)):
        return -((start - end) // step)
    length = math.ceil((end - start) / step)
    return length


def _arange(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: Dtype = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> Tensor:
    _check_here(layout, device)
    if dtype is None:
        whole = all(isinstance(value, int) for value in (start, end, step))
        dtype = torch.int64 if whole else torch.get_default_dtype()
    elif not dtype.is_floating_point:
        start, end, step = int(start), int(end), int(step)
    return dense((_arange_length(start, end, step),), dtype)


def _arange_end(end: Any, **options: Any) -> Tensor:
    return _arange(0, end, **options)


def _spaced(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Dtype = None, **options: Any) -> Tensor:
    if dtype is None and any(
        isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex()) for value in (start, end)
    ):
        dtype = torch.get_default_dtype().to_complex()
    return _made((steps,), dtype=dtype, **options)


def _eye(n: int, m: int | None = None, *, dtype: Dtype = None, **options: Any) -> Tensor:
    return _made((n, n if m is None else m), dtype=dtype, **options)


def _scalar_tensor(s: Any, *, dtype: Dtype = None, **options: Any) -> Tensor:
    return _made((), dtype=dtype, **options)


def _randint(high: int, size: Sequence[int], *, dtype: Dtype = None, **options: Any) -> Tensor:
    return _made(size, dtype=dtype or torch.int64, **options)


def _randint_low(low: int, high: int, size: Sequence[int], *, dtype: Dtype = None, **options: Any) -> Tensor:
    return _made(size, dtype=dtype or torch.int64, **options)


def _randperm(n: int, *, dtype: Dtype = None, **options: Any) -> Tensor:
    return _made((n,), dtype=dtype or torch.int64, **options)


def _triangle_indices(row: int, col: int, offset: int = 0, *, dtype: Dtype = None, **options: Any) -> int:
    """Number of places on and below the diagonal."""
    return sum(min(max(line + offset + 1, 0), col) for line in range(row))


def _tril_indices(row: int, col: int, offset: int = 0, *, dtype: Dtype = None, **options: Any) -> Tensor:
    count = _triangle_indices(row, col, offset)
    return _made((2, count), dtype=dtype or torch.int64, **options)


def _triu_indices(row: int, col: int, offset: int = 0, *, dtype: Dtype = None, **options: Any) -> Tensor:
    count = row * col - _triangle_indices(row, col, offset - 1)
    return _made((2, count), dtype=dtype or torch.int64, **options)


def _made_like(
    self: Tensor,
    *_: Any,
    dtype: Dtype = None,
    layout: Any = None,
    device: Any = None,
    memory_format: Any = None,
    **__: Any,
) -> Tensor:
    _check_here(layout, device)
    return formatted_like(self, dtype or self.dtype, memory_format)


def _new(self: Tensor, size: Sequence[int], *_: Any, dtype: Dtype = None, **options: Any) -> Tensor:
    return _made(size, dtype=dtype or self.dtype, **options)


def _new_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], *, dtype: Dtype = None, **options: Any
) -> Tensor:
    return _empty_strided(size, stride, dtype=dtype or self.dtype, **options)


def _drawn_like(self: Tensor, *_: Any, **__: Any) -> Tensor:
    return empty_like(self)


def _bernoulli(self: Tensor, **_: Any) -> Tensor:
    return dense(self.shape, self.dtype)


def _native_dropout(self: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return empty_like(self), dense(self.shape, torch.bool)
    return like(self, self.dtype), empty_like(self, torch.bool)


def _dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    return like(_pair(grad_output, mask), promote(grad_output, scale))


def _normal_float(mean: Tensor, *_: Any, **__: Any) -> Tensor:
    return dense(mean.shape, mean.dtype)


def _normal_tensor(mean: float, std: Tensor, **_: Any) -> Tensor:
    return dense(std.shape, std.dtype)


def _normal_size(mean: float, std: float, size: Sequence[int], **options: Any) -> Tensor:
    return _made(size, **options)


def _multinomial(self: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    return dense((*self.shape[:-1], num_samples), torch.int64)


_F: Final = Kind.FACTORY

ROWS: Final[tuple[OpDef, ...]] = (
    *rows(_F, _made, "empty.memory_format ones zeros _efficientzerotensor", cheap=True),
    OpDef(name="empty_strided", kind=_F, infer=_empty_strided, cheap=True),
    OpDef(name="full", kind=_F, infer=_full, cheap=True),
    OpDef(name="arange", kind=_F, infer=_arange_end, cheap=True),
    *rows(_F, _arange, "arange.start arange.start_step", cheap=True),
    *rows(
        _F,
        _spaced,
        """linspace linspace.Tensor_Tensor linspace.Tensor_Scalar linspace.Scalar_Tensor logspace
        logspace.Tensor_Tensor logspace.Tensor_Scalar logspace.Scalar_Tensor""",
        cheap=True,
    ),
    *rows(_F, _eye, "eye eye.m", cheap=True),
    OpDef(name="scalar_tensor", kind=_F, infer=_scalar_tensor, cheap=True),
    OpDef(name="tril_indices", kind=_F, infer=_tril_indices),
    OpDef(name="triu_indices", kind=_F, infer=_triu_indices),
    *rows(_F, _made_like, "empty_like ones_like zeros_like full_like", cheap=True),
    *rows(_F, _new, "new_empty new_full new_ones new_zeros", cheap=True),
    OpDef(name="new_empty_strided", kind=_F, infer=_new_strided, cheap=True),
    *rows(Kind.RANDOM, _made, "rand rand.generator randn randn.generator", random=True),
    *rows(
        Kind.RANDOM,
        _made_like,
        """rand_like rand_like.generator randn_like randn_like.generator randint_like
        randint_like.low_dtype randint_like.generator randint_like.low_generator_dtype""",
        random=True,
    ),
    *rows(Kind.RANDOM, _randint, "randint randint.generator", random=True),
    *rows(Kind.RANDOM, _randint_low, "randint.low randint.low_generator", random=True),
    *rows(Kind.RANDOM, _randperm, "randperm randperm.generator", random=True),
    *rows(
        Kind.RANDOM,
        _drawn_like,
        """bernoulli.p bernoulli.Tensor uniform normal_functional exponential cauchy
        geometric log_normal random random.from random.to poisson""",
        random=True,
    ),
    OpDef(name="bernoulli", kind=Kind.RANDOM, infer=_bernoulli, random=True),
    OpDef(name="native_dropout", kind=Kind.RANDOM, infer=_native_dropout, random=True),
    OpDef(name="native_dropout_backward", kind=Kind.POINTWISE, infer=_dropout_backward, cheap=True),
    OpDef(name="normal.Tensor_float", kind=Kind.RANDOM, infer=_normal_float, random=True),
    OpDef(name="normal.float_Tensor", kind=Kind.RANDOM, infer=_normal_tensor, random=True),
    OpDef(name="normal.float_float", kind=Kind.RANDOM, infer=_normal_size, random=True),
    OpDef(name="multinomial", kind=Kind.RANDOM, infer=_multinomial, random=True),
)
