"""ops.indexing: rows of ops that read or write at computed places, join tensors, or copy views."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.layout import (
    DataDependent,
    Shape,
    broadcast_shapes,
    contiguous,
    iterator_layout,
    new,
    promote,
    refuse,
)
from argand.ops.pointwise import dense, dense_self, empty_like, like_self, masked
from argand.ops.reductions import suggested_format, wrap
from argand.ops.table import Kind, OpDef, rows


def _embedding(weight: Tensor, indices: Tensor, *_: Any) -> Tensor:
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        refuse("a matrix and integer indices")
    return dense((*indices.shape, weight.shape[1]), weight.dtype)


@lru_cache(maxsize=4096)
def _indexed(
    shape: Shape, stride: Shape, indices: tuple[tuple[Shape, Shape] | None, ...]
) -> tuple[Shape, Shape]:
    """Layout of ``self[indices]``: the indexed dimensions are replaced by the indices' own."""
    places = [place for place, index in enumerate(indices) if index is not None]
    replacement = broadcast_shapes(*(index[0] for index in indices if index is not None))
    dims = list(range(len(shape)))
    before = places[0]
    if places != list(range(places[0], places[-1] + 1)):
        dims = places + [dim for dim in dims if dim not in places]
        before = 0
    front, rest = dims[:before], dims[before + len(places) :]
    source = (
        (*(shape[d] for d in front), *replacement, *(shape[d] for d in rest)),
        (*(stride[d] for d in front), *[0] * len(replacement), *(stride[d] for d in rest)),
    )
    operands = [source]
    for index in indices:
        if index is not None:
            expanded = (1,) * (len(replacement) - len(index[0])) + index[0]
            steps = tuple(
                0 if size == 1 and full != 1 else step
                for size, full, step in zip(
                    expanded,
                    replacement,
                    (0,) * (len(replacement) - len(index[0])) + index[1],
                    strict=True,
                )
            )
            ahead, behind = _steps_around(replacement, steps)
            ones = ((1,) * before, (1,) * len(rest))
            operands.append(
                (
                    (*ones[0], *replacement, *ones[1]),
                    (*[ahead] * before, *steps, *[behind] * len(rest)),
                )
            )
    return iterator_layout(tuple(operands))


def _steps_around(shape: Shape, steps: Shape) -> tuple[int, int]:
    """Strides of dimensions of size one that a view puts before and after the others."""
    if not shape:
        return 1, 1
    base, length = steps[-1], 1
    for dim in range(len(shape) - 1, -1, -1):
        length *= shape[dim]
        if dim and shape[dim - 1] != 1 and steps[dim - 1] != length * base:
            base, length = steps[dim - 1], 1
    return length * base, steps[-1]


