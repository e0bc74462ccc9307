"""native.codegen.triton.layout: how the loops of a kernel lie on blocks of threads.

In: Kernel. Out: ``FlatLayout`` (every element of a block is a point of all loops: pointwise work) or ``RowLayout`` (a block has
some rows, points of the outer loops; the loops inside become one axis each, whole in a block or piece by piece).
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias, final

from argand.native.codegen.triton.source import Refused
from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine, Var
from argand.native.target import Gpu
from argand.sizes.expressions import SizeInt
from argand.support.dataclass import dataclass

_SHORT = 1 << 31  # what 32 bits can count


class GridAxis(NamedTuple):
    """Loops as one range, the innermost last."""

    name: str
    loops: tuple[tuple[Var, int], ...]

    @property
    def extent(self) -> int:
        """Points of the range."""
        return math.prod(extent for _, extent in self.loops)

    def factor(self, index: Affine) -> int | None:
        """The number by which an index grows from point to point; None: it does not grow evenly."""
        step: int | None = None
        inside = 1
        for var, extent in reversed(self.loops):
            if type(extent) is int and extent == 1:
                continue
            own = index.coefficient(var)
            if step is None:
                step = own
            elif own != step * inside:
                return None
            inside = inside * extent
        return 0 if step is None else step


@final
@dataclass(frozen=True, slots=True)
class LoopChain:
    """Loops inside of each other and the statements of all of them, in order."""

    axis: GridAxis
    statements: ir.Block


@final
@dataclass(frozen=True, slots=True)
class FlatLayout:
    """All loops are one range."""

    axis: GridAxis
    statements: ir.Block


@final
@dataclass(frozen=True, slots=True)
class RowLayout:
    """RowLayout of work; ``whole``: a block has all of a row at once, so values of a row stay in registers."""

    axis: GridAxis
    parts: tuple[ir.Statement | LoopChain, ...]
    whole: bool


KernelLayout: TypeAlias = FlatLayout | RowLayout


def lay_out(kernel: ir.Kernel, gpu: Gpu) -> KernelLayout:
    """The layout of a kernel; Refused where there is none."""
    loops = [s for s in kernel.body if isinstance(s, ir.Loop)]
    reduces = any(isinstance(s, ir.Accumulate) for s in ir.walk(kernel.body))
    outside = any(isinstance(s, ir.Store) for s in kernel.body)
    if not loops or (len(loops) == 1 and not reduces and not outside and not kernel.scratch):
        inner, statements = _flattened(kernel.body)
        return FlatLayout(GridAxis("i", (*kernel.outer, *inner)), statements)
    axis = GridAxis("x", kernel.outer)
    parts = tuple(_chain(s, kernel) if isinstance(s, ir.Loop) else s for s in kernel.body)
    lengths = [part.axis.extent for part in parts if isinstance(part, LoopChain)]
    known = not any(isinstance(length, SizeInt) for length in lengths)
    whole = known and max(lengths) <= gpu.row_elements
    if kernel.scratch and not whole:
        raise Refused("a row is kept that no block can hold")
    return RowLayout(axis, parts, whole)


def _flattened(block: ir.Block) -> tuple[tuple[tuple[Var, int], ...], ir.Block]:
    loops: tuple[tuple[Var, int], ...] = ()
    statements: list[ir.Statement] = []
    for position, statement in enumerate(block):
        if not isinstance(statement, ir.Loop):
            statements.append(statement)
            continue
        if statement.limit is not None or position != len(block) - 1:
            raise Refused("loops of other shapes than a nest of ranges")
        inner, inside = _flattened(statement.body)
        loops = ((statement.var, statement.extent), *inner)
        statements.extend(inside)
    return loops, tuple(statements)


def _chain(loop: ir.Loop, kernel: ir.Kernel) -> LoopChain:
    """The loops as one axis; where rows are kept, in the order of the kept row."""
    loops, statements = _flattened((loop,))
    kept = [s.index for s in statements if isinstance(s, ir.Load | ir.Store) and s.buffer < 0]
    if kept:
        loops = tuple(sorted(loops, key=lambda item: -kept[0].coefficient(item[0])))
    return LoopChain(GridAxis("r", loops), statements)


def is_wide(kernel: ir.Kernel, axes: list[GridAxis]) -> bool:
    """Whether places in memory need 64 bits."""
    extents = {var: extent for axis in axes for var, extent in axis.loops}
    if any(isinstance(extent, SizeInt) for extent in extents.values()):
        return True
    for statement in ir.walk(kernel.body):
        for index in ir.indices_of(statement):
            parts = [abs(c) * extents[v] for v, c in index.terms]
            if any(isinstance(part, SizeInt) for part in (index.constant, *parts)):
                return True
            if abs(index.constant) + sum(parts) >= _SHORT:
                return True
    return any(axis.extent >= _SHORT for axis in axes)
