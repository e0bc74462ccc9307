"""ops.decompositions.reductions: softmax, moments and norms from sums, extrema and arithmetic."""

# ruff: noqa: D103 - each function is the aten op of its name, documented by torch

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.decompositions.precision import one_rounding, widen
from argand.ops.layout import Dims


def _dims(self: Tensor, dim: Dims) -> list[int]:
    if dim is None or dim == [] or dim == ():
        return list(range(self.dim()))
    return [dim] if isinstance(dim, int) else list(dim)


def _count(self: Tensor, dims: list[int]) -> int:
    return math.prod(self.shape[dim] for dim in dims) if self.dim() else 1


def _stable(self: Tensor, dim: int) -> Tensor:
    """Shifted so that the largest element along the dimension is 0."""
    return self - torch.amax(self, dim, keepdim=True) if self.numel() else self


@one_rounding
def _softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    # eager has none of integers, but nothing at all keeps its type
    if not self.is_floating_point():
        return NotImplemented
    powers = torch.exp(_stable(self, dim))
    return powers / powers.sum(dim, keepdim=True)


@one_rounding
def _log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    if not self.is_floating_point():
        return NotImplemented
    shifted = _stable(self, dim)
    return shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))


def _safe_softmax(self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax that gives zeros for a row of which everything is masked out."""
    masked_out = (self == float("-inf")).all(dim, keepdim=True)
    return torch.where(masked_out, 0.0, torch.softmax(self, dim, dtype=dtype))


def _softmax_backward(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype
) -> Tensor:
    grad, out = widen(grad_output), widen(output)
    weighted = grad * out
    return (weighted - out * weighted.sum(dim, keepdim=True)).to(input_dtype)


def _log_softmax_backward(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype
) -> Tensor:
    grad, out = widen(grad_output), widen(output)
    return (grad - torch.exp(out) * grad.sum(dim, keepdim=True)).to(input_dtype)


def logsumexp(self: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    if self.is_complex():
        return NotImplemented
    dims = _dims(self, dim)
    wide = widen(self if self.is_floating_point() else self.to(torch.get_default_dtype()))
    if not wide.numel():
        result = torch.log(torch.exp(wide).sum(dims, keepdim=keepdim))
    else:
        largest = torch.amax(wide, dims, keepdim=True)
        shift = torch.where(largest.abs() == float("inf"), 0.0, largest)
        total = torch.log(torch.exp(wide - shift).sum(dims, keepdim=keepdim))
        result = total + (shift if keepdim else shift.reshape(total.shape))
    return result.to(self.dtype) if self.is_floating_point() else result


def mean(
    self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    value = self if dtype is None else self.to(dtype)
    dims = _dims(value, dim)
    total = widen(value).sum(dims, keepdim=keepdim)
    return (total / _count(value, dims)).to(value.dtype)


def _var_mean(
    self: Tensor, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    if self.is_complex():
        return NotImplemented
    wide = widen(self)
    dims = _dims(wide, dim)
    count = _count(wide, dims)
    center = wide.sum(dims, keepdim=True) / count
    centered = wide - center
    freedom = max(count - (1 if correction is None else correction), 0)
    total = (centered * centered).sum(dims, keepdim=keepdim)
    variance = (
        total / freedom if freedom else total * float("inf") * 0 if count == 1 else total / 0.0
    )
    average = center if keepdim else center.reshape(variance.shape)
    return variance.to(self.dtype), average.to(self.dtype)


def _first(of: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Tensor, dim: Dims = None, **options: Any) -> Tensor:
        result = of(self, dim, **options)
        return result if result is NotImplemented else result[0]

    return run


def _std_mean(
    self: Tensor, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    result = _var_mean(widen(self), dim, correction=correction, keepdim=keepdim)
    if result is NotImplemented:
        return result
    return torch.sqrt(result[0]).to(self.dtype), result[1].to(self.dtype)


def linalg_vector_norm(
    self: Tensor,
    ord: Any = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    result_dtype = (dtype or self.dtype).to_real()
    size = widen(self.to(dtype) if dtype else self).abs()
    dims = _dims(size, dim)
    if ord != 0 and (not size.dim() or all(size.shape[k] == 1 for k in dims)):
        # of one number: no power of it is computed, which could overflow
        norm = size.sum(dims, keepdim=keepdim)
    elif ord == float("inf"):
        norm = torch.amax(size, dims, keepdim=keepdim)
    elif ord == float("-inf"):
        norm = torch.amin(size, dims, keepdim=keepdim)
    elif ord == 0:
        norm = (size != 0).to(size.dtype).sum(dims, keepdim=keepdim)
    elif ord == 1:
        norm = size.sum(dims, keepdim=keepdim)
    elif ord == 2:
        norm = torch.sqrt((size * size).sum(dims, keepdim=keepdim))
    else:
        norm = torch.pow(torch.pow(size, ord).sum(dims, keepdim=keepdim), 1.0 / ord)
    return norm.to(result_dtype)


def _norm(
    self: Tensor,
    p: Any = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    return linalg_vector_norm(self, 2 if p is None else p, dim, keepdim, dtype=dtype)


def renorm(self: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    others = [other for other in range(self.dim()) if other != dim % self.dim()]
    norms = torch.linalg.vector_norm(widen(self), p, others, keepdim=True)
    factor = torch.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)
    return self * factor.to(self.dtype.to_real())


def dist(self: Tensor, other: Tensor, p: Any = 2) -> Tensor:
    return linalg_vector_norm(self - other, p)


def count_nonzero(self: Tensor, dim: Dims = None) -> Tensor:
    return (self != 0).sum(_dims(self, dim))


def aminmax(
    self: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = _dims(self, dim)
    return torch.amin(self, dims, keepdim=keepdim), torch.amax(self, dims, keepdim=keepdim)


def nansum(
    self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    return torch.where(self != self, 0, self).sum(_dims(self, dim), keepdim=keepdim, dtype=dtype)


TABLE: Final[Mapping[str, Callable[..., Any]]] = {
    **{of.__name__: of for of in (_softmax, _log_softmax, _safe_softmax)},
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _log_softmax_backward,
    "mean.dim": mean,
    "var_mean.correction": _var_mean,
    "var.correction": _first(_var_mean),
    "std_mean.correction": _std_mean,
    "std.correction": _first(_std_mean),
    **{
        f"norm.{form}": _norm
        for form in ("Scalar", "ScalarOpt_dtype", "ScalarOpt_dim", "ScalarOpt_dim_dtype")
    },
    "count_nonzero.dim_IntList": count_nonzero,
}
