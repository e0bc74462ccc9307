"""ops.reductions: rows of ops that fold dimensions, scan along one, or order elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.layout import Dims, Shape, refuse
from argand.ops.pointwise import dense, empty_like
from argand.ops.table import Kind, OpDef, rows


def wrap(dim: int, rank: int) -> int:
    """A dimension counted from the front; a 0-d tensor has one dimension here."""
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        refuse("dimension out of range")
    return dim % rank


@lru_cache(maxsize=4096)
def _folded(shape: Shape, dims: tuple[int, ...], keepdim: bool) -> Shape:
    chosen = {wrap(dim, len(shape)) for dim in dims} if dims else set(range(len(shape)))
    if dims and len(chosen) != len(dims):
        refuse("dimension appears twice")
    if keepdim:
        return tuple(1 if dim in chosen else size for dim, size in enumerate(shape))
    return tuple(size for dim, size in enumerate(shape) if dim not in chosen)


def folded(self: Tensor, dim: Dims, keepdim: bool) -> Shape:
    """The shape after a reduction over these dimensions (None or empty: all)."""
    if dim is None:
        dim = ()
    return _folded(self.shape, (dim,) if isinstance(dim, int) else tuple(dim), keepdim)


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def accumulated(dtype: torch.dtype) -> torch.dtype:
    """What sums of this dtype are kept in."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64


