"""ops.layout: shapes, strides and dtypes the way eager chooses them.

In: sizes, strides and dtypes of operands.  Out: those of the result. Pure functions of hashable
facts, memoised, because the layers of a model repeat the same few. The stride rules are those of
torch's TensorIterator: a result takes the memory order of its operands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NoReturn

import torch

from argand.ops import unreadable
from argand.support.platform import address_space

Shape = tuple[int, ...]  # its numbers are `SizeInt` where they are known at run time only
Sizes = Sequence[int]  # as arguments of an operator
Dims = int | Sequence[int] | None  # those an operator reduces
# Shape, stride and dtype of an operand; for a Python number the dtype is its Python type.
StridedOperand = tuple[Shape, Shape, Any]

_MANY: Final = 1 << 28  # elements, or bytes


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements of memory from the first to the last one of a tensor."""
    return (
        0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    )


def new(
    shape: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype, offset: int = 0
) -> torch.Tensor:
    """A fake: memory that nobody touches, ``offset`` elements into its storage."""
    if unreadable.is_wanted() and len(shape) == len(stride):
        bare = unreadable.storage((offset + extent(shape, stride)) * dtype.itemsize)
        return torch.empty(0, dtype=dtype).set_(bare, offset, shape, stride)
    if not offset and (math.prod(shape) < _MANY or 0 in shape or len(shape) != len(stride)):
        return torch.empty_strided(shape, stride, dtype=dtype)
    length = (offset + extent(shape, stride)) * dtype.itemsize
    if length >= 1 << 46:  # more than there are addresses: torch says it best
        return torch.empty_strided(shape, stride, dtype=dtype)
    storage = _address_space(length) if length > _MANY else torch.UntypedStorage(length)
    return torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)


def _address_space(length: int) -> torch.UntypedStorage:
    """A storage that no memory stands behind: malloc may not grant so much, or keep it."""
    return torch.frombuffer(address_space(length), dtype=torch.uint8).untyped_storage()


class NoAnswer(Exception):
    """A rule met something eager refuses, or that it does not know; torch itself is asked then."""


class DataDependent(RuntimeError):
    """An op whose result (its type, or a Python number) depends on the values in a tensor."""

    def __init__(self, op_name: str) -> None:
        super().__init__(f"the result of {op_name} depends on the data of a tensor")
        self.op_name = op_name


def refuse(why: str) -> NoReturn:
    """Leave the answer, most often an error message, to torch."""
    raise NoAnswer(why)


def contiguous_strides(shape: Shape) -> Shape:
    """Row-major strides; a size of 0 counts as 1."""
    stride = 1
    strides = []
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


contiguous: Final = lru_cache(maxsize=8192)(contiguous_strides)


@lru_cache(maxsize=1024)
def channels_last(shape: Shape) -> Shape:
    """Strides of a (N, C, spatial...) tensor whose channels are innermost."""
    batch, channels, *spatial = shape
    last = contiguous((batch, *spatial, channels))
    return (last[0], last[-1], *last[1:-1])


def is_contiguous(shape: Shape, stride: Shape) -> bool:
    """Row-major up to the strides of dimensions of size one."""
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size == 0:
            return True
        if size != 1:
            if step != expected:
                return 0 in shape
            expected *= size
    return True


def is_channels_last(shape: Shape, stride: Shape) -> bool:
    """Dense with channels innermost (four or five dimensions)."""
    if len(shape) not in (4, 5):
        return False
    expected = 1
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[dim] != 1:
            if stride[dim] != expected:
                return False
            expected *= shape[dim]
    return True


@lru_cache(maxsize=4096)
def is_dense(shape: Shape, stride: Shape) -> bool:
    """Whether the elements fill one block of memory, each place once."""
    if is_contiguous(shape, stride):
        return True
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True)):
        if size != 1:
            if step != expected:
                return False
            expected *= size
    return True


def _comes_after(strides: list[Shape], shape: Shape, dim: int, other: int) -> int:
    """1 if ``dim`` varies slower than ``other``, -1 if faster, 0 if no operand can tell."""
    for stride in strides:
        here, there = stride[dim], stride[other]
        if here == 0 or there == 0:
            continue
        if here != there:
            return 1 if here > there else -1
        if shape[dim] > shape[other]:
            return 1
    return 0


def _memory_order(strides: list[Shape], shape: Shape) -> list[int]:
    """Dimensions from fastest to slowest; ties keep row-major order."""
    order = list(range(len(shape) - 1, -1, -1))
    for place in range(1, len(order)):
        current = place
        for before in range(place - 1, -1, -1):
            verdict = _comes_after(strides, shape, order[before], order[current])
            if verdict > 0:
                order[before], order[current] = order[current], order[before]
                current = before
            elif verdict < 0:
                break
    return order


