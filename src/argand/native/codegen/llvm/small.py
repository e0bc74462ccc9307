"""native.codegen.llvm.small: inner functions of products whose right operand is kept in small integers.

In: how integers stand for numbers (``Quantization``), the tile of a target, element types. Out: the name of a function, declared
once per module; sizes, strides and where zeros and scales lie are arguments.

Few rows read the integers where they lie (``dots``), and what a group adds to a sum is scaled once. Integers of 8 bits are
converted as vectors. Of 4 bits, a word of 8 numbers is spread over lanes, and each lane keeps another of them, where
it is: a multiple of a power of 16. Rows of left are copied first, in the order in which lanes meet them, over that power.

Zeros are subtracted from sums, not from elements: ``sum x * (q - zero) == sum x * q - zero * sum x``. That holds for numbers of
ordinary size; a block of left with infinities or huge ones goes through a slower text, which subtracts from elements and scales
them, as eager does.

More rows copy a panel, as for other operands (``panels``), and the copy applies zeros and scales.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from argand.native.codegen.llvm import panels
from argand.native.codegen.llvm.control import counted
from argand.native.codegen.llvm.panels import Tile, broadcast, element, load, times
from argand.native.codegen.text import Text, number, splat, vector
from argand.native.ir import loops as ir
from argand.native.ir.types import DType

TABLES: Final = ", ".join(
    (
        *("i64 %group", "ptr noalias %zeros", "i64 %zacross", "i64 %zalong"),
        *("ptr noalias %scales", "i64 %sacross", "i64 %salong"),
    )
)
_OPERANDS: Final = "ptr noalias %left, i64 %lstep, ptr noalias %right, i64 %rstep, ptr noalias %sums"
_COPIES: Final = 4  # of a word, side by side in a register of 4 bits: each is shifted by another amount
_LINE: Final = 64  # bytes
_HUGE: Final = 2.0**52  # how far the numbers of left stay below the largest float, so that sums before scaling do
_PER_WORD: Final = 8  # numbers of 4 bits in a word of 32


_Changed: TypeAlias = Callable[[str, int, int], str]  # an integer, its column and its part of a unit


class Small(NamedTuple):
    """What the text of such a function depends on, besides its sizes."""

    shape: Tile
    left: DType
    right: DType
    bits: int
    zero: DType | float
    scale: DType | None
    short: bool = False  # a group is no longer than what a processor fetches at a time

    @property
    def unit(self) -> int:
        """Elements of a column that are converted at a time."""
        return self.shape.lanes * (8 // self.bits)

    @property
    def name(self) -> str:
        """What tells it from others."""
        zero = self.zero.value if isinstance(self.zero, DType) else self.zero
        scale = "none" if self.scale is None else self.scale.value
        return f"{self.left.value}.{self.right.value}.{self.bits}.{zero}.{scale}{'.short' * self.short}"


def small_of(given: ir.Contraction, shape: Tile) -> Small:
    """The functions that a contraction needs."""
    quantized = given.right.quantized
    assert quantized is not None
    zero = quantized.zero.dtype if isinstance(quantized.zero, ir.PerGroup) else quantized.zero
    scale = None if quantized.scale is None else quantized.scale.dtype
    short = quantized.group * quantized.bits <= 8 * _LINE
    return Small(shape, given.left.dtype, given.right.dtype, quantized.bits, zero, scale, short)


def fits(given: ir.Contraction, shape: Tile, few: bool) -> bool:
    """Whether there are functions for a contraction: groups are whole units."""
    quantized = given.right.quantized
    assert quantized is not None
    if few:
        return quantized.group % small_of(given, shape).unit == 0
    wide = isinstance(given.columns, int) and given.columns >= shape.width
    return wide and quantized.group % panels.BLOCK == 0 and given.left.dtype is DType.F32


# --- zeros and scales ------------------------------------------------------------------------


class _Table:
    """The zeros or the scales of a column."""

    def __init__(self, text: Text, about: Small, which: str, column: str) -> None:
        self.text, self.which = text, which
        self.type = about.zero if which == "z" else about.scale
        if isinstance(self.type, DType):
            base = "%zeros" if which == "z" else "%scales"
            self.base = element(text, base, times(text, column, f"%{which}across"), self.type.row.memory)

    def spread(self, group: str, lanes: int) -> str:
        """The number of a group as a float in all lanes."""
        if not isinstance(self.type, DType):
            return splat("float", lanes, 1.0 if self.type is None else self.type)
        place = times(self.text, group, f"%{self.which}along")
        at = element(self.text, self.base, place, self.type.row.memory)
        return broadcast(self.text, load(self.text, at, self.type, 1), lanes)


def _has_zero(about: Small) -> bool:
    return isinstance(about.zero, DType) or about.zero != 0


def _pointer(text: Text, about: Small, base: str, k: str) -> str:
    """Where the integer of an element lies, which begins a byte."""
    at = k if about.bits == 8 else text.value(f"lshr exact i64 {k}, 1")
    return element(text, base, at, "i8")


# --- few rows --------------------------------------------------------------------------------


def dots(text: Text, about: Small, rows: int) -> str:
    """``void f(left, lstep, right, rstep, sums, inner, columns, tables)``: columns of right read where they lie."""

    def write(own: Text) -> None:
        _Dots(own, about, rows).run()

    arguments = f"{_OPERANDS}, i64 %inner, i64 %columns, {TABLES}"
    return panels.declared(text, f"argand.small{rows}.{about.name}", arguments, write)


class _Columns:
    """Columns of right that are read side by side, from element ``k`` on."""

    def __init__(self, text: Text, about: Small, columns: list[str], k: str) -> None:
        self.text, self.about = text, about
        steps = [times(text, c, "%rstep") for c in columns]
        self.bases = [_pointer(text, about, element(text, "%right", step, "i8"), k) for step in steps]
        self.zeros = [_Table(text, about, "z", c) for c in columns]
        self.scales = [_Table(text, about, "s", c) for c in columns]
        self.jump = times(text, "%rstep", len(columns))

    def at(self, i: str) -> list[str]:
        """Where an element of each lies."""
        return [_pointer(self.text, self.about, base, i) for base in self.bases]

    def fetch(self, i: str) -> None:
        """Let the columns after these come into the next level of cache: a processor's own prefetch ends with a row."""
        self.text.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for source in self.at(i):
            ahead = element(self.text, source, self.jump, "i8")
            self.text.line(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 2, i32 1)")


