"""native.codegen.llvm.panels: the inner functions of matrix products, as LLVM text.

In: the tile of a target (``Tile``), element types, how operands lie. Out: the name of a function that is declared
once per module, whatever the sizes of its products are: sizes and strides are arguments.

A product is computed by panels of ``Tile.width`` columns. The panel of the right operand is copied, ``INNER`` rows at
a time, into memory where its columns lie side by side; then tiles of a few rows are summed in registers, their left
elements read where they are and broadcast. Weights are therefore never kept in another form between two calls:
copying one of their panels costs some percent of the tiles that use it from 64 rows on (decision 0021), less than
to find out at every call that nobody wrote to them. With few rows the copy would cost more than the product, and
rows of weights that lie behind each other are read in place (``dots``).

The sum over ``inner`` is cut into blocks, each summed on its own: always the same ones, so that results have the same
bits however a product is split, with rounding errors as small as a BLAS has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from argand.native.codegen.llvm import arithmetic
from argand.native.codegen.llvm.control import counted, function
from argand.native.codegen.text import Text, vector
from argand.native.ir.types import DType

# rows of a panel that are copied at a time: 32 KB, so that the tiles find them near
INNER: Final = 256
# columns turned to rows at a time: blocks of 16 are slower, and LLVM takes twice as long
BLOCK: Final = 8


class Tile(NamedTuple):
    """How a target sums products in registers."""

    lanes: int  # floats of a register
    vectors: int  # registers side by side
    heights: tuple[int, ...]  # rows, the largest first; the last is 1

    @property
    def width(self) -> int:
        """Columns."""
        return self.lanes * self.vectors


Sums: TypeAlias = dict[tuple[int, int], str]  # by row and vector


class Way(NamedTuple):
    """How the operands of a product lie: which of their two strides is 1."""

    left_along_inner: bool
    right_along_inner: bool
    right: DType
    whole: bool  # the inner size is a multiple of BLOCK
    heights: tuple[int, ...]  # of the tiles that occur


def element(text: Text, pointer: str, index: str | int, kind: str = "float") -> str:
    """The address of an element."""
    return text.value(f"getelementptr {kind}, ptr {pointer}, i64 {index}")


def load(text: Text, pointer: str, dtype: DType, lanes: int) -> str:
    """Elements behind each other, as floats."""
    name = text.value(
        f"load {vector(dtype.row.memory, lanes)}, ptr {pointer}, align {dtype.row.bytes}"
    )
    if dtype.is_half:
        return arithmetic.load_half(text, name, dtype, lanes)
    return name if dtype is DType.F32 else arithmetic.cast(text, name, dtype, DType.F32, lanes)


def times(text: Text, left: str | int, right: str | int) -> str:
    """The product of two numbers of elements."""
    return text.value(f"mul nsw i64 {left}, {right}")


def broadcast(text: Text, value: str, lanes: int) -> str:
    """A float in all lanes."""
    kind = vector("float", lanes)
    first = text.value(f"insertelement {kind} poison, float {value}, i64 0")
    return text.value(
        f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer"
    )


def declared(text: Text, name: str, arguments: str, write: Callable[[Text], None]) -> str:
    """A function of the module, written at the first question for it; its name."""
    own = Text(text.declarations)
    head = f"define internal void @{name}({arguments}) noinline nounwind"
    if not any(known.startswith(head) for known in text.declarations):
        write(own)
        text.declare(function(own, head))
    return f"@{name}"


# --- a tile in registers ---------------------------------------------------------------------


def tile(text: Text, shape: Tile, height: int, along_inner: bool) -> str:
    """``void f(left, step, panel, count, sums, first)``: count products for height rows, added to sums, or set."""
    kind = "inner" if along_inner else "rows"
    arguments = (
        "ptr noalias %left, i64 %step, ptr noalias %panel, i64 %count, ptr noalias %sums, i1 %first"
    )

    def write(own: Text) -> None:
        _write_tile(own, shape, height, along_inner)

    return declared(text, f"argand.tile{height}.{kind}", arguments, write)


def _write_tile(text: Text, shape: Tile, height: int, along_inner: bool) -> None:
    lanes, kind = shape.lanes, vector("float", shape.lanes)
    rows = [
        element(text, "%left", times(text, r, "%step") if along_inner else r) for r in range(height)
    ]
    sums = cleared(text, shape, height)

    def add(k: str) -> None:
        at = k if along_inner else times(text, k, "%step")
        base = element(text, "%panel", times(text, k, shape.width))
        right = [
            load(text, element(text, base, v * lanes), DType.F32, lanes)
            for v in range(shape.vectors)
        ]
        for r, row in enumerate(rows):
            left = broadcast(text, load(text, element(text, row, at), DType.F32, 1), lanes)
            for v in range(shape.vectors):
                slot = sums[r, v]
                old = text.value(f"load {kind}, ptr {slot}")
                text.line(
                    f"store {kind} {text.intrinsic('fma', kind, [left, right[v], old])}, ptr {slot}"
                )

    counted(text, "0", "%count", 1, add)
    store_sums(text, shape, sums, shape.width)


def cleared(text: Text, shape: Tile, height: int) -> Sums:
    """Registers for the sums of a tile, zero."""
    kind = vector("float", shape.lanes)
    sums = {(r, v): text.slot(kind) for r in range(height) for v in range(shape.vectors)}
    for slot in sums.values():
        text.line(f"store {kind} zeroinitializer, ptr {slot}")
    return sums


def store_sums(text: Text, shape: Tile, sums: Sums, step: str | int) -> None:
    """Set the sums in memory (``%first``), or add to them; ``step`` from row to row."""
    lanes, kind = shape.lanes, vector("float", shape.lanes)
    new, more, done = text.label("new"), text.label("more"), text.label("end")
    text.line(f"br i1 %first, label %{new}, label %{more}")
    for label, adds in ((new, False), (more, True)):
        text.begin_block(label)
        for (r, v), slot in sums.items():
            value = text.value(f"load {kind}, ptr {slot}")
            to = element(text, element(text, "%sums", times(text, r, step)), v * lanes)
            if adds:
                value = text.value(f"fadd {kind} {load(text, to, DType.F32, lanes)}, {value}")
            text.line(f"store {kind} {value}, ptr {to}, align 4")
        text.line(f"br label %{done}")
    text.begin_block(done)


# --- copies of a panel -----------------------------------------------------------------------


def pack(text: Text, shape: Tile, dtype: DType, along_inner: bool, whole: bool) -> str:
    """``void f(right, step, panel, count)``: count rows of a panel, its columns behind each other."""
    name = f"argand.pack.{dtype.value}.{'inner' if along_inner else 'columns'}{'' if whole else '.rest'}"

    def write(own: Text) -> None:
        if along_inner:
            _write_turned(own, shape, dtype, whole)
        else:
            counted(own, "0", "%count", 1, lambda k: _copy_row(own, shape, dtype, k))

    return declared(
        text, name, "ptr noalias %right, i64 %step, ptr noalias %panel, i64 %count", write
    )


def _copy_row(text: Text, shape: Tile, dtype: DType, k: str) -> None:
    source = element(text, "%right", times(text, k, "%step"), dtype.row.memory)
    target = element(text, "%panel", times(text, k, shape.width))
    for v in range(shape.vectors):
        value = load(
            text, element(text, source, v * shape.lanes, dtype.row.memory), dtype, shape.lanes
        )
        text.line(
            f"store {vector('float', shape.lanes)} {value}, ptr {element(text, target, v * shape.lanes)}, align 4"
        )


def _write_turned(text: Text, shape: Tile, dtype: DType, whole: bool) -> None:
    """Blocks of columns that lie along ``inner`` are turned in registers."""
    size, memory, kind = (
        min(BLOCK, shape.lanes),
        dtype.row.memory,
        vector("float", min(BLOCK, shape.lanes)),
    )

    def columns(first: str) -> None:
        base = element(text, "%right", times(text, first, "%step"), memory)
        sources = [element(text, base, times(text, c, "%step"), memory) for c in range(size)]
        panel = element(text, "%panel", first)

        def block(k: str) -> None:
            lines = [
                load(text, element(text, source, k, memory), dtype, size) for source in sources
            ]
            target = element(text, panel, times(text, k, shape.width))
            for row, value in enumerate(turned(text, lines, kind)):
                text.line(
                    f"store {kind} {value}, ptr {element(text, target, row * shape.width)}, align 4"
                )

        def single(k: str) -> None:
            target = element(text, panel, times(text, k, shape.width))

            def single_element(c: str) -> None:
                at = text.value(f"add nsw i64 {times(text, c, '%step')}, {k}")
                value = load(text, element(text, base, at, memory), dtype, 1)
                text.line(f"store float {value}, ptr {element(text, target, c)}, align 4")

            counted(text, "0", str(size), 1, single_element)

        slot = counted(text, "0", "%count", size, block)
        if not whole:
            counted(text, "", "%count", 1, single, slot)

    counted(text, "0", str(shape.width), size, columns)


def turned(text: Text, lines: list[str], kind: str) -> list[str]:
    """Rows become columns: blocks of 1, 2, 4, ... elements beside the diagonal change places."""
    size, distance = len(lines), 1
    while distance < size:
        for i in range(size):
            if i & distance:
                continue
            upper, lower = lines[i], lines[i | distance]
            kept = [lane if not lane & distance else size + lane - distance for lane in range(size)]
            moved = [
                lane + distance if not lane & distance else size + lane for lane in range(size)
            ]
            lines[i], lines[i | distance] = (
                text.value(
                    f"shufflevector {kind} {upper}, {kind} {lower}, <{size} x i32> <{_numbers(mask)}>"
                )
                for mask in (kept, moved)
            )
        distance *= 2
    return lines


def _numbers(mask: list[int]) -> str:
    return ", ".join(f"i32 {lane}" for lane in mask)


def pack_narrow(text: Text, shape: Tile, dtype: DType) -> str:
    """``void f(right, column_step, row_step, panel, count, columns)``: a panel with fewer columns, the others 0."""
    arguments = (
        "ptr noalias %right, i64 %across, i64 %down, ptr noalias %panel, i64 %count, i64 %columns"
    )

    def write(own: Text) -> None:
        def row(k: str) -> None:
            target = element(own, "%panel", times(own, k, shape.width))
            source = element(own, "%right", times(own, k, "%down"), dtype.row.memory)

            def copied(c: str) -> None:
                value = load(
                    own, element(own, source, times(own, c, "%across"), dtype.row.memory), dtype, 1
                )
                own.line(f"store float {value}, ptr {element(own, target, c)}, align 4")

            def nothing(c: str) -> None:
                own.line(f"store float 0.0, ptr {element(own, target, c)}, align 4")

            slot = counted(own, "0", "%columns", 1, copied)
            counted(own, "", str(shape.width), 1, nothing, slot)

        counted(own, "0", "%count", 1, row)

    return declared(text, f"argand.pack.{dtype.value}.narrow", arguments, write)


# --- a block of rows by a panel --------------------------------------------------------------


def product(text: Text, shape: Tile, way: Way, narrow: bool) -> str:
    """``void f(left, left_step, right, right_step, sums, rows, inner, columns)``: rows of sums, a panel wide."""
    names = ("inner" if along else "across" for along in way[:2])
    name = ".".join(
        (
            "argand.product",
            *names,
            way.right.value,
            *map(str, way.heights),
            *(("whole",) * way.whole),
        )
    )
    if narrow:
        name += ".narrow"
    operands = "ptr noalias %left, i64 %lstep, ptr noalias %right, i64 %rstep"
    arguments = f"{operands}, ptr noalias %sums, i64 %rows, i64 %inner, i64 %columns"

    def write(own: Text) -> None:
        panel = own.slot("float", INNER * shape.width)
        counted(own, "0", "%inner", 1, lambda k: _inner_block(own, shape, way, panel, k, narrow))

    return declared(text, name, arguments, write)


def _inner_block(text: Text, shape: Tile, way: Way, panel: str, k: str, narrow: bool) -> str:
    """Copy a block of the panel, and add its products to all rows; gives where the next block begins."""
    left_along, right_along = way.left_along_inner, way.right_along_inner
    rest = text.value(f"sub nsw i64 %inner, {k}")
    count = text.intrinsic("smin", "i64", [rest, str(INNER)])
    right = element(
        text, "%right", k if right_along else times(text, k, "%rstep"), way.right.row.memory
    )
    if narrow:
        steps = "i64 %rstep, i64 1" if right_along else "i64 1, i64 %rstep"
        copy = pack_narrow(text, shape, way.right)
        text.line(f"call void {copy}(ptr {right}, {steps}, ptr {panel}, i64 {count}, i64 %columns)")
    else:
        copy = pack(text, shape, way.right, right_along, way.whole)
        text.line(f"call void {copy}(ptr {right}, i64 %rstep, ptr {panel}, i64 {count})")
    return tiles(text, shape, way.heights, (left_along, panel, k, count))


def tiles(
    text: Text, shape: Tile, heights: tuple[int, ...], block: tuple[bool, str, str, str]
) -> str:
    """Add the products of a copied block to the sums of all rows; gives where the next block begins.

    ``block``: whether left lies along inner, the copy, where it begins along inner, and how long it is.
    """
    left_along, panel, k, count = block
    first = text.value(f"icmp eq i64 {k}, 0")
    left = element(text, "%left", k if left_along else times(text, k, "%lstep"))
    slot, low = "", "0"
    for height in heights:
        name = tile(text, shape, height, left_along)

        def run(row: str, name: str = name) -> None:
            at = element(text, left, times(text, row, "%lstep") if left_along else row)
            sums = element(text, "%sums", times(text, row, shape.width))
            given = f"ptr {at}, i64 %lstep, ptr {panel}, i64 {count}, ptr {sums}, i1 {first}"
            text.line(f"call void {name}({given})")

        slot = counted(text, low, "%rows", height, run, slot)
        low = ""
    return text.value(f"add nsw i64 {k}, {count}")


# --- few rows --------------------------------------------------------------------------------