def _strides_in_order(shape: Shape, order: list[int], empty: int) -> Shape:
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim] if shape[dim] > 0 else empty
    return tuple(strides)


@lru_cache(maxsize=4096)
def preserved(shape: Shape, stride: Shape) -> Shape:
    """Strides of ``empty_like``: the same when dense, else dense in the same order."""
    if is_dense(shape, stride):
        return stride
    return _strides_in_order(shape, _memory_order([stride], shape), 1)


@lru_cache(maxsize=4096)
def broadcast_shapes(*shapes: Shape) -> Shape:
    """The common shape of operands; leaves a mismatch to torch."""
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for dim, size in enumerate(shape, offset):
            if size != 1:
                if result[dim] not in (1, size):
                    refuse("shapes do not broadcast")
                result[dim] = size
    return tuple(result)


def _broadcast_stride(shape: Shape, operand: Shape, stride: Shape) -> Shape:
    offset = len(shape) - len(operand)
    return (0,) * offset + tuple(
        0 if size == 1 and shape[dim] != 1 else step
        for dim, (size, step) in enumerate(zip(operand, stride, strict=True), offset)
    )


@lru_cache(maxsize=8192)
def iterator_layout(operands: tuple[tuple[Shape, Shape], ...]) -> tuple[Shape, Shape]:
    """Shape and strides of the result of an elementwise op over these (shape, stride) operands."""
    first_shape, first_stride = operands[0]
    if all(shape == first_shape for shape, _ in operands):
        if all(is_contiguous(shape, stride) for shape, stride in operands):
            return first_shape, contiguous(first_shape)
        if len(first_shape) == 4 and all(is_channels_last(*operand) for operand in operands):
            return first_shape, channels_last(first_shape)
        if is_dense(first_shape, first_stride) and all(
            stride == first_stride for _, stride in operands
        ):
            return first_shape, first_stride
    shape = broadcast_shapes(*(shape for shape, _ in operands))
    strides = [_broadcast_stride(shape, *operand) for operand in operands]
    order = _memory_order(strides, shape)
    if order == list(range(len(shape) - 1, -1, -1)):
        return shape, contiguous(shape)
    return shape, _strides_in_order(shape, order, 0)


def _rank(dtype: torch.dtype) -> int:
    """Bool, integer, floating, complex: the categories of type promotion."""
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype is torch.bool else 1


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """Promote operands of a stronger class by those of a weaker one (0-d tensors, numbers)."""
    if higher is None or lower is None:
        return higher or lower
    if _rank(lower) <= _rank(higher):
        return higher
    if _rank(higher) == 2:
        return higher.to_complex()
    return torch.promote_types(higher, lower)


def number_dtype(kind: type, default: torch.dtype) -> torch.dtype:
    """The dtype a Python number stands for in type promotion."""
    if issubclass(kind, bool):
        return torch.bool
    if issubclass(kind, int):
        return torch.int64
    return default.to_complex() if issubclass(kind, complex) else default


@lru_cache(maxsize=4096)
def _promote(operands: tuple[StridedOperand, ...], default: torch.dtype) -> torch.dtype:
    classes: list[torch.dtype | None] = [None, None, None]
    for shape, _, dtype in operands:
        if isinstance(dtype, torch.dtype):
            strength = 0 if shape else 1
        else:
            strength, dtype = 2, number_dtype(dtype, default)
        known = classes[strength]
        classes[strength] = dtype if known is None else torch.promote_types(known, dtype)
    result = _combine(_combine(classes[0], classes[1]), classes[2])
    return result or default


def operand_of(value: Any) -> StridedOperand:
    """The facts of a tensor or of a Python number."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype
    return (), (), type(value)


def promote(*values: Any) -> torch.dtype:
    """What ``torch.result_type`` says, for any number of tensors and Python numbers."""
    return _promote(
        tuple([operand_of(value) for value in values if value is not None]),
        torch.get_default_dtype(),
    )


@lru_cache(maxsize=8192)
def elementwise(
    operands: tuple[StridedOperand, ...], default: torch.dtype, float_result: bool
) -> tuple[Shape, Shape, torch.dtype]:
    """Shape, strides and computation dtype of an elementwise op with type promotion.

    On CPU the iterator first casts operands to the computation dtype; a cast makes a dense copy.
    """
    dtype = _promote(operands, default)
    if float_result and _rank(dtype) < 2:
        dtype = default
    layouts = tuple(
        (shape, stride if own is dtype else preserved(shape, stride))
        for shape, stride, own in operands
    )
    return *iterator_layout(layouts), dtype
