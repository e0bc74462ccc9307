"""ops.matmul: rows of matrix products and attention."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.layout import broadcast_shapes, refuse
from argand.ops.pointwise import dense, empty_like, over
from argand.ops.table import Kind, OpDef, rows


def _check_product(first: Tensor, second: Tensor, rank: int) -> None:
    if first.dim() != rank or second.dim() != rank or first.shape[-1] != second.shape[-2]:
        refuse("shapes cannot be multiplied")
    if first.dtype is not second.dtype:
        refuse("different dtypes")


def _mm(self: Tensor, mat2: Tensor) -> Tensor:
    _check_product(self, mat2, 2)
    return dense((self.shape[0], mat2.shape[1]), self.dtype)


def _bmm(self: Tensor, mat2: Tensor) -> Tensor:
    _check_product(self, mat2, 3)
    if self.shape[0] != mat2.shape[0]:
        refuse("batch sizes differ")
    return dense((self.shape[0], self.shape[1], mat2.shape[2]), self.dtype)


def _added(bias: Tensor, product: Tensor) -> Tensor:
    shape = product.shape
    if bias.dtype is not product.dtype:
        refuse("different dtypes")
    if bias.shape != shape and broadcast_shapes(bias.shape, shape) != shape:
        refuse("the added tensor does not broadcast")
    return product


def _addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *_: Any, **__: Any) -> Tensor:
    return _added(self, dense(_bmm(batch1, batch2).shape[1:], batch1.dtype))


def _mv(self: Tensor, vec: Tensor) -> Tensor:
    return dense(_mm(self, vec.unsqueeze(-1)).shape[:1], self.dtype)


_ternary: Final = over(0, 1, 2)


def _addr(self: Tensor, vec1: Tensor, vec2: Tensor, *_: Any, **__: Any) -> Tensor:
    if vec1.dim() != 1 or vec2.dim() != 1 or vec1.dtype is not vec2.dtype:
        refuse("not vectors of one dtype")
    shape = (vec1.shape[0], vec2.shape[0])
    _added(self, dense(shape, vec1.dtype))
    return _ternary(self.expand(shape), vec1.unsqueeze(1), vec2)


def _int_mm(self: Tensor, mat2: Tensor) -> Tensor:
    if self.dtype is not torch.int8 or mat2.dtype is not torch.int8:
        refuse("not bytes with a sign")
    return dense(tuple(_mm(self, mat2).shape), torch.int32)


def _dot(self: Tensor, tensor: Tensor) -> Tensor:
    if self.dim() != 1 or self.shape != tensor.shape or self.dtype is not tensor.dtype:
        refuse("not vectors of one length")
    return dense((), self.dtype)


def _heads_last(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """(batch, heads, length, ...) kept in memory as (batch, length, heads, ...)."""
    batch, heads, length, *rest = shape
    return dense((batch, length, heads, *rest), dtype).transpose(1, 2)


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Any:
    if query.dim() != 4 or not query.dtype is key.dtype is value.dtype:
        refuse("not (batch, heads, length, size) of one dtype")
    statistics = torch.float64 if query.dtype is torch.float64 else torch.float32
    if value.shape[3] != query.shape[3]:
        refuse("head sizes differ")
    return empty_like(query), _heads_last(query.shape[:3], statistics)


def _attention_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> Any:
    return tuple(_heads_last(tensor.shape, tensor.dtype) for tensor in (query, key, value))


_M: Final = Kind.MATMUL

ROWS: Final[tuple[OpDef, ...]] = (
    OpDef(name="mm", kind=_M, infer=_mm),
    OpDef(name="_int_mm", kind=_M, infer=_int_mm),
    OpDef(name="bmm", kind=_M, infer=_bmm),
    *rows(
        _M,
        lambda self, mat1, mat2, *_, **__: _added(self, _mm(mat1, mat2)),
        "addmm _addmm_activation",
    ),
    OpDef(
        name="baddbmm",
        kind=_M,
        infer=lambda self, batch1, batch2, *_, **__: _added(self, _bmm(batch1, batch2)),
    ),
    OpDef(name="addbmm", kind=_M, infer=_addbmm),
    OpDef(name="mv", kind=_M, infer=_mv),
    OpDef(
        name="addmv", kind=_M, infer=lambda self, mat, vec, *_, **__: _added(self, _mv(mat, vec))
    ),
    OpDef(name="addr", kind=_M, infer=_addr),
    *rows(_M, _dot, "dot vdot"),
    OpDef(name="_scaled_dot_product_flash_attention_for_cpu", kind=_M, infer=_attention),
    OpDef(
        name="_scaled_dot_product_flash_attention_for_cpu_backward",
        kind=_M,
        infer=_attention_backward,
    ),
)