def index_rule(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """``self[indices]``."""
    facts: list[tuple[Shape, Shape] | None] = []
    for index in indices:
        if index is not None and index.dtype not in (torch.int64, torch.int32):
            if index.dtype in (torch.bool, torch.uint8):
                raise DataDependent("aten.index.Tensor with a mask")
            refuse("integer indices")
        facts.append(None if index is None else (index.shape, index.stride()))
    if len(indices) > self.dim() or not any(fact is not None for fact in facts):
        refuse("too many indices, or none")
    facts.extend([None] * (self.dim() - len(facts)))
    for place, fact in enumerate(facts):
        if fact is not None and self.shape[place] == 0 and 0 not in fact[0]:
            refuse("index into nothing")
    return new(*_indexed(self.shape, self.stride(), tuple(facts)), dtype=self.dtype)


def _same_strides(self: Tensor, *_: Any, **__: Any) -> Tensor:
    """Gaps in memory are kept too, as long as no two elements share a place."""
    if any(step == 0 and size > 1 for size, step in zip(self.shape, self.stride(), strict=True)):
        return empty_like(self)
    return new(self.shape, self.stride(), dtype=self.dtype)


def _index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    dim = wrap(dim, self.dim())
    if index.dim() > 1 or index.dtype not in (torch.int64, torch.int32):
        refuse("a vector of indices")
    shape = list(self.shape)
    if shape:
        shape[dim] = index.numel()
    return dense(tuple(shape), self.dtype)


def _gather(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    dim = wrap(dim, self.dim())
    if index.dtype not in (torch.int64, torch.int32):
        refuse("integer indices")
    if index.numel() and self.dim():
        if index.dim() != self.dim():
            refuse("index and input have one rank")
        for place, (size, limit) in enumerate(zip(index.shape, self.shape, strict=True)):
            if place != dim and size > limit:
                refuse("index larger than the input")
    return dense(index.shape, self.dtype)


def _scattered(self: Tensor, dim: int, index: Tensor, *_: Any, **__: Any) -> Tensor:
    wrap(dim, self.dim())
    if index.numel() and index.dtype not in (torch.int64, torch.int32):
        refuse("integer indices")
    return dense(self.shape, self.dtype)


def _input_sized(grad_output: Tensor, input_sizes: Sequence[int], *_: Any) -> Tensor:
    return dense(tuple(input_sizes), grad_output.dtype)


def _is_legacy_empty(tensor: Tensor) -> bool:
    """A 1-d tensor of size 0 joins with anything."""
    return tensor.dim() == 1 and tensor.shape[0] == 0


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    joined = [tensor for tensor in tensors if not _is_legacy_empty(tensor)]
    dtype = tensors[0].dtype
    if any(tensor.dtype is not dtype for tensor in tensors):
        dtype = promote(*tensors)
    if not joined:
        return dense((0,), dtype)
    shape = list(joined[0].shape)
    if not shape:
        refuse("0-d tensors")
    dim = wrap(dim, len(shape))
    total = 0
    for tensor in joined:
        other = tensor.shape
        total += other[dim] if len(other) == len(shape) else refuse("ranks differ")
        if other[:dim] != joined[0].shape[:dim] or other[dim + 1 :] != joined[0].shape[dim + 1 :]:
            refuse("sizes differ")
    shape[dim] = total
    formats = {suggested_format(tensor) for tensor in tensors}
    memory_format = formats.pop() if len(formats) == 1 else torch.contiguous_format
    if memory_format is torch.contiguous_format:
        return dense(tuple(shape), dtype)
    return torch.empty(shape, dtype=dtype, memory_format=memory_format)


def _roll(self: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Pieces of one dimension after the other put together."""
    if not self.numel():
        return empty_like(self)
    for dim in dims:
        self = _cat([self], dim)  # all pieces have its memory format
    return self if dims else dense(self.shape, self.dtype)


def _stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    first = tensors[0]
    if any(t.shape != first.shape or t.dtype is not first.dtype for t in tensors):
        refuse("shapes or dtypes differ")
    dim = wrap(dim, first.dim() + 1)
    if dim == first.dim():
        return _cat([tensor.unsqueeze(dim) for tensor in tensors], dim)
    # Eager joins along the dimension and splits it: the memory format of the parts stays.
    return _cat(tensors, dim).view((*first.shape[:dim], len(tensors), *first.shape[dim:]))


def _repeat(self: Tensor, repeats: Sequence[int]) -> Tensor:
    if len(repeats) < self.dim() or min(repeats, default=0) < 0:
        refuse("repeats do not fit")
    padded = (1,) * (len(repeats) - self.dim()) + tuple(self.shape)
    shape = tuple(size * times for size, times in zip(padded, repeats, strict=True))
    return dense(shape, self.dtype)


def _searched(sorted_sequence: Any, self: Any, *, out_int32: bool = False, **_: Any) -> Tensor:
    shape = self.shape if isinstance(self, Tensor) else ()
    return dense(shape, torch.int32 if out_int32 else torch.int64)


def _bucketize(self: Any, boundaries: Any, *, out_int32: bool = False, **_: Any) -> Tensor:
    return _searched(boundaries, self, out_int32=out_int32)


def _diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    rank = self.dim() + 1
    first, second = wrap(dim1, rank), wrap(dim2, rank)
    if first == second:
        refuse("diagonal needs two dimensions")
    size = self.shape[-1] + abs(offset)
    rest = list(self.shape[:-1])
    for place in sorted((first, second)):
        rest.insert(place, size)
    return dense(tuple(rest), self.dtype)


def _trace(self: Tensor) -> Tensor:
    if self.dim() != 2:
        refuse("a matrix")
    is_whole = not (self.is_floating_point() or self.is_complex())
    return dense((), torch.int64 if is_whole else self.dtype)


def _isin(elements: Any, test_elements: Any, **_: Any) -> Tensor:
    return dense(elements.shape if isinstance(elements, Tensor) else (), torch.bool)


def _view_copy(self: Tensor, size: Sequence[int]) -> Tensor:
    return dense(new((), (), dtype=self.dtype).expand(self.shape).reshape(size).shape, self.dtype)


def _copy_of(name: str) -> Any:
    """The rule of ``x_copy``: a fresh tensor shaped like the view."""
    packet, _, overload = name.partition(".")

    def rule(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        view = getattr(getattr(torch.ops.aten, packet), overload or "default")
        result = view(self, *args, **kwargs)
        if isinstance(result, Tensor):
            return new(result.shape, contiguous(result.shape), dtype=result.dtype)
        return [new(part.shape, contiguous(part.shape), dtype=part.dtype) for part in result]

    base = packet + "_copy" + (f".{overload}" if overload else "")
    return OpDef(name=base, kind=Kind.OTHER, infer=rule)


def _unsafe_view(self: Tensor, size: Sequence[int]) -> Tensor:
    # Memory of its own, as the schema promises, though torch makes a view: of a value nobody else sees.
    view = self.detach().view(size)
    return new(view.shape, view.stride(), dtype=view.dtype)


def _unsafe_split(self: Tensor, split: Any, dim: int = 0) -> list[Tensor]:
    # Memories of their own: torch promises nothing about writes to one of them.
    parts = self.split(split, dim)
    return [new(part.shape, part.stride(), dtype=part.dtype) for part in parts]


COPIED_VIEWS: Final = """expand permute transpose.int t slice.Tensor select.int squeeze
squeeze.dim squeeze.dims unsqueeze diagonal unfold as_strided unbind.int split.Tensor
split_with_sizes"""

_G: Final = Kind.GATHER
_S: Final = Kind.SCATTER
_O: Final = Kind.OTHER

ROWS: Final[tuple[OpDef, ...]] = (
    *rows(_G, _embedding, "embedding"),
    *rows(
        _S,
        lambda grad, _, count, *__: dense((count, grad.shape[-1]), grad.dtype),
        "embedding_dense_backward",
    ),
    *rows(_G, index_rule, "index.Tensor _unsafe_index.Tensor"),
    *rows(_G, _index_select, "index_select"),
    *rows(_G, _gather, "gather"),
    *rows(_G, lambda self, index: dense(index.shape, self.dtype), "take"),
    *rows(_S, _scattered, "scatter.src scatter.value scatter.reduce scatter.value_reduce"),
    *rows(_S, _scattered, "scatter_add scatter_reduce.two"),
    *rows(
        _S,
        like_self,
        "index_put _unsafe_index_put _index_put_impl index_fill.int_Scalar index_fill.int_Tensor put",
    ),
    *rows(_S, _same_strides, "slice_scatter select_scatter diagonal_scatter as_strided_scatter"),
    *rows(_S, dense_self, "index_copy index_add index_reduce"),
    *rows(_S, masked, "masked_scatter"),
    *rows(_S, _input_sized, "slice_backward select_backward diagonal_backward unfold_backward"),
    *rows(_G, _cat, "cat"),
    *rows(_G, _stack, "stack _stack"),
    *rows(Kind.POINTWISE, like_self, "fill.Scalar fill.Tensor zero"),
    *rows(_G, _repeat, "repeat"),
    *rows(_G, like_self, "flip"),
    *rows(_G, _roll, "roll"),
    *rows(Kind.POINTWISE, dense_self, "tril triu"),
    *rows(_O, _searched, "searchsorted.Tensor searchsorted.Scalar"),
    *rows(Kind.POINTWISE, _bucketize, "bucketize.Tensor bucketize.Scalar"),
    *rows(_S, _diag_embed, "diag_embed"),
    *rows(Kind.REDUCE, _trace, "trace"),
    *rows(_O, _isin, "isin.Tensor_Tensor isin.Tensor_Scalar isin.Scalar_Tensor"),
    *rows(Kind.VIEW, _unsafe_view, "_unsafe_view"),
    *rows(_O, _view_copy, "view_copy _reshape_copy"),
    *rows(_O, _unsafe_split, "unsafe_split.Tensor unsafe_split_with_sizes"),
    *map(_copy_of, COPIED_VIEWS.split()),
)
