"""native.codegen.llvm.memory: how the function of a loop nest reads and writes its buffers.

In: a Load or Store and the scope it stands in. Out: lines of LLVM text: whole vectors where elements lie behind each
other, lane by lane where they do not; indices that data decides are kept inside their dimension and marked.
"""

from __future__ import annotations

from argand.native.codegen.llvm import arithmetic
from argand.native.codegen.llvm.checks import Checks, guarded
from argand.native.codegen.llvm.scope import Scope, VectorValue
from argand.native.codegen.target import Target
from argand.native.codegen.text import Text, splat, vector
from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine
from argand.native.ir.types import DType
from argand.runtime.marks import PLACES
from argand.sizes.expressions import SizeInt


class BufferAccess:
    """The buffers, rows on the stack and sizes of one function in the making."""

    def __init__(
        self, kernel: ir.Kernel, target: Target, lanes: int, declarations: dict[str, None]
    ) -> None:
        self.kernel, self.target, self.lanes = kernel, target, lanes
        self.checks: Checks | None = None
        self.number = 0  # of the kernel, for errors
        self.text = Text(declarations)
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
            self.text.entry.append(
                f"  %y{position} = getelementptr i64, ptr %sizes, i64 {position}"
            )
            self.text.entry.append(f"  {name} = load i64, ptr %y{position}")
        return name

    def _next(self, base: str, step: int, lane: int, before: str) -> str:
        """The index of a lane; ``before`` is that of the one before it."""
        if isinstance(step, SizeInt):
            return self.text.value(f"add nsw i64 {before}, {self.size(step)}") if lane else base
        return self.text.value(f"add nsw i64 {base}, {lane * step}")

    def take_buffers(self) -> None:
        """Load the pointers of all buffers."""
        for position in range(len(self.kernel.buffers)):
            self.text.entry.append(
                f"  %g{position} = getelementptr ptr, ptr %buffers, i64 {position}"
            )
            self.text.entry.append(f"  %b{position} = load ptr, ptr %g{position}")
            self.pointers[position] = f"%b{position}"

    def widen(self, value: VectorValue, lanes: int) -> str:
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
        return self.text.value(
            f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer"
        )

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

    def coordinate(self, index: Affine, scope: Scope) -> tuple[str, int]:
        """The value of an index in every lane, and how many lanes it has."""
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
        address = self.text.value(
            f"getelementptr {memory}, ptr {self.pointers[buffer]}, i64 {index}"
        )
        if self.checks is None:
            return address
        length = self.checks.lengths[buffer] if buffer >= 0 else self.row_length(buffer)
        pointers, mark = (address, self.pointers[self.checks.marks]), (buffer, self.number)
        return guarded(self.text, pointers, index, count, self.size(length), mark)

    def row_length(self, buffer: int) -> int:
        """Elements of a row on the stack, which has all lanes side by side."""
        return self.kernel.scratch[-1 - buffer][1] * (
            1 if self.kernel.vector is None else self.lanes
        )

    def load(self, load: ir.Load, scope: Scope) -> VectorValue:
        """What a Load gives."""
        memory = load.dtype.row.memory
        step = self._step(load, scope)
        offsets = [(scope.values[v], stride, bound) for v, stride, bound in load.indirect]
        base = self._base(load, scope)
        scattered = [o for o in offsets if o[0].lanes > 1]
        for (value, _, bound), mark in reversed(
            list(zip(offsets, load.marks or (0,) * len(offsets), strict=True))
        ):
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
        limit = self.widen(self._limit(bound), lanes)
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
        self,
        load: ir.Load,
        base: str,
        step: int,
        scattered: list[tuple[VectorValue, int, int]],
        lanes: int,
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

    def store(self, store: ir.Store, scope: Scope) -> None:
        """Write what a Store says."""
        text, lanes, memory = self.text, scope.lanes, store.dtype.row.memory
        step = self._step(store, scope)
        value = scope.values[store.value]
        name = self.widen(value, lanes)
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
