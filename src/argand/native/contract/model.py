"""native.contract.model: matrix products as a question of ``native.choice``: ours or BLAS.

In: a ``ProductShape``. Out: who computes it, by what was measured or else by the model below; and how it is measured.

The model (times in microseconds, two cores of an EPYC with AVX-512, decision 0021): ours runs at 90% of the peak from 64 rows
on, BLAS at 78%; with few rows ours reads weights at the speed of memory, BLAS at a half to a fifth of it.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from argand.native.choice import Choices, Ways
from argand.native.codegen.target import Target
from argand.native.ir.types import DType, at_least
from argand.sizes.expressions import SizeInt

OURS: Final = "ours"
BLAS: Final = "blas"  # or whatever torch calls
KIND: Final = "product"
LEAST: Final = 1 << 16  # multiply-adds below which BLAS has answered before our code is compiled
NARROW: Final = 32  # columns below which a panel is mostly empty
FEW: Final = 8  # rows for which the right operand is read where it lies
COPIED: Final = 4  # rows from which on it pays to copy a panel that lies across
OPEN: Final = 16  # what an open size is taken for
_SUMMED: Final = (DType.F32, DType.BF16, DType.F16)


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

    @property
    def question(self) -> str:
        """Its sizes, types and layouts in words."""
        sizes = (*self.batch, self.rows, self.inner, self.columns)
        along = [
            "inner" if step == 1 else "across"
            for step in (self.left_strides[1], self.right_strides[0])
        ]
        listed = "x".join(
            str(OPEN) + "?" if isinstance(size, SizeInt) else str(size) for size in sizes
        )
        return f"{listed} {self.left.value} {along[0]} {self.right.value} {along[1]}"


def choose_product(
    shape: ProductShape, target: Target, choices: Choices, ways: Ways | None = None
) -> str:
    """Ours where the generated code can read the operands and is not slower; ``ways`` to measure, if it is worth it."""
    if not readable(shape, target) or not _work(shape) >= LEAST:
        return BLAS
    return choices.best(
        KIND, shape.question, expected(shape, target), None if _is_open(shape) else ways
    )


def readable(shape: ProductShape, target: Target) -> bool:
    """Whether there are functions for these operands: fixed columns, one stride of 1 in each operand."""
    if "+fma" not in target.features.split(","):
        return False
    sizes = (*shape.batch, shape.rows, shape.columns, shape.inner)
    if isinstance(shape.columns, SizeInt) or 0 in sizes or not at_least(shape.inner, 16):
        return False
    if not all(1 in strides for strides in (shape.left_strides, shape.right_strides)):
        return False
    if is_few(shape):
        return shape.left in _SUMMED and shape.right in _SUMMED
    return shape.left is DType.F32 and shape.right is DType.F32


def is_few(shape: ProductShape) -> bool:
    """Whether rows are so few that the right operand is read where it lies, column by column."""
    along = shape.left_strides[1] == 1 and shape.right_strides[0] == 1
    return along and not isinstance(shape.rows, SizeInt) and shape.rows <= FEW


def _is_open(shape: ProductShape) -> bool:
    return any(isinstance(size, SizeInt) for size in (*shape.batch, shape.rows, shape.inner))


def _work(shape: ProductShape) -> int:
    sizes = (*shape.batch, shape.rows, shape.columns, shape.inner)
    return math.prod(OPEN if isinstance(size, SizeInt) else size for size in sizes)


def expected(shape: ProductShape, target: Target) -> dict[str, float]:
    """Microseconds by way, for a processor of 3.6 GHz with one multiply-add of 16 lanes per cycle."""
    # multiply-adds per microsecond
    rate = 3600 * min(target.vector_bytes // 4, 16) * target.threads
    work = _work(shape)
    read = (
        work
        / max(OPEN if isinstance(shape.rows, SizeInt) else shape.rows, 1)
        * shape.right.row.bytes
    )
    reading = read / 20_000 / min(target.threads, 2)  # 20 GB/s for each of the first cores
    # the rest of a panel is computed in vain
    filled = 1.0 if shape.columns >= NARROW else shape.columns / NARROW
    ours = max(work / rate / 0.9 / filled, reading)
    if not isinstance(shape.rows, SizeInt) and shape.rows < COPIED and shape.right_strides[0] != 1:
        # panels are copied for hardly any use, from pieces of rows that no processor fetches ahead
        ours = 3 * reading
    blas = max(work / rate / 0.78, reading * (2 if is_few(shape) else 1.2)) + 1
    return {OURS: ours, BLAS: blas}
