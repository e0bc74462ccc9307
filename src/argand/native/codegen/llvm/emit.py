"""native.codegen.llvm.emit: one loop nest as an LLVM function.

In: Kernel. Out: the text of ``void name(ptr buffers, ptr sizes, i64 begin, i64 end)``, the sizes it wants (those known
at run time only: it loads them at its entry) and how many units its parallel range has. Vector loops run whole vectors,
then the rest one by one; what does not depend on the vector variable stays scalar. Any split of the range gives the
same bits.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple, final

from argand.native.codegen.llvm import arithmetic
from argand.native.codegen.llvm.accumulators import Accumulator
from argand.native.codegen.llvm.checks import Checks
from argand.native.codegen.llvm.control import counted, function
from argand.native.codegen.llvm.memory import BufferAccess
from argand.native.codegen.llvm.scope import Scope, VectorValue
from argand.native.codegen.target import Target
from argand.native.codegen.text import number
from argand.native.ir import loops as ir
from argand.native.ir.affine import Var
from argand.native.ir.tensor import OPS
from argand.native.ir.types import DType, divides
from argand.sizes.expressions import SizeInt
from argand.support.later import later

if TYPE_CHECKING:
    from argand.native.codegen.math import random
else:
    random = later("argand.native.codegen.math.random")


BLOCK = 1024  # elements per parallel unit of a flat loop
FEW = 4  # elements worth a vector of their own at the end of a row
LONG = 16  # vectors in a row to which its end does not matter


class Emitted(NamedTuple):
    """A function and its parallel range: units, and the work of one unit in vector instructions."""

    text: str
    total: int
    work: int
    sizes: tuple[int, ...] = ()


def emit_kernel(
    name: str,
    kernel: ir.Kernel,
    target: Target,
    declarations: dict[str, None],
    checks: Checks | None = None,
    number: int = 0,
) -> Emitted:
    """The function of a kernel; with ``checks``, no access leaves its buffer without the number being noted."""
    emitter = Emitter(name, kernel, target, declarations)
    emitter.checks, emitter.number = checks, number
    return emitter.run()


def vector_lanes(block: ir.Block, target: Target) -> tuple[int, int]:
    """Lanes of a full register of the narrowest type computed with, and of a vector loop."""
    sizes, cost, reduces = [], 0, False
    for statement in ir.walk(block):
        if isinstance(statement, ir.Load | ir.Store | ir.Compute | ir.Accumulate):
            compute = DType.F32 if statement.dtype.is_half else statement.dtype
            if compute is not DType.BOOL:
                sizes.append(compute.row.bytes)
        if isinstance(statement, ir.Compute):
            cost += OPS[statement.op].cost
        reduces = reduces or isinstance(statement, ir.Accumulate)
    lanes = target.vector_bytes // max(min(sizes, default=1), 2)
    if reduces:
        return lanes, lanes * (4 if cost <= 6 else 2 if cost <= 30 else 1)  # several chains of sums
    return lanes, lanes * (2 if cost <= 10 else 1)


@final
class Emitter(BufferAccess):
    """The text of one function in the making."""

    def __init__(
        self, name: str, kernel: ir.Kernel, target: Target, declarations: dict[str, None]
    ) -> None:
        super().__init__(kernel, target, vector_lanes(kernel.body, target)[1], declarations)
        self.name = name

    def run(self) -> Emitted:
        """The function of the kernel."""
        text, kernel = self.text, self.kernel
        self.take_buffers()
        for position, (dtype, _) in enumerate(kernel.scratch):
            self.pointers[-1 - position] = text.slot(
                dtype.row.memory, self.row_length(-1 - position)
            )
        scope = Scope({}, {})
        rows = [(v, n) for v, n in kernel.outer if v != kernel.vector]
        if rows:
            total = self._rows(rows)
        elif kernel.vector is not None:
            total = self._flat_outer(scope)
        elif self._is_flat(kernel.body):
            total = self._flat(scope)
        else:
            total = 1
            self._block(kernel.body, scope)
        return Emitted(self.function(), total, self._work(total), tuple(self.sizes))

    def function(self) -> str:
        """The finished text."""
        return function(
            self.text, f"define void @{self.name}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end)"
        )

    def _work(self, total: int) -> int:
        """Rough count of vector instructions per unit."""
        elements = math.prod(extent for _, extent in self.kernel.outer)

        def inside(block: ir.Block) -> int:
            cost = 0
            for statement in block:
                if isinstance(statement, ir.Loop):
                    cost += statement.extent * inside(statement.body)
                elif isinstance(statement, ir.Compute):
                    cost += OPS[statement.op].cost
                else:
                    cost += 1
            return cost

        return int(max(1, elements * inside(self.kernel.body) // max(total, 1) // 8))

    # --- the parallel range ------------------------------------------------------------------

    def _rows(self, rows: list[tuple[Var, int]]) -> int:
        """Rows that differ in the innermost variable only are a loop: coordinates are divided out once for all of them."""
        text, (*around, (last, length)) = self.text, rows

        def row(variables: dict[Var, str], place: str) -> None:
            inner = Scope({}, {**variables, last: place})
            if self.kernel.vector is None:
                self._block(self.kernel.body, inner)
            else:
                extent = dict(self.kernel.outer)[self.kernel.vector]
                loop = ir.Loop(self.kernel.vector, extent, self.kernel.body, vector=True)
                self.vector_loop(loop, inner, "0", self.size(extent))

        def run(unit: str) -> str:
            variables, rest = dict[Var, str](), unit
            for var, extent in reversed(rows):
                size = self.size(extent)
                variables[var] = (
                    text.value(f"urem i64 {rest}, {size}") if var != rows[0][0] else rest
                )
                rest = text.value(f"udiv i64 {rest}, {size}")
            left = text.value(f"sub nsw i64 {self.size(length)}, {variables[last]}")
            ready = text.value(f"sub nsw i64 %end, {unit}")
            count = text.intrinsic("smin", "i64", [left, ready])
            high = text.value(f"add nsw i64 {variables[last]}, {count}")
            counted(self.text, variables[last], high, 1, functools.partial(row, variables))
            return text.value(f"add nsw i64 {unit}, {count}")

        counted(self.text, "%begin", "%end", 1, run if around else functools.partial(row, {}))
        return math.prod(extent for _, extent in rows)

    def _flat_outer(self, scope: Scope) -> int:
        """Only the vector variable is outer: its range is split in blocks."""
        var = self.kernel.vector
        assert var is not None
        extent = dict(self.kernel.outer)[var]
        low, high, total = self._block_range(extent, self.lanes)
        loop = ir.Loop(var, extent, self.kernel.body, vector=True)
        self.vector_loop(loop, scope, low, high)
        return total

    @staticmethod
    def _is_flat(body: ir.Block) -> bool:
        loops = [s for s in body if isinstance(s, ir.Loop)]
        stored = any(isinstance(s, ir.Store) for s in body)
        reduces = any(isinstance(s, ir.Accumulate) for s in ir.walk(body))
        return len(loops) == 1 and isinstance(body[-1], ir.Loop) and not reduces and not stored

    def _flat(self, scope: Scope) -> int:
        """One loop and nothing else: the loop itself is split in blocks."""
        loop = self.kernel.body[-1]
        assert isinstance(loop, ir.Loop)
        self._block(self.kernel.body[:-1], scope)
        low, high, total = self._block_range(loop.extent, BLOCK)
        if loop.vector:
            self.vector_loop(loop, scope, low, high)
        else:
            counted(
                self.text, low, high, 1, lambda i: self._block(loop.body, scope.inside(loop.var, i))
            )
        return total

    def _block_range(self, extent: int, block: int) -> tuple[str, str, int]:
        text = self.text
        low = text.value(f"mul i64 %begin, {block}")
        wide = text.value(f"mul i64 %end, {block}")
        size = self.size(extent)
        past = text.value(f"icmp sgt i64 {wide}, {size}")
        high = text.value(f"select i1 {past}, i64 {size}, i64 {wide}")
        return low, high, -(-extent // block)

    # --- loops -------------------------------------------------------------------------------

    def vector_loop(self, loop: ir.Loop, scope: Scope, low: str, high: str) -> None:
        """Whole vectors from low to high, then what is left."""
        slot = ""
        for lanes in self._widths(loop):
            if lanes > 1:
                body = functools.partial(self._vector_body, loop, scope, lanes)
                slot = counted(self.text, "" if slot else low, high, lanes, body, slot)
                if divides(lanes, loop.extent) and loop.limit is None:
                    return
        one = "" if slot else low
        counted(
            self.text,
            one,
            high,
            1,
            lambda i: self._block(loop.body, scope.inside(loop.var, i)),
            slot,
        )

    def _vector_body(self, loop: ir.Loop, scope: Scope, lanes: int, counter: str) -> None:
        self._block(loop.body, scope.inside(loop.var, counter, lanes))

    def _widths(self, loop: ir.Loop) -> tuple[int, ...]:
        """Lanes of a vector loop and of the steps after it, which leave few elements to be taken one by one."""
        (width, lanes), extent = vector_lanes(loop.body, self.target), loop.extent
        is_open = isinstance(extent, SizeInt)
        while lanes > max(extent, 1) and not is_open:
            lanes //= 2
        shorter = lanes
        while not divides(shorter, extent) and shorter > width:
            shorter //= 2
        # No rest means half the code; else the longer vectors are worth it.
        if divides(shorter, extent):
            return (shorter,)
        if is_open:
            return tuple(sorted({lanes, width, min(width, FEW)}, reverse=True))
        found, rest = [lanes], extent % lanes if extent < LONG * lanes else 0
        while rest >= FEW:
            found.append(1 << (rest.bit_length() - 1))
            rest -= found[-1]
        return tuple(found)

    def _loop(self, loop: ir.Loop, scope: Scope) -> None:
        text = self.text
        outermost = not scope.accumulators
        found = [s for s in ir.walk(loop.body) if isinstance(s, ir.Accumulate)]
        if outermost:
            nested = [s for s in (loop, *ir.walk(loop.body)) if isinstance(s, ir.Loop) and s.vector]
            lanes: tuple[int, ...] = (scope.lanes,)
            if nested and scope.vector is None:
                lanes = self._widths(nested[-1])
            for statement in found:
                accumulator = Accumulator(text, statement, lanes, scope.lanes)
                scope.accumulators[statement.result] = accumulator
        high = self.size(loop.extent)
        if loop.limit is not None:
            high = text.intrinsic("smin", "i64", [high, self._index(loop.limit, scope)])
        if loop.vector and scope.vector is None:
            self.vector_loop(loop, scope, "0", high)
        else:
            counted(
                self.text, "0", high, 1, lambda i: self._block(loop.body, scope.inside(loop.var, i))
            )
        if outermost:
            for statement in found:
                name = scope.accumulators.pop(statement.result).finish(text)
                dtype = statement.dtype
                scope.values[statement.result] = VectorValue(dtype, name, scope.lanes)

    # --- statements --------------------------------------------------------------------------

    def _block(self, block: ir.Block, scope: Scope) -> None:
        for statement in block:
            self._statement(statement, scope)

    def _statement(self, statement: ir.Statement, scope: Scope) -> None:
        match statement:
            case ir.Literal(result, dtype, value):
                scope.values[result] = VectorValue(
                    dtype, number(dtype.row.compute, value), 1, value
                )
            case ir.Coordinate(result, index):
                name, lanes = self.coordinate(index, scope)
                scope.values[result] = VectorValue(DType.I64, name, lanes)
            case ir.Load():
                scope.values[statement.result] = self.load(statement, scope)
            case ir.Compute(result, dtype, op, arguments, operand):
                values = [scope.values[a] for a in arguments]
                lanes = max(v.lanes for v in values)
                if op in ("uniform", "normal"):
                    seed, index_ = values[0].name, values[1].name
                    kind: Any = dtype.row.compute
                    name = random.emit_random(
                        op, self.text, seed=seed, stream=0, index=index_, element=kind, lanes=lanes
                    )
                    scope.values[result] = VectorValue(dtype, name, lanes)
                    return
                names = [self.widen(v, lanes) for v in values]
                name = arithmetic.compute(self.text, op, names, operand, dtype, lanes)
                scope.values[result] = VectorValue(dtype, name, lanes)
            case ir.Store():
                self.store(statement, scope)
            case ir.Accumulate(result):
                position = ""
                if statement.op.startswith("arg"):
                    position, lanes = self.coordinate(statement.position, scope)
                    position = self.widen(VectorValue(DType.I64, position, lanes), scope.lanes)
                taken = self.widen(scope.values[statement.value], scope.lanes)
                scope.accumulators[result].add(self.text, taken, position, scope.lanes)
            case ir.Loop():
                self._loop(statement, scope)