def _sum(
    self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    return dense(folded(self, dim, keepdim), dtype or accumulated(self.dtype))


def _mean(
    self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    dtype = dtype or self.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        refuse("mean of integers")
    return dense(folded(self, dim, keepdim), dtype)


def _check_not_empty(self: Tensor, dim: Dims) -> None:
    """An extremum over nothing has no value."""
    dims = range(self.dim()) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    if self.dim() and any(self.shape[d] == 0 for d in dims):
        refuse("extremum of nothing")


def _extremum(self: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    _check_not_empty(self, list(dim) if isinstance(dim, Sequence) else dim)
    return dense(folded(self, dim, keepdim), self.dtype)


def _extremum_at(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    _check_not_empty(self, dim)
    shape = folded(self, dim, keepdim)
    return dense(shape, self.dtype), dense(shape, torch.int64)


def _aminmax(
    self: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    result = _extremum(self, () if dim is None else dim, keepdim)
    return result, torch.empty_like(result)


def _place_of_extremum(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    _check_not_empty(self, dim)
    return dense(folded(self, dim, keepdim), torch.int64)


def _truth(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    dtype = torch.uint8 if self.dtype is torch.uint8 else torch.bool
    if isinstance(dim, Sequence) and not dim:  # no dimension named: nothing is folded
        return dense(self.shape, dtype if not self.dim() else torch.bool)
    return dense(folded(self, dim, keepdim), dtype)


def _variance(
    self: Tensor, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> Tensor:
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        refuse("variance of integers")
    return dense(folded(self, dim, keepdim), _real(self.dtype))


def _variance_and_mean(
    self: Tensor, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    variance = _variance(self, dim, keepdim=keepdim)
    return variance, dense(variance.shape, self.dtype)


def _vector_norm(
    self: Tensor,
    ord: Any = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        refuse("norm of integers")
    if not self.numel() and (ord < 0 or ord == float("inf")):
        refuse("norm of nothing")
    return dense(folded(self, dim, keepdim), _real(dtype or self.dtype))


def _norm(
    self: Tensor,
    p: Any = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    return _vector_norm(self, 2 if p is None else p, dim, keepdim, dtype=dtype)


def _renorm(self: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    if (
        self.dim() < 2
        or isinstance(p, complex)
        or isinstance(maxnorm, complex)
        or p <= 0
        or maxnorm < 0
    ):
        refuse("norms of slices")
    wrap(dim, self.dim())
    return dense(self.shape, self.dtype)


def _logsumexp(self: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    dtype = self.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    return dense(folded(self, dim, keepdim), dtype)


def _scan(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    wrap(dim, self.dim())
    return dense(self.shape, dtype or accumulated(self.dtype))


def _scan_extremum(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    wrap(dim, self.dim())
    return dense(self.shape, self.dtype), dense(self.shape, torch.int64)


def _sort(self: Tensor, dim: int = -1, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    wrap(dim, self.dim())
    return empty_like(self), empty_like(self, torch.int64)


def _topk(
    self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    dim = wrap(dim, self.dim())
    shape = list(self.shape)
    if not 0 <= k <= (shape[dim] if shape else 1):
        refuse("k out of range")
    if shape:
        shape[dim] = k
    return dense(tuple(shape), self.dtype), dense(tuple(shape), torch.int64)


def _softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    wrap(dim, self.dim())
    dtype = self.dtype
    if not dtype.is_floating_point or half_to_float:
        refuse("softmax of integers, or a conversion CPUs do not have")
    return dense(self.shape, dtype)


def suggested_format(self: Tensor) -> torch.memory_format:
    """The memory format eager's kernels would pick after this tensor."""
    if self.dim() in (4, 5) and is_strictly_channels_last(self.shape, self.stride()):
        return torch.channels_last if self.dim() == 4 else torch.channels_last_3d
    return torch.contiguous_format


@lru_cache(maxsize=4096)
def is_strictly_channels_last(shape: Shape, stride: Shape) -> bool:
    """Whether strides say channels-last unambiguously, dense or not."""
    least = 0
    if stride[1] == 0:
        return False
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[dim] == 0 or stride[dim] < least:
            return False
        if dim == 0 and least == stride[1]:
            return False
        least = stride[dim] * (shape[dim] if shape[dim] > 1 else 1)
    return True


def _softmax_backward(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype
) -> Tensor:
    return dense(grad_output.shape, input_dtype)


_R: Final = Kind.REDUCE
_O: Final = Kind.OTHER

ROWS: Final[tuple[OpDef, ...]] = (
    *rows(_R, _sum, "sum sum.dim_IntList prod prod.dim_int nansum"),
    *rows(_R, _mean, "mean mean.dim"),
    *rows(_R, _extremum, "amax amin max min median nanmedian"),
    *rows(_R, _extremum_at, "max.dim min.dim median.dim nanmedian.dim"),
    *rows(_R, _aminmax, "aminmax"),
    *rows(_R, _place_of_extremum, "argmax argmin"),
    *rows(_R, _truth, "any any.dim any.dims all all.dim all.dims"),
    *rows(_R, _variance, "var.correction std.correction"),
    *rows(_R, _variance_and_mean, "var_mean.correction std_mean.correction"),
    *rows(_R, _vector_norm, "linalg_vector_norm"),
    *rows(
        _R, _norm, "norm.Scalar norm.ScalarOpt_dtype norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype"
    ),
    *rows(_R, _renorm, "renorm"),
    *rows(_R, _logsumexp, "logsumexp"),
    *rows(
        _R,
        lambda self, dim=None: dense(folded(self, dim, False), torch.int64),
        "count_nonzero count_nonzero.dim_IntList",
    ),
    *rows(_R, lambda self, other, p=2: _norm(self - other, p), "dist"),
    *rows(_R, _softmax, "_softmax _log_softmax"),
    *rows(_R, _softmax_backward, "_softmax_backward_data _log_softmax_backward_data"),
    *rows(
        _R, lambda self, dim, dtype=None: dense(self.shape, dtype or self.dtype), "_safe_softmax"
    ),
    *rows(_O, _scan, "cumsum cumprod logcumsumexp _logcumsumexp"),
    *rows(_O, _scan_extremum, "cummax cummin"),
    *rows(_O, _sort, "sort sort.stable"),
    *rows(_O, _topk, "topk"),
    *rows(_O, lambda self, k, dim=-1, keepdim=False: _extremum_at(self, dim, keepdim), "kthvalue"),
    *rows(_O, _extremum_at, "mode"),
)