class _Dots:
    """The text of one such function."""

    def __init__(self, text: Text, about: Small, rows: int) -> None:
        self.text, self.about, self.rows = text, about, rows
        self.lanes, self.kind = about.shape.lanes, vector("float", about.shape.lanes)
        self.parts = range(8 // about.bits)
        self.length = max(panels.LEFT // rows // about.unit, 1) * about.unit
        self.step = self.length + self.lanes  # rows a power of two apart would share one set of a cache
        self.copy = text.slot("float", rows * self.step)
        # For each row and group the sums of left, as many as there are lanes; a group is at least a unit.
        self.sums_step = (self.length // about.unit + 1) * self.lanes
        self.left_sums = text.slot("float", rows * self.sums_step) if _has_zero(about) else ""
        self.seen = text.slot(self.kind)  # becomes NaN where a block has numbers that sums before scaling do not bear

    def run(self) -> None:
        counted(self.text, "0", "%inner", 1, self._block)

    def _block(self, k: str) -> str:
        """Part of all sums; gives where the next part begins."""
        text = self.text
        rest = text.value(f"sub nsw i64 %inner, {k}")
        count = text.intrinsic("smin", "i64", [rest, str(self.length)])
        text.line(f"store {self.kind} zeroinitializer, ptr {self.seen}")
        for row in range(self.rows):
            at = text.value(f"add nsw i64 {times(text, row, '%lstep')}, {k}")
            source = element(text, "%left", at, self.about.left.row.memory)
            self._copy_row(source, element(text, self.copy, row * self.step), count)
        if _has_zero(self.about):
            self._sum_left(k, count)
        odd = self._is_odd()
        slow, fast, done = (text.label(stem) for stem in ("slow", "fast", "both"))
        text.line(f"br i1 {odd}, label %{slow}, label %{fast}")
        for label, exact in ((slow, True), (fast, False)):
            text.begin_block(label)
            self._all_columns(k, count, exact)
            text.line(f"br label %{done}")
        text.begin_block(done)
        return text.value(f"add nsw i64 {k}, {count}")

    def _copy_row(self, source: str, target: str, count: str) -> None:
        """A row of left as floats, each unit in the order of the lanes that multiply it."""
        text, about, lanes = self.text, self.about, self.lanes

        def unit(i: str) -> None:
            value = load(text, element(text, source, i, about.left.row.memory), about.left, about.unit)
            for part in self.parts:
                placed = value if about.bits == 8 else self._placed(value, part)
                to = element(text, element(text, target, i), part * lanes)
                text.line(f"store {self.kind} {placed}, ptr {to}, align 4")
                huge = text.value(f"fmul {self.kind} {placed}, {splat('float', lanes, _HUGE)}")
                self._add(self.seen, huge, splat("float", lanes, 0.0))

        counted(text, "0", count, about.unit, unit)

    def _placed(self, value: str, part: int) -> str:
        """Elements of left where their partners of 4 bits are, over the powers of 16 that these have."""
        text, kind = self.text, vector("float", self.about.unit)
        mask = ", ".join(f"i32 {place}" for place in _order(self.lanes, part))
        moved = text.value(f"shufflevector {kind} {value}, {kind} poison, <{self.lanes} x i32> <{mask}>")
        powers = ", ".join(f"float {number('float', 16.0**-p)}" for p in self._powers(part))
        return text.value(f"fmul {self.kind} {moved}, <{powers}>")

    def _powers(self, part: int) -> list[int]:
        """By which powers of 16 numbers of 4 bits are larger than they should be, lane by lane."""
        words = self.lanes // _COPIES
        return [lane // words + (_COPIES * part if self._unsigned else 0) for lane in range(self.lanes)]

    @property
    def _unsigned(self) -> bool:
        """Whether the target converts integers without sign: the last of a word has the place of the sign."""
        return self.lanes >= 16

    def _groups(self, k: str, length: str, body: Callable[[str, str, str, str], None]) -> None:
        """Run ``body(begin, end, number, place)`` over groups: elements of the block, number in the column and in the block."""
        text = self.text
        group, ends, place = (text.slot("i64") for _ in range(3))
        first = text.value(f"udiv i64 {k}, %group")
        into = text.value(f"sub nsw i64 {k}, {times(text, first, '%group')}")
        start = text.value(f"sub nsw i64 %group, {into}")
        for slot, value in ((group, first), (ends, start), (place, "0")):
            text.line(f"store i64 {value}, ptr {slot}")

        def one(i: str) -> str:
            number_of, whole, at = (text.value(f"load i64, ptr {slot}") for slot in (group, ends, place))
            end = text.intrinsic("smin", "i64", [whole, length])
            body(i, end, number_of, at)
            for slot, value, step in ((group, number_of, 1), (ends, whole, "%group"), (place, at, self.lanes)):
                text.line(f"store i64 {text.value(f'add nsw i64 {value}, {step}')}, ptr {slot}")
            return end

        counted(text, "0", length, 1, one)

    def _sum_left(self, k: str, length: str) -> None:
        """The sums of left in each group."""
        text = self.text

        def group(begin: str, end: str, _: str, place: str) -> None:
            for row in range(self.rows):
                total = text.slot(self.kind)
                text.line(f"store {self.kind} zeroinitializer, ptr {total}")

                def unit(i: str, row: int = row, total: str = total) -> None:
                    at = element(text, element(text, self.copy, i), row * self.step)
                    for part in self.parts:
                        value = load(text, element(text, at, part * self.lanes), DType.F32, self.lanes)
                        self._add(total, value, self._back(part))

                counted(text, begin, end, self.about.unit, unit)
                value = text.value(f"load {self.kind}, ptr {total}")
                to = element(text, element(text, self.left_sums, place), row * self.sums_step)
                text.line(f"store {self.kind} {value}, ptr {to}, align 4")

        self._groups(k, length, group)

    def _is_odd(self) -> str:
        """Whether the block has infinities or huge numbers."""
        text, mask = self.text, vector("i1", self.lanes)
        value = text.value(f"load {self.kind}, ptr {self.seen}")
        odd = text.value(f"fcmp uno {self.kind} {value}, zeroinitializer")
        text.declare(f"declare i1 @llvm.vector.reduce.or.v{self.lanes}i1({mask})")
        return text.value(f"call i1 @llvm.vector.reduce.or.v{self.lanes}i1({mask} {odd})")

    def _back(self, part: int) -> str:
        """What makes an element of the copy the element of left again."""
        if self.about.bits == 8:
            return splat("float", self.lanes, 1.0)
        powers = ", ".join(f"float {number('float', 16.0**p)}" for p in self._powers(part))
        return f"<{powers}>"

    def _all_columns(self, k: str, length: str, exact: bool) -> None:
        most = 24 if self.lanes >= 16 else 8
        together = 1 if exact else max(n for n in (1, 2, 4, 8) if n == 1 or n * self.rows <= most)
        slot, low = "", "0"
        for columns in dict.fromkeys((together, 1)):

            def some(column: str, columns: int = columns) -> None:
                self._columns(column, columns, (k, length), exact)

            slot = counted(self.text, low, "%columns", columns, some, slot)
            low = ""

    def _columns(self, column: str, count: int, block: tuple[str, str], exact: bool) -> None:
        """The sums of some columns over a block, group by group."""
        text, (k, length) = self.text, block
        right = _Columns(text, self.about, [text.value(f"add nsw i64 {column}, {n}") for n in range(count)], k)
        sums = {(r, c): text.slot(self.kind) for r in range(self.rows) for c in range(count)}
        for slot in sums.values():
            text.line(f"store {self.kind} zeroinitializer, ptr {slot}")

        def group(begin: str, end: str, number_of: str, place: str) -> None:
            zeros = [table.spread(number_of, self.lanes) for table in right.zeros]
            scales = [table.spread(number_of, self.lanes) for table in right.scales]
            if exact:
                self._group(begin, end, right, sums, lambda w, c, part: self._meant(w, zeros[c], scales[c], part))
                return
            partial = {place: text.slot(self.kind) for place in sums}
            for slot in partial.values():
                text.line(f"store {self.kind} zeroinitializer, ptr {slot}")
            self._group(begin, end, right, partial, lambda w, c, part: w)
            for (r, c), slot in partial.items():
                value = text.value(f"load {self.kind}, ptr {slot}")
                if _has_zero(self.about):
                    at = element(text, element(text, self.left_sums, place), r * self.sums_step)
                    minus = text.value(f"fneg {self.kind} {zeros[c]}")
                    value = text.intrinsic("fma", self.kind, [load(text, at, DType.F32, self.lanes), minus, value])
                self._add(sums[r, c], value, scales[c])

        self._groups(k, length, group)
        self._finish(column, k, sums)

    def _group(self, begin: str, end: str, right: _Columns, sums: Mapping[tuple[int, int], str], of: _Changed) -> None:
        """Add a group, ``begin`` to ``end`` of the copy of left; ``of``: what becomes of an integer of a column."""
        text, about = self.text, self.about
        if about.short:
            right.fetch(begin)

        def unit(i: str) -> None:
            left = element(text, self.copy, i)
            if not about.short:
                right.fetch(i)
            values = {
                (r, p): load(text, element(text, left, r * self.step + p * self.lanes), DType.F32, self.lanes)
                for r in range(self.rows)
                for p in self.parts
            }
            for c, source in enumerate(right.at(i)):
                for p, weight in enumerate(self._weights(source)):
                    taken = of(weight, c, p)
                    for r in range(self.rows):
                        self._add(sums[r, c], values[r, p], taken)

        counted(text, begin, end, about.unit, unit)

    def _meant(self, weight: str, zero: str, scale: str, part: int) -> str:
        """The numbers that integers stand for, with their powers of 16."""
        zero = self.text.value(f"fmul {self.kind} {zero}, {self._back(part)}")
        return self.text.value(f"fmul {self.kind} {self.text.value(f'fsub {self.kind} {weight}, {zero}')}, {scale}")

    def _add(self, slot: str, left: str, right: str) -> None:
        text = self.text
        old = text.value(f"load {self.kind}, ptr {slot}")
        text.line(f"store {self.kind} {text.intrinsic('fma', self.kind, [left, right, old])}, ptr {slot}")

    def _weights(self, source: str) -> list[str]:
        """The integers of a unit of a column as floats."""
        text, lanes, about = self.text, self.lanes, self.about
        if about.bits == 8:
            return [load(text, source, about.right, lanes)]
        words = lanes // _COPIES
        narrow, wide = vector("i32", words), vector("i32", lanes)
        loaded = text.value(f"load {narrow}, ptr {source}, align 1")
        mask = ", ".join(f"i32 {lane % words}" for lane in range(lanes))
        spread = text.value(f"shufflevector {narrow} {loaded}, {narrow} poison, <{lanes} x i32> <{mask}>")
        result = []
        for part in self.parts:
            if part and not self._unsigned:
                spread = text.value(f"lshr {wide} {spread}, {splat('i32', lanes, 4 * _COPIES)}")
            bits = ", ".join(f"i32 {15 << 4 * power}" for power in self._powers(part))
            kept = text.value(f"and {wide} {spread}, <{bits}>")
            result.append(text.value(f"{'uitofp' if self._unsigned else 'sitofp'} {wide} {kept} to {self.kind}"))
        return result

    def _finish(self, column: str, k: str, sums: dict[tuple[int, int], str]) -> None:
        """Lanes are added, to what blocks before gave."""
        text, name = self.text, f"@llvm.vector.reduce.fadd.v{self.lanes}f32"
        text.declare(f"declare float {name}(float, {self.kind})")
        first = text.value(f"icmp eq i64 {k}, 0")
        for (r, c), slot in sums.items():
            to = element(text, "%sums", text.value(f"add nsw i64 {column}, {r * self.about.shape.width + c}"))
            before = text.value(f"select i1 {first}, float 0.0, float {load(text, to, DType.F32, 1)}")
            lanes = text.value(f"load {self.kind}, ptr {slot}")
            total = text.value(f"call reassoc float {name}(float 0.0, {self.kind} {lanes})")
            text.line(f"store float {text.value(f'fadd float {before}, {total}')}, ptr {to}, align 4")


def _order(lanes: int, part: int) -> list[int]:
    """Which elements of a unit of 4 bits meet in the lanes of its first or second half.

    Lane ``words * c + w`` has word w and keeps its number ``c + 4 * part``: element ``8 * w + c + 4 * part``.
    """
    words = lanes // _COPIES
    return [_PER_WORD * (lane % words) + lane // words + _COPIES * part for lane in range(lanes)]


# --- a panel of columns ----------------------------------------------------------------------


def product(text: Text, about: Small, left_along: bool, heights: tuple[int, ...]) -> str:
    """``void f(left, lstep, right, rstep, sums, rows, inner, columns, tables)``: rows of sums, a panel wide."""
    along = "inner" if left_along else "across"
    name = ".".join(("argand.small", along, about.name, *map(str, heights)))

    def write(own: Text) -> None:
        shape = about.shape
        panel = own.slot("float", panels.INNER * shape.width)
        copy = _pack(own, about)

        def block(k: str) -> str:
            rest = own.value(f"sub nsw i64 %inner, {k}")
            count = own.intrinsic("smin", "i64", [rest, str(panels.INNER)])
            own.line(f"call void {copy}(ptr %right, i64 %rstep, ptr {panel}, i64 {k}, i64 {count}, {passed_on()})")
            return panels.tiles(own, shape, heights, (left_along, panel, k, count))

        counted(own, "0", "%inner", 1, block)

    arguments = f"{_OPERANDS}, i64 %rows, i64 %inner, i64 %columns, {TABLES}"
    return panels.declared(text, name, arguments, write)


def passed_on() -> str:
    """The tables of a function as arguments of another."""
    return TABLES.replace(" noalias", "")


def _pack(text: Text, about: Small) -> str:
    """``void f(right, rstep, panel, first, count, tables)``: rows of a panel from ``first`` on, as floats."""

    def write(own: Text) -> None:
        size = panels.BLOCK
        counted(own, "0", str(about.shape.width), size, lambda column: _pack_columns(own, about, column))

    arguments = f"ptr noalias %right, i64 %rstep, ptr noalias %panel, i64 %begin, i64 %count, {TABLES}"
    return panels.declared(text, f"argand.small.pack.{about.name}", arguments, write)


def _pack_columns(text: Text, about: Small, column: str) -> None:
    size, width, kind = panels.BLOCK, about.shape.width, vector("float", panels.BLOCK)
    columns = _Columns(text, about, [text.value(f"add nsw i64 {column}, {c}") for c in range(size)], "%begin")
    panel = element(text, "%panel", column)

    def block(k: str) -> None:
        at = text.value(f"add nsw i64 %begin, {k}")
        group = text.value(f"udiv i64 {at}, %group")
        tables = zip(columns.at(k), columns.zeros, columns.scales, strict=True)
        lines = [
            _line(text, about, source, zero.spread(group, size), scale.spread(group, size))
            for source, zero, scale in tables
        ]
        target = element(text, panel, times(text, k, width))
        for row, value in enumerate(panels.turned(text, lines, kind)):
            text.line(f"store {kind} {value}, ptr {element(text, target, row * width)}, align 4")

    counted(text, "0", "%count", size, block)


def _line(text: Text, about: Small, source: str, zero: str, scale: str) -> str:
    """Elements of a column behind each other, as the numbers they stand for."""
    size, kind = panels.BLOCK, vector("float", panels.BLOCK)
    value = load(text, source, about.right, size) if about.bits == 8 else _halves(text, source)
    if _has_zero(about):
        value = text.value(f"fsub {kind} {value}, {zero}")
    return value if about.scale is None else text.value(f"fmul {kind} {value}, {scale}")


def _halves(text: Text, source: str) -> str:
    """The eight numbers of a word."""
    wide = vector("i32", _PER_WORD)
    word = text.value(f"load i32, ptr {source}, align 1")
    first = text.value(f"insertelement {wide} poison, i32 {word}, i64 0")
    spread = text.value(f"shufflevector {wide} {first}, {wide} poison, <{_PER_WORD} x i32> zeroinitializer")
    amounts = ", ".join(f"i32 {4 * lane}" for lane in range(_PER_WORD))
    moved = text.value(f"lshr {wide} {spread}, <{amounts}>")
    low = text.value(f"and {wide} {moved}, {splat('i32', _PER_WORD, 15)}")
    return text.value(f"sitofp {wide} {low} to {vector('float', _PER_WORD)}")
