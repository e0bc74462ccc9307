"""native.choice: which of several ways to compute the same thing is taken on this machine.

In: what is computed, as a shape with a text of its own, and the ways there are, each with the time a model expects.
Out: the way to take. What was measured on this machine, and is in the disk cache, counts more than any model.
"""

from __future__ import annotations

import enum
import math
from typing import Final, NamedTuple

from argand.native.codegen.target import Target
from argand.native.ir.types import DType, at_least
from argand.sizes.expressions import SizeInt


class Way(enum.Enum):
    """Who computes a product."""

    OURS = "ours"
    BLAS = "blas"  # or whatever torch calls


OURS: Final = Way.OURS
LEAST: Final = 1 << 16  # multiply-adds below which BLAS has answered before our code is compiled
NARROW: Final = 32  # columns below which a panel is mostly empty
FEW: Final = 8
OPEN: Final = 16


class ProductShape(NamedTuple):
    """Matrix products of one size; strides are those of rows and columns."""

    batch: tuple[int, int]
    rows: int
    columns: int
    inner: int
    left: DType
    right: DType
    left_strides: tuple[int, int]
    right_strides: tuple[int, int]


def choose_product(shape: ProductShape, target: Target) -> Way:
    """Ours where the generated code can read the operands and the model says that it is not slower."""
    return Way.OURS if _readable(shape, target) and _pays(shape) else Way.BLAS


def _readable(shape: ProductShape, target: Target) -> bool:
    """Whether there are functions for these operands: fixed columns, one stride of 1 in each operand."""
    if "+fma" not in target.features.split(","):
        return False
    if isinstance(shape.columns, SizeInt) or 0 in (*shape.batch, shape.rows, shape.columns, shape.inner):
        return False
    if not all(1 in strides for strides in (shape.left_strides, shape.right_strides)):
        return False
    if is_few(shape):
        return shape.left in _SUMMED and shape.right in _SUMMED
    return shape.left is DType.F32 and shape.right is DType.F32


_SUMMED: Final = (DType.F32, DType.BF16, DType.F16)


def is_few(shape: ProductShape) -> bool:
    """Whether rows are so few that the right operand is read where it lies, column by column."""
    along = shape.left_strides[1] == 1 and shape.right_strides[0] == 1
    return along and not isinstance(shape.rows, SizeInt) and shape.rows <= FEW


def _pays(shape: ProductShape) -> bool:
    """The model: ours from some work on, unless panels are mostly empty; open sizes are taken for 16."""
    sizes = (*shape.batch, shape.rows, shape.columns, shape.inner)
    work = math.prod(OPEN if isinstance(size, SizeInt) else size for size in sizes)
    return work >= LEAST and shape.columns >= NARROW and at_least(shape.inner, 16)
