"""native.codegen.triton.emit: one loop nest as a Triton function.

In: Kernel, the device, the user's lines behind its values. Out: ``KernelSource``: the text, the functions it calls,
its parameters and how many points its grid has. Values are tensors of a block: of all its points (``i``), of its rows
(``x``, a column) or of places in a row (``r``, a line); what does not depend on one is not repeated along it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, final

from argand.native.codegen.triton import arithmetic
from argand.native.codegen.triton.blocks import BlockShape, blocks_for
from argand.native.codegen.triton.layout import (
    FlatLayout,
    GridAxis,
    KernelLayout,
    LoopChain,
    RowLayout,
    is_wide,
    lay_out,
)
from argand.native.codegen.triton.reductions import Reduction
from argand.native.codegen.triton.source import Refused, SourceLines, computed, literal
from argand.native.codegen.triton.traces import shown_line
from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine, Var
from argand.native.ir.types import DType
from argand.native.target import Gpu
from argand.runtime.marks import PLACES
from argand.sizes.expressions import SizeInt


class KernelSource(NamedTuple):
    """A Triton function, and what is needed to call it."""

    name: str
    text: str
    needed: tuple[str, ...]  # functions it calls
    buffers: tuple[DType, ...]
    sizes: tuple[int, ...]  # known at run time only: arguments after the buffers
    points: int  # of the grid, before it is cut in blocks
    blocks: tuple[BlockShape, ...]  # ways to cut it, the one that the model likes best first


class _Value(NamedTuple):
    text: str
    dtype: DType
    axes: frozenset[str]  # that it differs along
    rounded: bool = False  # of a half type: memory has the same number


def emit_kernel(
    name: str, kernel: ir.Kernel, gpu: Gpu, traces: Mapping[ir.ValueId, str]
) -> KernelSource:
    """The source of a kernel; Refused says why there is none."""
    return _Emitter(name, kernel, gpu, traces).run()


@final
class _Emitter:
    def __init__(
        self, name: str, kernel: ir.Kernel, gpu: Gpu, traces: Mapping[ir.ValueId, str]
    ) -> None:
        self.name, self.kernel, self.gpu, self.traces = name, kernel, gpu, traces
        self.layout: KernelLayout = lay_out(kernel, gpu)
        self.lines = SourceLines()
        self.needed: dict[str, None] = {}
        self.sizes: dict[int, str] = {}
        self.values: dict[ir.ValueId, _Value] = {}
        self.digits: dict[Var, str] = {}
        self.rows: dict[int, tuple[_Value, int]] = {}  # rows that are kept, and their length
        self.known: dict[
            tuple[int, Affine, GridAxis | None], _Value
        ] = {}  # what lies in memory, as far as it is at hand
        self.length: int = 0  # of the row that ``r`` counts
        self.written: set[int] = set()  # buffers that an earlier loop wrote to
        self.axes: list[GridAxis] = []
        self.mask: dict[str, str] = {}

    def run(self) -> KernelSource:
        """The function of the kernel."""
        layout = self.layout
        chains = (
            [part.axis for part in layout.parts if isinstance(part, LoopChain)]
            if isinstance(layout, RowLayout)
            else []
        )
        self.wide = is_wide(self.kernel, [layout.axis, *chains])
        blocks = blocks_for(self.kernel, layout, self.gpu)
        if isinstance(layout, FlatLayout):
            self._flat(layout)
        else:
            self._rows(layout)
        names = [*(f"b{k}" for k in range(len(self.kernel.buffers))), *self.sizes.values()]
        constants = [f"{constant}: tl.constexpr" for constant in blocks[0].sizes]
        head = f"@triton.jit\ndef {self.name}({', '.join([*names, *constants])}):"
        text = "\n".join([head, *self.lines.lines, ""])
        points = layout.axis.extent
        return KernelSource(
            name=self.name,
            text=text,
            needed=tuple(self.needed),
            buffers=self.kernel.buffers,
            sizes=tuple(self.sizes),
            points=points,
            blocks=blocks,
        )

    # --- blocks ------------------------------------------------------------------------------

    def _program(self) -> str:
        return "tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)"

    def _flat(self, layout: FlatLayout) -> None:
        self.axes, self.mask = [layout.axis], {"i": "mask"}
        self.lines.add(f"i = {self._program()} * BLOCK + tl.arange(0, BLOCK)")
        self.lines.add(f"mask = i < {self.size(layout.axis.extent)}")
        self._block(layout.statements)

    def _rows(self, layout: RowLayout) -> None:
        self.axes, self.mask = [layout.axis], {"x": "xmask"}
        self.lines.add(f"x = {self._program()} * XBLOCK + tl.arange(0, XBLOCK)[:, None]")
        self.lines.add(f"xmask = x < {self.size(layout.axis.extent)}")
        self._digits(layout.axis)
        for part in layout.parts:
            if isinstance(part, LoopChain):
                self._chain(part, layout)
            else:
                self._statement(part)

    def _chain(self, chain: LoopChain, layout: RowLayout) -> None:
        """The loops over a row: all of it at once, or piece by piece."""
        self._wait(chain)
        outer_digits, self.axes = self.digits, [layout.axis, chain.axis]
        self.digits = dict(outer_digits)
        extent = chain.axis.extent
        reductions = {
            s.result: Reduction(s) for s in chain.statements if isinstance(s, ir.Accumulate)
        }
        if layout.whole:
            self._whole_row(extent)
            self._block(chain.statements)
        else:
            for reduction in reductions.values():
                reduction.begin(self.lines)
            size = self.size(extent)
            self.lines.add(f"for start in range(0, {size}, RBLOCK):")
            self.lines.depth += 1
            self.lines.add("r = start + tl.arange(0, RBLOCK)[None, :]")
            self.lines.add(f"rmask = r < {size}")
            self.mask["r"] = "rmask"
            self._block(chain.statements, reductions)
            self.lines.depth -= 1
            for reduction in reductions.values():
                self._reduced(reduction, reduction.finish(self.lines, self.needed))
        self.written |= {
            s.buffer for s in chain.statements if isinstance(s, ir.Store) and s.buffer >= 0
        }
        self.axes, self.digits = [layout.axis], outer_digits
        self.mask.pop("r", None)

    def _whole_row(self, extent: int) -> None:
        """Places of a row, when a block has all of it; loops of one length share them."""
        block = 1 << (extent - 1).bit_length()
        if extent != self.length:
            self.lines.add(f"r = tl.arange(0, {block})[None, :]")
            if block != extent:
                self.lines.add(f"rmask = r < {extent}")
        self.length = extent
        if block != extent:
            self.mask["r"] = "rmask"

    def _wait(self, chain: LoopChain) -> None:
        """What other threads of the block wrote must be there before it is read."""
        read = {
            s.buffer
            for s in chain.statements
            if isinstance(s, ir.Load) and not self._forwarded(s, chain.axis)
        }
        if read & self.written:
            self.lines.add("tl.debug_barrier()")
            self.written.clear()

    def _forwarded(self, load: ir.Load, axis: GridAxis) -> bool:
        return not load.indirect and (load.buffer, load.index, axis) in self.known

    def _block(
        self, block: ir.Block, running: Mapping[ir.ValueId, Reduction] | None = None
    ) -> None:
        for statement in block:
            if isinstance(statement, ir.Accumulate):
                self._accumulate(statement, running)
            else:
                self._statement(statement)

    # --- indices -----------------------------------------------------------------------------

    def size(self, size: int) -> str:
        """A size as an operand."""
        if not isinstance(size, SizeInt):
            return str(size)
        return self.sizes.setdefault(size, f"s{len(self.sizes)}")

    def _digits(self, axis: GridAxis) -> None:
        """Coordinates of the points of an axis, where an index does not grow evenly along it."""
        uneven = [
            index
            for statement in ir.walk(self.kernel.body)
            for index in ir.indices_of(statement)
            if axis.factor(index) is None
        ]
        needed = {var for index in uneven for var in index.variables()}
        inside = 1
        for position in range(len(axis.loops) - 1, -1, -1):
            var, extent = axis.loops[position]
            text = (
                axis.name
                if inside == 1 and type(inside) is int
                else f"{axis.name} // {self.size(inside)}"
            )
            if position:
                text = f"{text} % {self.size(extent)}"
            if var in needed and var not in self.digits:
                self.digits[var] = f"d{var}"
                self.lines.add(f"d{var} = {text}")
            inside = inside * extent

    def _index(self, index: Affine) -> tuple[str, frozenset[str]]:
        """An index as text, and the axes it differs along."""
        parts: list[str] = []
        along: set[str] = set()
        for axis in self.axes:
            own = {var for var, _ in axis.loops}
            terms = [(var, c) for var, c in index.terms if var in own]
            if not terms:
                continue
            along.add(axis.name)
            factor = axis.factor(index)
            if factor is not None:
                parts.append(self._scaled(axis.name, factor))
                continue
            if any(var not in self.digits for var, _ in terms):
                self._digits(axis)
            parts.extend(self._scaled(self.digits[var], c) for var, c in terms)
        if isinstance(index.constant, SizeInt) or index.constant or not parts:
            parts.append(self.size(index.constant))
        return " + ".join(parts), frozenset(along)

    def _scaled(self, name: str, factor: int) -> str:
        return name if type(factor) is int and factor == 1 else f"{self.size(factor)} * {name}"

    def _masked(self, axes: frozenset[str]) -> str:
        return " & ".join(
            self.mask[axis] for axis in sorted(axes, reverse=True) if axis in self.mask
        )

    # --- statements --------------------------------------------------------------------------

    def _statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Literal(result, dtype, value):
                self.values[result] = _Value(
                    literal(float(value) if dtype.is_float else value), dtype, frozenset()
                )
            case ir.Coordinate(result, index):
                text, axes = self._index(index)
                whole = f"({text}).to(tl.int64)" if axes else f"tl.full([], {text}, tl.int64)"
                self._define(result, whole, DType.I64, axes)
            case ir.Load():
                self._load(statement)
            case ir.Compute():
                self._compute(statement)
            case ir.Store():
                self._store(statement)
            case _:
                raise Refused("a statement outside of its loop")

    def _define(self, result: ir.ValueId, text: str, dtype: DType, axes: frozenset[str]) -> None:
        self.lines.comment(shown_line(self.traces.get(result, "")))
        self.lines.add(f"v{result} = {text}")
        rounded = text.endswith(".to(tl.float32)")
        self.values[result] = _Value(f"v{result}", dtype, axes, rounded)

    def _tensor(self, value: _Value) -> str:
        """A value as a tensor, also when it is a number."""
        if arithmetic.is_number(value.text):
            return f"tl.full([], {value.text}, {computed(value.dtype)})"
        return value.text

    def _compute(self, statement: ir.Compute) -> None:
        given = [self.values[a] for a in statement.arguments]
        numbers = [arithmetic.is_number(value.text) for value in given]
        plain = arithmetic.takes_numbers(statement.op, numbers)
        texts = [value.text if plain else self._tensor(value) for value in given]
        text = arithmetic.compute(
            statement.op, texts, statement.operand, statement.dtype, self.needed
        )
        if statement.op == "select" and all(numbers[1:]):
            text = f"{text}.to({computed(statement.dtype)})"
        axes = frozenset[str]().union(*(value.axes for value in given))
        if text == given[0].text:  # a cast between types that are computed alike
            self.values[statement.result] = given[0]._replace(dtype=statement.dtype)
            return
        self._define(statement.result, text, statement.dtype, axes)

    def _load(self, load: ir.Load) -> None:
        axis = self.axes[-1] if len(self.axes) > 1 else None
        if load.buffer < 0:
            value, length = self.rows.get(load.buffer, (None, 0))
            if (
                value is None
                or axis is None
                or length != axis.extent
                or axis.factor(load.index) != 1
            ):
                raise Refused("a kept row is read in another order than it was written")
            self.values[load.result] = value
            return
        key = (load.buffer, load.index, axis)
        if not load.indirect and key in self.known:
            self.values[load.result] = self.known[key]
            return
        text, axes = self._index(load.index)
        text = self._indirect(load, text)
        axes = axes.union(*(self.values[value].axes for value, _, _ in load.indirect))
        mask = self._masked(axes)
        place = f"b{load.buffer}" if text == "0" else f"b{load.buffer} + {text}"
        read = f"tl.load({place}, {mask})" if mask else f"tl.load({place})"
        if load.dtype.is_half:
            read = f"{read}.to(tl.float32)"
        elif load.dtype is DType.BOOL:
            read = f"{read} != 0"
        self._define(load.result, read, load.dtype, axes)
        if not load.indirect and self._keeps():
            self.known[key] = self.values[load.result]

    def _keeps(self) -> bool:
        """Whether values stay at hand from loop to loop."""
        return isinstance(self.layout, RowLayout) and self.layout.whole

    def _indirect(self, load: ir.Load, text: str) -> str:
        """The index with what was looked up, kept inside; what lies outside is marked for the caller to raise."""
        parts = [] if text == "0" else [text]
        marks = load.marks or (0,) * len(load.indirect)
        for (number, stride, bound), mark in reversed(list(zip(load.indirect, marks, strict=True))):
            value = self.values[number]
            name = self._tensor(value)
            if type(bound) is not int or bound:
                if load.flag >= 0:
                    self._mark(load.flag, name, value.axes, bound, mark)
                last = self.size(bound - 1)
                name = f"tl.where(({name} < 0) | ({name} > {last}), {last}, {name})"
            parts.append(self._scaled(name, stride))
        return " + ".join(parts) or "0"

    def _mark(self, flag: int, name: str, axes: frozenset[str], bound: int, mark: int) -> None:
        size = self.size(bound)
        inside = self._masked(axes)
        bad = f"(({name} < 0) | ({name} >= {size}))" + (f" & {inside}" if inside else "")
        self.lines.add(f"bad = {bad}")
        for place, word in zip(PLACES, (str(mark + 1), name, size), strict=True):
            at = f"b{flag} + {place} + tl.zeros_like({name})" if axes else f"b{flag} + {place}"
            self.lines.add(f"tl.store({at}, {word}, bad)")

    def _store(self, store: ir.Store) -> None:
        value = self.values[store.value]
        axis = self.axes[-1] if len(self.axes) > 1 else None
        if store.buffer < 0:
            if axis is None or store.buffer in self.rows or axis.factor(store.index) != 1:
                raise Refused("a kept row is written twice")
            self.rows[store.buffer] = (value, axis.extent)
            return
        text, present = self._index(store.index)
        whole = frozenset(a.name for a in self.axes)
        for missing in sorted(whole - present, reverse=True):
            # the whole block, also where memory is the same along an axis
            text = f"0 * {missing}" if text == "0" else f"{text} + 0 * {missing}"
        mask = self._masked(whole)
        place = f"b{store.buffer} + {text}"
        self.lines.add(
            f"tl.store({place}, {value.text}, {mask})"
            if mask
            else f"tl.store({place}, {value.text})"
        )
        self.known = {key: kept for key, kept in self.known.items() if key[0] != store.buffer}
        if self._keeps() and not (store.dtype.is_half and not value.rounded):
            self.known[store.buffer, store.index, axis] = value

    # --- reductions --------------------------------------------------------------------------

    def _accumulate(
        self, statement: ir.Accumulate, running: Mapping[ir.ValueId, Reduction] | None
    ) -> None:
        value = self.values[statement.value]
        position = ""
        if statement.op.startswith("arg"):
            text, axes = self._index(statement.position)
            position = f"({text}).to(tl.int64)" if axes else f"tl.full([], {text}, tl.int64)"
        mask = self.mask.get("r", "")
        if running is not None:
            running[statement.result].add(
                self.lines, self._tensor(value), position, mask, self.needed
            )
            return
        reduction = Reduction(statement)
        self.lines.comment(shown_line(self.traces.get(statement.result, "")))
        length = 1 << (self.axes[-1].extent - 1).bit_length()
        known = self._tensor(value)
        if "r" not in value.axes and not mask:
            known = f"tl.broadcast_to({known}, [XBLOCK, {length}])"
        self._reduced(
            reduction, reduction.whole(self.lines, known, position, mask, length, self.needed)
        )

    def _reduced(self, reduction: Reduction, text: str) -> None:
        result, dtype = reduction.statement.result, reduction.statement.dtype
        self._define(result, text, dtype, frozenset("x"))
