"""native.codegen.llvm.emit: one loop nest as an LLVM function.

In: Kernel. Out: the text of ``void name(ptr buffers, ptr sizes, i64 begin, i64 end)``, the sizes it wants
(those known at run time only: it loads them at its entry) and how many units its parallel range has. Vector loops run whole vectors, then the rest one by one; what does not
depend on the vector variable stays scalar. Any split of the range gives the same bits.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, final

from argand.native.codegen.llvm import arithmetic
from argand.native.codegen.llvm.accumulators import Accumulator
from argand.native.codegen.llvm.checks import Checks, guarded
from argand.native.codegen.llvm.control import counted, function
from argand.native.codegen.llvm.scope import Scope, VectorValue
from argand.native.codegen.math.random import emit_random
from argand.native.codegen.target import Target
from argand.native.codegen.text import Text, number, splat, vector
from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine, Var
from argand.native.ir.tensor import OPS
from argand.native.ir.types import DType, divides
from argand.runtime.marks import PLACES
from argand.sizes.expressions import SizeInt

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
class Emitter:
    """The text of one function in the making."""

    def __init__(self, name: str, kernel: ir.Kernel, target: Target, declarations: dict[str, None]) -> None:
        self.name, self.kernel = name, kernel
        self.checks: Checks | None = None
        self.number = 0  # of the kernel, for errors
        self.text = Text(declarations)
        self.target = target
        _, self.lanes = vector_lanes(kernel.body, target)
        self.pointers: dict[int, str] = {}
        self.sizes: dict[int, str] = {}  # sizes known at run time, where they are loaded to

    def size(self, size: int) -> str:
        """A size as an operand."""
        if not isinstance(size, SizeInt):
            return str(size)
        name = self.sizes.get(size)
        if name is None:
            position = len(self.sizes)
            name = self.sizes[size] = f"%z{position}"
            self.text.entry.append(f"  %y{position} = getelementptr i64, ptr %sizes, i64 {position}")
            self.text.entry.append(f"  {name} = load i64, ptr %y{position}")
        return name

    def _next(self, base: str, step: int, lane: int, before: str) -> str:
        """The index of a lane; ``before`` is that of the one before it."""
        if isinstance(step, SizeInt):
            return self.text.value(f"add nsw i64 {before}, {self.size(step)}") if lane else base
        return self.text.value(f"add nsw i64 {base}, {lane * step}")

    def run(self) -> Emitted:
        """The function of the kernel."""
        text, kernel = self.text, self.kernel
        self.take_buffers()
        for position, (dtype, _) in enumerate(kernel.scratch):
            self.pointers[-1 - position] = text.slot(dtype.row.memory, self._row_length(-1 - position))
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

    def take_buffers(self) -> None:
        """Load the pointers of all buffers."""
        for position in range(len(self.kernel.buffers)):
            self.text.entry.append(f"  %g{position} = getelementptr ptr, ptr %buffers, i64 {position}")
            self.text.entry.append(f"  %b{position} = load ptr, ptr %g{position}")
            self.pointers[position] = f"%b{position}"

    def function(self) -> str:
        """The finished text."""
        return function(self.text, f"define void @{self.name}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end)")

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
                variables[var] = text.value(f"urem i64 {rest}, {size}") if var != rows[0][0] else rest
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
            counted(self.text, low, high, 1, lambda i: self._block(loop.body, scope.inside(loop.var, i)))
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
        counted(self.text, one, high, 1, lambda i: self._block(loop.body, scope.inside(loop.var, i)), slot)

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
            counted(self.text, "0", high, 1, lambda i: self._block(loop.body, scope.inside(loop.var, i)))
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
                scope.values[result] = VectorValue(dtype, number(dtype.row.compute, value), 1, value)
            case ir.Coordinate(result, index):
                name, lanes = self._coordinate(index, scope)
                scope.values[result] = VectorValue(DType.I64, name, lanes)
            case ir.Load():
                scope.values[statement.result] = self._load(statement, scope)
            case ir.Compute(result, dtype, op, arguments, operand):
                values = [scope.values[a] for a in arguments]
                lanes = max(v.lanes for v in values)
                if op in ("uniform", "normal"):
                    seed, index_ = values[0].name, values[1].name
                    kind: Any = dtype.row.compute
                    name = emit_random(op, self.text, seed, 0, index_, kind, lanes)
                    scope.values[result] = VectorValue(dtype, name, lanes)
                    return
                names = [self._widen(v, lanes) for v in values]
                name = arithmetic.compute(self.text, op, names, operand, dtype, lanes)
                scope.values[result] = VectorValue(dtype, name, lanes)
            case ir.Store():
                self._store(statement, scope)
            case ir.Accumulate(result):
                position = ""
                if statement.op.startswith("arg"):
                    position, lanes = self._coordinate(statement.position, scope)
                    position = self._widen(VectorValue(DType.I64, position, lanes), scope.lanes)
                taken = self._widen(scope.values[statement.value], scope.lanes)
                scope.accumulators[result].add(self.text, taken, position, scope.lanes)
            case ir.Loop():
                self._loop(statement, scope)

    def _widen(self, value: VectorValue, lanes: int) -> str:
        """The value in every lane."""
        element = value.dtype.row.compute
        if value.constant is not None:
            return splat(element, lanes, value.constant)
        if value.lanes == lanes or lanes == 1:
            return value.name
        return self._splat(element, value.name, lanes)

    def _splat(self, element: str, name: str, lanes: int) -> str:
        kind = vector(element, lanes)
        first = self.text.value(f"insertelement {kind} poison, {element} {name}, i64 0")
        return self.text.value(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def _index(self, index: Affine, scope: Scope) -> str:
        """The scalar value of an index at the first lane."""
        if index in scope.indices:
            return scope.indices[index]
        text, total = self.text, ""
        for var, coefficient in index.terms:
            term = scope.variables[var]
            if coefficient != 1:
                term = text.value(f"mul nsw i64 {term}, {self.size(coefficient)}")
            total = text.value(f"add nsw i64 {total}, {term}") if total else term
        if index.constant or not total:
            total = text.value(f"add nsw i64 {total or 0}, {self.size(index.constant)}")
        scope.indices[index] = total
        return total

    def _step(self, access: ir.Load | ir.Store, scope: Scope) -> int:
        """Elements from one lane to the next."""
        if access.buffer < 0 and self.kernel.vector is not None:
            return int(scope.lanes > 1)
        return access.index.coefficient(scope.vector) if scope.vector is not None else 0

    def _base(self, access: ir.Load | ir.Store, scope: Scope) -> str:
        """The index of the first lane. A row on the stack has all lanes side by side."""
        base = self._index(access.index, scope)
        if access.buffer < 0 and self.kernel.vector is not None:
            return self.text.value(f"mul nsw i64 {base}, {self.lanes}")
        return base

    def _coordinate(self, index: Affine, scope: Scope) -> tuple[str, int]:
        base = self._index(index, scope)
        step = index.coefficient(scope.vector) if scope.vector is not None else 0
        if step == 0:
            return base, 1
        lanes = scope.lanes
        wide = self._splat("i64", base, lanes)
        known = 1 if isinstance(step, SizeInt) else step
        steps = f"<{', '.join(f'i64 {lane * known}' for lane in range(lanes))}>"
        if isinstance(step, SizeInt):
            factor = self._splat("i64", self.size(step), lanes)
            steps = self.text.value(f"mul <{lanes} x i64> {factor}, {steps}")
        return self.text.value(f"add <{lanes} x i64> {wide}, {steps}"), lanes

    def _address(self, buffer: int, memory: str, index: str, count: int = 1) -> str:
        """Where ``count`` elements begin."""
        address = self.text.value(f"getelementptr {memory}, ptr {self.pointers[buffer]}, i64 {index}")
        if self.checks is None:
            return address
        length = self.checks.lengths[buffer] if buffer >= 0 else self._row_length(buffer)
        pointers, mark = (address, self.pointers[self.checks.marks]), (buffer, self.number)
        return guarded(self.text, pointers, index, count, self.size(length), mark)

    def _row_length(self, buffer: int) -> int:
        """Elements of a row on the stack, which has all lanes side by side."""
        return self.kernel.scratch[-1 - buffer][1] * (1 if self.kernel.vector is None else self.lanes)

    def _load(self, load: ir.Load, scope: Scope) -> VectorValue:
        memory = load.dtype.row.memory
        step = self._step(load, scope)
        offsets = [(scope.values[v], stride, bound) for v, stride, bound in load.indirect]
        base = self._base(load, scope)
        scattered = [o for o in offsets if o[0].lanes > 1]
        for (value, _, bound), mark in reversed(list(zip(offsets, load.marks or (0,) * len(offsets), strict=True))):
            self._mark(load, value, bound, mark)  # the first of several stays
        for value, stride, bound in offsets:
            if value.lanes == 1:
                base = self._add_indirect(base, value.name, stride, bound)
        lanes = scope.lanes if step or scattered else 1
        if scattered or step not in (0, 1):
            name = self._load_lanes(load, base, step, scattered, lanes)
        else:
            kind, align = vector(memory, lanes), load.dtype.row.bytes
            address = self._address(load.buffer, memory, base, lanes)
            name = self.text.value(f"load {kind}, ptr {address}, align {align}")
        return VectorValue(load.dtype, self._from_memory(name, load.dtype, lanes), lanes)

    def _mark(self, load: ir.Load, value: VectorValue, bound: int, mark: int) -> None:
        """Set the flag when some lane's index is out of range; the caller raises what the mark says."""
        if not bound or load.flag < 0:
            return
        text, lanes = self.text, value.lanes
        limit = self._widen(self._limit(bound), lanes)
        bad = text.value(f"icmp ugt {vector('i64', lanes)} {value.name}, {limit}")
        if lanes > 1:
            bits = text.value(f"bitcast <{lanes} x i1> {bad} to i{lanes}")
            bad = text.value(f"icmp ne i{lanes} {bits}, 0")
        out, go = text.label("mark"), text.label("go")
        text.line(f"br i1 {bad}, label %{out}, label %{go}")
        text.begin_block(out)
        index = value.name
        if lanes > 1:
            first = text.intrinsic("cttz", f"i{lanes}", [bits], "i1 true")
            index = text.value(f"extractelement <{lanes} x i64> {index}, i{lanes} {first}")
        for place, stored in zip(PLACES, (str(mark + 1), index, self.size(bound)), strict=True):
            at = text.value(f"getelementptr i64, ptr {self.pointers[load.flag]}, i64 {place}")
            text.line(f"store i64 {stored}, ptr {at}")
        text.line(f"br label %{go}")
        text.begin_block(go)

    def _limit(self, bound: int) -> VectorValue:
        """The last index below a bound."""
        known = None if isinstance(bound, SizeInt) else bound - 1
        return VectorValue(DType.I64, self.size(bound - 1), 1, known)

    def _add_indirect(self, base: str, value: str, stride: int, bound: int) -> str:
        """base + value * stride, the value kept inside its dimension."""
        last = self.size(bound - 1)
        safe = self.text.intrinsic("umin", "i64", [value, last]) if bound else value
        scaled = self.text.value(f"mul i64 {safe}, {self.size(stride)}")
        return self.text.value(f"add i64 {base}, {scaled}")

    def _load_lanes(
        self, load: ir.Load, base: str, step: int, scattered: list[tuple[VectorValue, int, int]], lanes: int
    ) -> str:
        """Elements that do not lie behind each other, lane by lane."""
        text, memory = self.text, load.dtype.row.memory
        kind, result, place = vector(memory, lanes), "poison", base
        for lane in range(lanes):
            at = place = self._next(base, step, lane, place) if lane * step else base
            for value, stride, bound in scattered:
                one = text.value(f"extractelement <{lanes} x i64> {value.name}, i64 {lane}")
                at = self._add_indirect(at, one, stride, bound)
            address = self._address(load.buffer, memory, at)
            piece = text.value(f"load {memory}, ptr {address}, align {load.dtype.row.bytes}")
            result = text.value(f"insertelement {kind} {result}, {memory} {piece}, i64 {lane}")
        return result

    def _from_memory(self, name: str, dtype: DType, lanes: int) -> str:
        if dtype.is_half:
            return arithmetic.load_half(self.text, name, dtype, lanes)
        if dtype is DType.BOOL:
            return self.text.value(f"icmp ne {vector('i8', lanes)} {name}, {splat('i8', lanes, 0)}")
        return name

    def _store(self, store: ir.Store, scope: Scope) -> None:
        text, lanes, memory = self.text, scope.lanes, store.dtype.row.memory
        step = self._step(store, scope)
        value = scope.values[store.value]
        name = self._widen(value, lanes)
        if store.dtype.is_half:
            name = arithmetic.store_half(text, name, store.dtype, lanes)
        elif store.dtype is DType.BOOL:
            name = text.value(f"zext {vector('i1', lanes)} {name} to {vector('i8', lanes)}")
        base = self._base(store, scope)
        align = store.dtype.row.bytes
        if lanes == 1 or step == 1:
            address = self._address(store.buffer, memory, base, lanes)
            text.line(f"store {vector(memory, lanes)} {name}, ptr {address}, align {align}")
            return
        at = base
        for lane in range(lanes):
            at = self._next(base, step, lane, at)
            address = self._address(store.buffer, memory, at)
            piece = text.value(f"extractelement {vector(memory, lanes)} {name}, i64 {lane}")
            text.line(f"store {memory} {piece}, ptr {address}, align {align}")
