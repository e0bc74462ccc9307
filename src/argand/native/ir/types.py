"""native.ir.types: element types and sizes of both IRs.

``DType`` rows say how an element lies in memory and in which LLVM type it is computed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import torch

from argand.ops.layout import Shape as Shape
from argand.ops.layout import contiguous_strides as contiguous_strides  # of both IRs too
from argand.sizes.expressions import SizeInt
from argand.sizes.facts import compare

Size: TypeAlias = int  # a SizeInt where it is known only at run time: its value is but a sample


class _Row(NamedTuple):
    torch_dtype: torch.dtype
    memory: str  # LLVM type of one element in memory
    compute: str  # LLVM type its arithmetic runs in
    bytes: int


class DType(enum.Enum):
    """Element types; half types are computed in float, bool is one byte in memory."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    @property
    def row(self) -> _Row:
        """The facts of this type."""
        return _ROWS[self]

    @property
    def is_float(self) -> bool:
        """A floating type."""
        return self in _FLOATS

    @property
    def is_half(self) -> bool:
        """A floating type that is computed in float."""
        return self in (DType.F16, DType.BF16)

    @property
    def is_signed(self) -> bool:
        """An integer type with a sign."""
        return self in (DType.I64, DType.I32, DType.I16, DType.I8)


_ROWS: Final[Mapping[DType, _Row]] = {
    DType.F64: _Row(torch.float64, "double", "double", 8),
    DType.F32: _Row(torch.float32, "float", "float", 4),
    DType.F16: _Row(torch.float16, "half", "float", 2),
    DType.BF16: _Row(torch.bfloat16, "i16", "float", 2),
    DType.I64: _Row(torch.int64, "i64", "i64", 8),
    DType.I32: _Row(torch.int32, "i32", "i32", 4),
    DType.I16: _Row(torch.int16, "i16", "i16", 2),
    DType.I8: _Row(torch.int8, "i8", "i8", 1),
    DType.U8: _Row(torch.uint8, "i8", "i8", 1),
    DType.BOOL: _Row(torch.bool, "i8", "i1", 1),
}
_FLOATS: Final = frozenset({DType.F64, DType.F32, DType.F16, DType.BF16})
FROM_TORCH: Final[Mapping[torch.dtype, DType]] = {
    row.torch_dtype: dtype for dtype, row in _ROWS.items()
}


def divides(by: Size, size: Size) -> bool:
    """Whether a size is a multiple of another, whatever its value will be."""
    rest = size % by if by else size
    return rest == 0 and type(rest) is int


def at_least(size: Size, other: Size) -> bool:
    """Whether a size is not below another, whatever their values will be."""
    if isinstance(size, SizeInt) or isinstance(other, SizeInt):
        return compare(">=", size, other) is True
    return size >= other


def numel(shape: Shape) -> Size:
    """Number of elements."""
    return math.prod(shape)
