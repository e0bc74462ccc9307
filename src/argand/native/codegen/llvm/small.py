"""native.codegen.llvm.small: inner functions of products whose right operand is kept in small integers.

In: how integers stand for numbers (``Quantization``), the tile of a target, element types. Out: the name of a function,
declared once per module; sizes, strides and where zeros and scales lie are arguments.

Few rows read the integers where they lie (``small_dots``). More rows copy a panel, as for other operands (``panels``),
and the copy applies zeros and scales.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from argand.native.codegen.llvm import panels
from argand.native.codegen.llvm.control import counted
from argand.native.codegen.llvm.panels import Tile, broadcast, element, load, times
from argand.native.codegen.text import Text, splat, vector
from argand.native.ir import loops as ir
from argand.native.ir.types import DType

TABLES: Final = ", ".join(
    (
        *("i64 %group", "ptr noalias %zeros", "i64 %zacross", "i64 %zalong"),
        *("ptr noalias %scales", "i64 %sacross", "i64 %salong"),
    )
)
OPERANDS: Final = "ptr noalias %left, i64 %lstep, ptr noalias %right, i64 %rstep, ptr noalias %sums"
DOTS: Final = f"{OPERANDS}, i64 %inner, i64 %columns, {TABLES}"
# of a word, side by side in a register of 4 bits: each is shifted by another amount
COPIES: Final = 4
_LINE: Final = 64  # bytes
PER_WORD: Final = 8  # numbers of 4 bits in a word of 32


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
    return Small(
        shape=shape,
        left=given.left.dtype,
        right=given.right.dtype,
        bits=quantized.bits,
        zero=zero,
        scale=scale,
        short=short,
    )


def fits(given: ir.Contraction, shape: Tile, few: bool) -> bool:
    """Whether there are functions for a contraction: groups are whole units."""
    quantized = given.right.quantized
    assert quantized is not None
    if few:
        return quantized.group % small_of(given, shape).unit == 0
    wide = isinstance(given.columns, int) and given.columns >= shape.width
    return wide and quantized.group % panels.BLOCK == 0 and given.left.dtype is DType.F32


# --- zeros and scales ------------------------------------------------------------------------


class Table:
    """The zeros or the scales of a column."""

    def __init__(self, text: Text, about: Small, which: str, column: str) -> None:
        self.text, self.which = text, which
        self.type = about.zero if which == "z" else about.scale
        if isinstance(self.type, DType):
            base = "%zeros" if which == "z" else "%scales"
            self.base = element(
                text, base, times(text, column, f"%{which}across"), self.type.row.memory
            )

    def spread(self, group: str, lanes: int) -> str:
        """The number of a group as a float in all lanes."""
        if not isinstance(self.type, DType):
            return splat("float", lanes, 1.0 if self.type is None else self.type)
        return broadcast(self.text, load(self.text, self.at(group), self.type, 1), lanes)

    def at(self, group: str) -> str:
        """Where the number of a group lies, if it does anywhere."""
        assert isinstance(self.type, DType)
        place = times(self.text, group, f"%{self.which}along")
        return element(self.text, self.base, place, self.type.row.memory)


def has_zero(about: Small) -> bool:
    """Whether something is subtracted from the integers."""
    return isinstance(about.zero, DType) or about.zero != 0


def _pointer(text: Text, about: Small, base: str, k: str) -> str:
    """Where the integer of an element lies, which begins a byte."""
    at = k if about.bits == 8 else text.value(f"lshr exact i64 {k}, 1")
    return element(text, base, at, "i8")


# --- few rows --------------------------------------------------------------------------------


class Columns:
    """Columns of right that are read side by side, from element ``k`` on."""

    def __init__(self, text: Text, about: Small, columns: list[str], k: str) -> None:
        self.text, self.about = text, about
        steps = [times(text, c, "%rstep") for c in columns]
        self.bases = [
            _pointer(text, about, element(text, "%right", step, "i8"), k) for step in steps
        ]
        self.zeros = [Table(text, about, "z", c) for c in columns]
        self.scales = [Table(text, about, "s", c) for c in columns]
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
            own.line(
                f"call void {copy}(ptr %right, i64 %rstep, ptr {panel}, i64 {k}, i64 {count}, {passed_on()})"
            )
            return panels.tiles(own, shape, heights, (left_along, panel, k, count))

        counted(own, "0", "%inner", 1, block)

    arguments = f"{OPERANDS}, i64 %rows, i64 %inner, i64 %columns, {TABLES}"
    return panels.declared(text, name, arguments, write)


def passed_on() -> str:
    """The tables of a function as arguments of another."""
    return TABLES.replace(" noalias", "")


def _pack(text: Text, about: Small) -> str:
    """``void f(right, rstep, panel, first, count, tables)``: rows of a panel from ``first`` on, as floats."""

    def write(own: Text) -> None:
        size = panels.BLOCK
        counted(
            own, "0", str(about.shape.width), size, lambda column: _pack_columns(own, about, column)
        )

    arguments = (
        f"ptr noalias %right, i64 %rstep, ptr noalias %panel, i64 %begin, i64 %count, {TABLES}"
    )
    return panels.declared(text, f"argand.small.pack.{about.name}", arguments, write)


def _pack_columns(text: Text, about: Small, column: str) -> None:
    size, width, kind = panels.BLOCK, about.shape.width, vector("float", panels.BLOCK)
    columns = Columns(
        text, about, [text.value(f"add nsw i64 {column}, {c}") for c in range(size)], "%begin"
    )
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
    if has_zero(about):
        value = text.value(f"fsub {kind} {value}, {zero}")
    return value if about.scale is None else text.value(f"fmul {kind} {value}, {scale}")


def _halves(text: Text, source: str) -> str:
    """The eight numbers of a word."""
    wide = vector("i32", PER_WORD)
    word = text.value(f"load i32, ptr {source}, align 1")
    first = text.value(f"insertelement {wide} poison, i32 {word}, i64 0")
    spread = text.value(
        f"shufflevector {wide} {first}, {wide} poison, <{PER_WORD} x i32> zeroinitializer"
    )
    amounts = ", ".join(f"i32 {4 * lane}" for lane in range(PER_WORD))
    moved = text.value(f"lshr {wide} {spread}, <{amounts}>")
    low = text.value(f"and {wide} {moved}, {splat('i32', PER_WORD, 15)}")
    return text.value(f"sitofp {wide} {low} to {vector('float', PER_WORD)}")
