"""native.codegen.llvm.contraction: a matrix product with its statements as an LLVM function.

In: Contraction. Out: the text of a kernel (see ``emit``). A unit of its range is a panel of columns in a block of rows of
one matrix of the batch: the inner functions of ``panels`` leave its sums on the stack, and the statements run over
them like any other vector loop.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from argand.native.codegen.llvm import groups, integers, panels, small
from argand.native.codegen.llvm.control import counted
from argand.native.codegen.llvm.dots import dots
from argand.native.codegen.llvm.emit import Emitted, Emitter
from argand.native.codegen.llvm.panels import Tile, Way
from argand.native.codegen.llvm.scope import Scope
from argand.native.codegen.target import Target
from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine
from argand.native.ir.types import DType, divides
from argand.sizes.expressions import SizeInt
from argand.support.later import later

if TYPE_CHECKING:
    from argand.native.codegen.llvm import digits, small_dots
else:  # for small integers only
    digits = later("argand.native.codegen.llvm.digits")
    small_dots = later("argand.native.codegen.llvm.small_dots")

ROWS: Final = 240  # of a block: a multiple of all heights of tiles, its sums 30 KB of stack
DIRECT: Final = 960  # the same where sums are stored as they are
FEW: Final = 8  # rows for which columns of the right operand are read where they lie
WIDE: Final = 256  # columns of a panel of few rows: left is copied once for them
PACKING: Final = 6  # rows whose tiles take as long as to copy the panel
ROW_COPY: Final = 0.5  # of what a tile takes by one panel, to copy its rows
TURNED: Final = 4  # panels from which on it pays to copy rows that lie along inner
# variables of the text: the row of the block, the panel's first column, the place in it
LOCAL, START, LANE = (4, 5, 6)


def tile_of(target: Target) -> Tile | None:
    """The tiles of a target: sums fill most of its registers. None without fused multiply-add."""
    if "+fma" not in target.features.split(","):
        return None
    lanes = target.vector_bytes // 4
    # 8 rows suffice to hide latencies, and more of them would share one set of the nearest cache at strides of 4 KB.
    return Tile(lanes, 2, (8, 4, 2, 1) if lanes >= 16 else (6, 4, 2, 1))


def is_few(contraction: ir.Contraction) -> bool:
    """Whether rows are so few that nothing is copied."""
    along = contraction.left.inner == 1 and contraction.right.inner == 1
    return along and not isinstance(contraction.rows, SizeInt) and contraction.rows <= FEW


def reads_quantized(contraction: ir.Contraction, target: Target) -> bool:
    """Whether there are functions for the small integers of a contraction."""
    shape = tile_of(target)
    return shape is not None and small.fits(contraction, shape, is_few(contraction))


def reads_integers(contraction: ir.Contraction, target: Target) -> bool:
    """Whether there are functions for a contraction of two operands of 8-bit integers."""
    return tile_of(target) is not None and integers.fits(contraction, target, is_few(contraction))


def emit_contraction(
    name: str, contraction: ir.Contraction, target: Target, declarations: dict[str, None]
) -> Emitted:
    """The function of a contraction, for a target with tiles."""
    return _Emission(name, contraction, target, declarations).run()


class _Emission:
    def __init__(
        self, name: str, given: ir.Contraction, target: Target, declarations: dict[str, None]
    ) -> None:
        shape = tile_of(target)
        assert shape is not None
        if is_few(given):
            shape = shape._replace(vectors=WIDE // shape.lanes)
        self.shape, self.given = shape, given
        self.width = few_columns(given, shape, target) if is_few(given) else shape.width
        self.panels = -(-given.columns // self.width)
        self.count, self.group = (1, 1) if is_few(given) else row_blocks(given, shape, target)
        self.grouped = is_grouped(given, shape)
        self.height = -(-given.rows // self.count) if type(given.rows) is int else ROWS
        if not is_few(given):
            most = most_rows(given, shape)
            self.height = min(-(-self.height // shape.heights[0]) * shape.heights[0], most)
            self.count = -(-given.rows // self.height)
        self.groups = -(-self.panels // self.group)
        self.direct = self.grouped and is_direct(given, shape)
        self.narrow = not is_few(given) and given.columns < shape.width
        self.emitter = Emitter(name, self._kernel(), target, declarations)
        self.text = self.emitter.text

    def _kernel(self) -> ir.Kernel:
        """The statements over a panel: its sums are a row on the stack, columns are counted from its start."""
        width = self.shape.width  # from row to row of the sums
        place = Affine.of(LOCAL).scale(width) + Affine.of(LANE)
        column = {ir.COLUMN: Affine.of(START) + Affine.of(LANE)}
        load = ir.Load(self.given.result, self._summed, -1, place)
        body = (
            load,
            *ir.with_indices(self.given.body, functools.partial(Affine.substitute, values=column)),
        )
        sums = (self._summed, self._room)
        return ir.Kernel(self.given.buffers, (), body, None, (sums,))

    @property
    def _summed(self) -> DType:
        """The type of sums."""
        return DType.I32 if self.given.dtype is DType.I32 else DType.F32

    @property
    def _room(self) -> int:
        """How many sums wait for their statements."""
        return self.group * self.height * self.shape.width

    def run(self) -> Emitted:
        given, emitter, text = self.given, self.emitter, self.text
        emitter.take_buffers()
        if not self.direct:
            emitter.pointers[-1] = text.slot(self._summed.row.memory, self._room)
        counted(text, "%begin", "%end", 1, self._group if self.grouped else self._unit)
        total = given.batch[0] * given.batch[1] * self.count * self.groups
        flops = self.height * self.width // self.shape.lanes * given.inner * self.group
        read = self.width * given.inner * given.right.dtype.row.bytes * self.group // 16
        return Emitted(
            emitter.function(), total, max(int(flops), int(read), 1), tuple(emitter.sizes)
        )

    # --- one panel of one block of rows ------------------------------------------------------

    def _unit(self, unit: str) -> None:
        given, text, size = self.given, self.text, self.emitter.size
        panel, rest = self._digits(unit, self.panels)
        block, matrix = self._digits(rest, self.count)
        inner, outer = self._digits(matrix, given.batch[1])
        begin = text.value(f"mul nsw i64 {block}, {self.height}")
        left_over = text.value(f"sub nsw i64 {size(given.rows)}, {begin}")
        rows = text.intrinsic("smin", "i64", [left_over, str(self.height)])
        first = text.value(f"mul nsw i64 {panel}, {self.width}")
        # The last panel begins early enough to be whole; what the one before it stores is left alone.
        last = 0 if self.narrow or is_few(given) else given.columns - self.shape.width
        start = (
            first
            if divides(self.width, given.columns)
            else text.intrinsic("smin", "i64", [first, str(last)])
        )
        if is_few(given):
            start = first
        left = self._pointer(given.left, (outer, inner, begin))
        right = self._pointer(given.right, (outer, inner, start))
        end = text.value(f"sub nsw i64 {given.columns}, {start}")
        columns = text.intrinsic("smin", "i64", [end, str(self.width)])
        self._sums(left, right, rows, columns, start)
        skipped = text.value(f"sub nsw i64 {first}, {start}")
        variables = {0: outer, 1: inner, START: start}
        counted(
            text, "0", rows, 1, lambda row: self._row(row, begin, variables, (skipped, columns))
        )

    # --- some panels of one block of rows ----------------------------------------------------

    def _group(self, unit: str) -> None:
        given, text, size = self.given, self.text, self.emitter.size
        width = self.shape.width
        group, rest = self._digits(unit, self.groups)
        block, matrix = self._digits(rest, self.count)
        inner, outer = self._digits(matrix, given.batch[1])
        begin = text.value(f"mul nsw i64 {block}, {self.height}")
        left_over = text.value(f"sub nsw i64 {size(given.rows)}, {begin}")
        rows = text.intrinsic("smin", "i64", [left_over, str(self.height)])
        passed = text.value(f"mul nsw i64 {group}, {self.group}")
        more = text.value(f"sub nsw i64 {self.panels}, {passed}")
        count = text.intrinsic("smin", "i64", [more, str(self.group)])
        first = text.value(f"mul nsw i64 {passed}, {width}")
        left = self._pointer(given.left, (outer, inner, begin))
        right = self._pointer(given.right, (outer, inner, first))
        steps = [size(f.across if f.inner == 1 else f.inner) for f in (given.left, given.right)]
        if self.direct:
            sums, step = self._result((outer, inner, begin, first))
        else:
            sums, step = self.emitter.pointers[-1], str(width)
        operands = (
            f"ptr {left}, i64 {steps[0]}, ptr {right}, i64 {steps[1]}, ptr {sums}, i64 {step}"
        )
        end = text.value(f"sub nsw i64 {given.columns}, {first}")
        sizes = f"i64 {rows}, i64 {size(given.inner)}, i64 {end}, i64 {count}"
        name = groups.product(text, self._grouping())
        text.line(f"call void {name}({operands}, {sizes}, i64 {self.height * width})")
        if self.direct:
            return
        variables = {0: outer, 1: inner}

        def row(number: str) -> None:
            def panel(p: str) -> None:
                place = text.value(f"add nsw i64 {first}, {panels.times(text, p, width)}")
                start = text.intrinsic("smin", "i64", [place, str(given.columns - width)])
                skipped = text.value(f"sub nsw i64 {place}, {start}")
                lines = panels.times(text, p, self.height)
                local = text.value(f"add nsw i64 {lines}, {number}")
                real = text.value(f"add nsw i64 {begin}, {number}")
                names = {**variables, START: start, ir.ROW: real, LOCAL: local}
                self._statements(names, (skipped, str(width)))

            counted(text, "0", count, 1, panel)

        counted(text, "0", rows, 1, row)

    def _result(self, place: tuple[str, str, str, str]) -> tuple[str, str]:
        """Where an element of the result lies, and how far it is from row to row."""
        text, size = self.text, self.emitter.size
        (store,) = self.given.body
        assert isinstance(store, ir.Store)
        total = size(store.index.constant)
        for var, number in zip((0, 1, ir.ROW, ir.COLUMN), place, strict=True):
            step = panels.times(text, number, size(store.index.coefficient(var)))
            total = text.value(f"add nsw i64 {total}, {step}")
        pointer = panels.element(text, self.emitter.pointers[store.buffer], total)
        return pointer, size(store.index.coefficient(ir.ROW))

    def _grouping(self) -> groups.PanelGroup:
        """The functions of a group for these operands."""
        given = self.given
        return groups.PanelGroup(
            self.shape,
            given.left.inner == 1,
            given.right.inner == 1,
            given.right.dtype,
            divides(panels.BLOCK, given.inner),
            self.direct,
        )

    def _digits(self, number: str, size: int) -> tuple[str, str]:
        """Remainder and quotient; none where there is one value only."""
        if type(size) is int and size == 1:
            return "0", number
        by = self.emitter.size(size)
        return self.text.value(f"urem i64 {number}, {by}"), self.text.value(
            f"udiv i64 {number}, {by}"
        )

    def _pointer(self, factor: ir.Factor, place: tuple[str, str, str]) -> str:
        text, total = self.text, self.emitter.size(factor.offset)
        for index, stride in zip(place, (*factor.batch, factor.across), strict=True):
            step = text.value(f"mul nsw i64 {index}, {self.emitter.size(stride)}")
            total = text.value(f"add nsw i64 {total}, {step}")
        base = self.emitter.pointers[factor.buffer]
        return text.value(f"getelementptr {factor.dtype.row.memory}, ptr {base}, i64 {total}")

    def _sums(self, left: str, right: str, rows: str, columns: str, start: str) -> None:
        given, text, size = self.given, self.text, self.emitter.size
        steps = [size(f.across if f.inner == 1 else f.inner) for f in (given.left, given.right)]
        operands = f"ptr {left}, i64 {steps[0]}, ptr {right}, i64 {steps[1]}, ptr {self.emitter.pointers[-1]}"
        if given.right.quantized is not None:
            about, tables = (
                small.small_of(given, self.shape),
                self._tables(given.right.quantized, start),
            )
            if is_few(given):
                if digits.fits(given, self.emitter.target):
                    name = digits.dots(text, about, given)
                else:
                    name = small_dots.small_dots(text, about, given.rows)
                sizes = f"i64 {size(given.inner)}, i64 {columns}"
            else:
                name = small.product(text, about, given.left.inner == 1, self._heights())
                sizes = f"i64 {rows}, i64 {size(given.inner)}, i64 {columns}"
            text.line(f"call void {name}({operands}, {sizes}, {tables})")
            return
        if given.dtype is DType.I32:
            name = integers.dots(
                text, self.shape, given.rows, integers.has_dots(self.emitter.target)
            )
            text.line(f"call void {name}({operands}, i64 {size(given.inner)}, i64 {columns})")
            return
        if is_few(given):
            whole = divides(self.shape.lanes, given.inner)
            name = dots(text, self.shape, given.rows, (given.left.dtype, given.right.dtype), whole)
            text.line(f"call void {name}({operands}, i64 {size(given.inner)}, i64 {columns})")
            return
        whole = divides(panels.BLOCK, given.inner) and divides(panels.BLOCK, panels.INNER)
        way = Way(
            given.left.inner == 1, given.right.inner == 1, given.right.dtype, whole, self._heights()
        )
        name = panels.product(text, self.shape, way, self.narrow)
        text.line(
            f"call void {name}({operands}, i64 {rows}, i64 {size(given.inner)}, i64 {columns})"
        )

    def _tables(self, quantized: ir.Quantization, start: str) -> str:
        """Zeros and scales from the first column of a panel on, as arguments."""
        text, listed = self.text, [f"i64 {quantized.group}"]
        for table in (quantized.zero, quantized.scale):
            if isinstance(table, ir.PerGroup):
                step = text.value(f"mul nsw i64 {start}, {table.across}")
                place = text.value(f"add nsw i64 {step}, {table.offset}")
                memory, base = table.dtype.row.memory, self.emitter.pointers[table.buffer]
                at = text.value(f"getelementptr {memory}, ptr {base}, i64 {place}")
                listed.append(f"ptr {at}, i64 {table.across}, i64 {table.along}")
            else:
                listed.append("ptr null, i64 0, i64 0")
        return ", ".join(listed)

    def _heights(self) -> tuple[int, ...]:
        """The heights of tiles that occur: all when the number of rows is open."""
        heights, rest = self.shape.heights, self.given.rows
        if isinstance(rest, SizeInt):
            return heights
        found = []
        for height in heights:
            if rest >= height:
                found.append(height)
                rest %= height
        return tuple(found)

    def _row(
        self, row: str, begin: str, variables: dict[int, str], columns: tuple[str, str]
    ) -> None:
        place = self.text.value(f"add nsw i64 {begin}, {row}")
        self._statements({**variables, ir.ROW: place, LOCAL: row}, columns)

    def _statements(self, variables: dict[int, str], columns: tuple[str, str]) -> None:
        """The statements over one row of the panel."""
        width = self.width
        whole = divides(width, self.given.columns)
        limit = None if whole else Affine(width)
        loop = ir.Loop(LANE, width, self.emitter.kernel.body, vector=True, limit=limit)
        scope = Scope({}, variables)
        low, high = ("0", str(width)) if whole else columns
        self.emitter.vector_loop(loop, scope, low, high)


def few_columns(given: ir.Contraction, shape: Tile, target: Target) -> int:
    """The columns of a panel of few rows: as many for every thread."""
    if isinstance(given.columns, SizeInt):
        return shape.width
    rounds = -(-given.columns // (shape.width * target.threads))
    each = -(-given.columns // (rounds * target.threads))
    return min(-(-each // (2 * shape.lanes)) * 2 * shape.lanes, shape.width)


def is_grouped(given: ir.Contraction, shape: Tile) -> bool:
    """Whether rows are copied too: panels are many enough to pay for it, or rows lie across."""
    plain = given.right.quantized is None and given.dtype is not DType.I32
    if is_few(given) or not plain or given.columns < shape.width:
        return False
    if type(given.rows) is int and given.rows < 2 * shape.heights[0]:
        return False
    return given.left.inner != 1 or given.columns >= TURNED * shape.width


def is_direct(given: ir.Contraction, shape: Tile) -> bool:
    """Whether sums grow in the result's own memory: they are stored as they are, columns side by side.

    The last panel of columns that fill no panel begins early: what it shares with the one before it is the same twice,
    unless it were added twice.
    """
    if len(given.body) != 1 or not isinstance(given.body[0], ir.Store):
        return False
    once = type(given.inner) is int and given.inner <= panels.INNER
    store = given.body[0]
    known = {0, 1, ir.ROW, ir.COLUMN} >= {var for var, _ in store.index.terms}
    beside = store.index.coefficient(ir.COLUMN) == 1 and known
    plain = store.value == given.result and store.dtype is DType.F32
    return plain and beside and (once or divides(shape.width, given.columns))


def most_rows(given: ir.Contraction, shape: Tile) -> int:
    """Rows of a block at most: those whose sums wait for statements stay near."""
    direct = is_grouped(given, shape) and is_direct(given, shape)
    return DIRECT if direct and type(given.rows) is int else ROWS


def row_blocks(given: ir.Contraction, shape: Tile, target: Target) -> tuple[int, int]:
    """Into how many blocks the rows are cut, and how many panels are a group.

    More of them share the work better, but each block copies its panels, and each group its rows.
    """
    grouped, all_panels = is_grouped(given, shape), -(-given.columns // shape.width)
    most = min(groups.MOST, all_panels) if grouped else 1
    if type(given.rows) is not int or type(given.batch[0] * given.batch[1]) is not int:
        return -(-given.rows // ROWS), max(1, min(most, all_panels // target.threads))
    least = -(-given.rows // most_rows(given, shape))

    def cost(way: tuple[int, int]) -> float:
        count, group = way
        batch = given.batch[0] * given.batch[1]
        units = -(-(batch * count * -(-all_panels // group)) // target.threads)
        rows = -(-given.rows // count)
        return units * (group * (rows + PACKING) + grouped * rows * ROW_COPY)

    ways = [(count, group) for group in range(most, 0, -1) for count in range(least, least + 4)]
    return min(ways, key=cost)
