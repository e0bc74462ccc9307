"""ops.factories: rows of ops that make tensors from sizes and numbers, random ones among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from argand.ops.layout import new, number_dtype, refuse
from argand.ops.pointwise import (
    check_here,
    dense,
    dense_second,
    dense_self,
    empty_like,
    like_self,
    made_like,
    over,
)
from argand.ops.table import Kind, OpDef, rows

_unary: Final = over(0)
Dtype: TypeAlias = torch.dtype | None


def _made(
    size: Sequence[int], *_: Any, dtype: Dtype = None, memory_format: Any = None, **options: Any
) -> Tensor:
    check_here(**options)
    dtype = dtype or torch.get_default_dtype()
    if memory_format is not None:
        return torch.empty(size, dtype=dtype, memory_format=memory_format)
    if any(extent < 0 for extent in size):
        refuse("negative size")
    return dense(tuple(size), dtype)


def _empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Dtype = None, **options: Any
) -> Tensor:
    check_here(**options)
    return new(size, stride, dtype=dtype or torch.get_default_dtype())


def _full(size: Sequence[int], fill_value: Any, *, dtype: Dtype = None, **options: Any) -> Tensor:
    dtype = dtype or number_dtype(type(fill_value), torch.get_default_dtype())
    return _made(size, dtype=dtype, **options)


def _arange_length(start: Any, end: Any, step: Any) -> int:
    if step == 0 or (end - start) * step < 0:
        refuse("empty or endless range")
    if all(isinstance(value, int) for value in (start, end, step)):
        return -((start - end) // step)
    return math.ceil((end - start) / step)


def _arange(start: Any, end: Any, step: Any = 1, *, dtype: Dtype = None, **options: Any) -> Tensor:
    check_here(**options)
    if dtype is None:
        whole = all(isinstance(value, int) for value in (start, end, step))
        dtype = torch.int64 if whole else torch.get_default_dtype()
    elif not dtype.is_floating_point:
        start, end, step = int(start), int(end), int(step)
    return dense((_arange_length(start, end, step),), dtype)


def _spaced(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Dtype = None, **options: Any
) -> Tensor:
    if dtype is None and any(
        isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex())
        for value in (start, end)
    ):
        dtype = torch.get_default_dtype().to_complex()
    return _made((steps,), dtype=dtype, **options)


def _whole(size: Sequence[int], *, dtype: Dtype = None, **options: Any) -> Tensor:
    return _made(size, dtype=dtype or torch.int64, **options)


def _below_diagonal(row: int, col: int, offset: int) -> int:
    """Number of places on and below the diagonal."""
    return sum(min(max(line + offset + 1, 0), col) for line in range(row))


def _triu_indices(row: int, col: int, offset: int = 0, **options: Any) -> Tensor:
    return _whole((2, row * col - _below_diagonal(row, col, offset - 1)), **options)


def _new(self: Tensor, size: Sequence[int], *_: Any, dtype: Dtype = None, **options: Any) -> Tensor:
    return _made(size, dtype=dtype or self.dtype, **options)


def _new_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], *, dtype: Dtype = None, **options: Any
) -> Tensor:
    return _empty_strided(size, stride, dtype=dtype or self.dtype, **options)


def _native_dropout(self: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return empty_like(self), dense(self.shape, torch.bool)
    return _unary(self), empty_like(self, torch.bool)


_F: Final = Kind.FACTORY
_R: Final = Kind.RANDOM

ROWS: Final[tuple[OpDef, ...]] = (
    *rows(_F, _made, "empty.memory_format ones zeros _efficientzerotensor"),
    *rows(_F, _empty_strided, "empty_strided"),
    *rows(_F, _full, "full"),
    *rows(_F, lambda end, **options: _arange(0, end, **options), "arange"),
    *rows(_F, _arange, "arange.start arange.start_step"),
    *rows(
        _F, _spaced, "linspace linspace.Tensor_Tensor linspace.Tensor_Scalar linspace.Scalar_Tensor"
    ),
    *rows(
        _F, _spaced, "logspace logspace.Tensor_Tensor logspace.Tensor_Scalar logspace.Scalar_Tensor"
    ),
    *rows(
        _F, lambda n, m=None, **options: _made((n, n if m is None else m), **options), "eye eye.m"
    ),
    *rows(_F, lambda s, **options: _made((), **options), "scalar_tensor"),
    *rows(
        _F,
        lambda row, col, offset=0, **more: _whole((2, _below_diagonal(row, col, offset)), **more),
        "tril_indices",
    ),
    *rows(_F, _triu_indices, "triu_indices"),
    *rows(_F, made_like, "empty_like ones_like zeros_like full_like"),
    *rows(_F, _new, "new_empty new_full new_ones new_zeros"),
    *rows(_F, _new_strided, "new_empty_strided"),
    *rows(_R, _made, "rand rand.generator randn randn.generator"),
    *rows(
        _R, made_like, "rand_like rand_like.generator randn_like randn_like.generator randint_like"
    ),
    *rows(
        _R,
        made_like,
        "randint_like.low_dtype randint_like.generator randint_like.low_generator_dtype",
    ),
    # the size comes last
    *rows(
        _R,
        lambda *args, **more: _whole(args[-1], **more),
        "randint randint.generator randint.low randint.low_generator",
    ),
    *rows(_R, lambda n, **options: _whole((n,), **options), "randperm randperm.generator"),
    *rows(_R, like_self, "bernoulli.Tensor uniform normal_functional exponential cauchy geometric"),
    *rows(_R, like_self, "log_normal random random.from random.to"),
    *rows(_R, dense_self, "bernoulli bernoulli.p poisson normal.Tensor_float"),
    *rows(_R, _native_dropout, "native_dropout"),
    *rows(Kind.POINTWISE, over(0, 1, to_float=True), "native_dropout_backward"),
    *rows(_R, dense_second, "normal.float_Tensor"),
    *rows(_R, lambda mean, std, size, **options: _made(size, **options), "normal.float_float"),
    *rows(
        _R,
        lambda self, count, *_, **__: dense((*self.shape[:-1], count), torch.int64),
        "multinomial",
    ),
)
