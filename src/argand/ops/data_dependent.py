"""ops.data_dependent: ops whose results have sizes that depend on data.

In: such an op on fakes, and `made`, which gives a new size between 0 and a limit. Out: its results as fakes of
that size. Only `capture` under `fullgraph` has such sizes; everywhere else these ops are DataDependent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.indexing import index_rule
from argand.ops.layout import DataDependent, broadcast_shapes, new
from argand.ops.pointwise import dense

Make = Callable[[int | None], int]  # of the largest it can be (None: no such limit)
_MASKS: Final = (torch.bool, torch.uint8)


def _nonzero(made: Make, self: Tensor) -> Tensor:
    count = made(self.numel())
    return new((count, self.dim()), (1, count), dtype=torch.int64)


def _masked_select(made: Make, self: Tensor, mask: Tensor) -> Tensor:
    return dense((made(math.prod(broadcast_shapes(self.shape, mask.shape))),), self.dtype)


def _index(made: Make, self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    opened: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in _MASKS:
            if self.shape[len(opened) : len(opened) + index.dim()] != index.shape:
                raise IndexError(
                    f"The shape of the mask {list(index.shape)} does not match {list(self.shape)}"
                )
            opened += _nonzero(made, index).unbind(1)
        else:
            opened.append(index)
    return index_rule(self, opened)


def _unique(made: Make, self: Tensor, dim: int | None = None) -> tuple[Tensor, ...]:
    count = made(self.numel() if dim is None else self.shape[dim])
    rest = (
        []
        if dim is None
        else [size for place, size in enumerate(self.shape) if place != dim % self.dim()]
    )
    values = dense((count, *rest), self.dtype).movedim(0, dim or 0)
    inverse = dense(self.shape if dim is None else (self.shape[dim],), torch.int64)
    return values, inverse, dense((count,), torch.int64)


def _repeat_interleave(made: Make, repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    return dense((made(None) if output_size is None else output_size,), repeats.dtype)


def _item(made: Make, self: Tensor) -> int:
    if self.dtype is torch.bool or self.dtype.is_floating_point or self.dtype.is_complex:
        raise DataDependent("item of a tensor that has no integers")
    return made(-1)


RULES: Final[dict[str, Callable[..., Any]]] = {
    "aten.nonzero.default": _nonzero,
    "aten.masked_select.default": _masked_select,
    "aten.index.Tensor": _index,
    "aten._unique2.default": lambda made, self, *_: _unique(made, self),
    "aten.unique_dim.default": lambda made, self, dim, *_: _unique(made, self, dim),
    "aten.unique_consecutive.default": lambda made, self, _=0, __=0, dim=None: _unique(
        made, self, dim
    ),
    "aten.repeat_interleave.Tensor": _repeat_interleave,
    "aten._local_scalar_dense.default": _item,
}
