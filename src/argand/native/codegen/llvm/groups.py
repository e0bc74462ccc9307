"""native.codegen.llvm.groups: products whose left operand is copied too, as LLVM text.

In: the height of tiles, how the operands lie. Out: the name of a function, declared once per module.

A group is some panels side by side. For each block along inner all its panels are copied; then the rows pass by, a tile
at a time: their elements are copied behind each other, which costs little beside a whole group, and meet every panel.
So tiles read two runs of memory, whatever the strides are: rows a power of two apart share a set of the nearest cache,
and elements across rows lie on a page each. What is missing from the last tile is zeros, so one height is enough.

The sum over inner is cut as in ``panels``, and each element is summed in the same order: bits are the same.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from argand.native.codegen.llvm import panels
from argand.native.codegen.llvm.control import counted
from argand.native.codegen.llvm.panels import BLOCK, INNER, Tile, broadcast, element, load, times
from argand.native.codegen.text import Text, vector
from argand.native.ir.types import DType

MOST: Final = 8  # panels of a group: their copies are 256 KB
AHEAD: Final = (
    8  # rows of a panel that are asked for before they are used: they come from the second cache
)


class PanelGroup(NamedTuple):
    """How products by groups are made."""

    shape: Tile
    left_along_inner: bool
    right_along_inner: bool
    right: DType
    whole: bool  # the inner size is a multiple of BLOCK
    direct: bool  # sums are the result's own memory

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return self.shape.heights[0]


def product(text: Text, group: PanelGroup) -> str:
    """``void f(left, left_step, right, right_step, sums, step, rows, inner, columns, panels, plane)``.

    Columns are those from the first of the group to the end of the matrix: the last panel begins early enough to be whole.
    Sums of a panel are rows a step apart; those of the next panel lie a plane after them. ``direct``: sums of all panels are
    rows of the result, which has no room for rows that are no real ones.
    """
    names = (
        "inner" if along else "across"
        for along in (group.left_along_inner, group.right_along_inner)
    )
    name = ".".join(("argand.group", *names, group.right.value))
    name += ".whole" * group.whole + ".direct" * group.direct
    operands = "ptr noalias %left, i64 %lstep, ptr noalias %right, i64 %rstep"
    operands += ", ptr noalias %sums, i64 %step"
    sizes = "i64 %rows, i64 %inner, i64 %columns, i64 %panels, i64 %plane"

    def write(own: Text) -> None:
        copies = own.slot("float", MOST * INNER * group.shape.width)
        lines = own.slot("float", INNER * group.height)
        last = own.value(f"sub nsw i64 %columns, {group.shape.width}")
        counted(own, "0", "%inner", 1, lambda k: _block(own, group, (copies, lines, last), k))

    return panels.declared(text, name, f"{operands}, {sizes}", write)


def _block(text: Text, group: PanelGroup, memory: tuple[str, str, str], k: str) -> str:
    """Copy a block of all panels, and add its products to all rows; gives where the next block begins."""
    copies, lines, last = memory
    shape, kind = group.shape, group.right.row.memory
    rest = text.value(f"sub nsw i64 %inner, {k}")
    count = text.intrinsic("smin", "i64", [rest, str(INNER)])
    right = element(
        text, "%right", k if group.right_along_inner else times(text, k, "%rstep"), kind
    )
    copy = panels.pack(text, shape, group.right, group.right_along_inner, group.whole)

    def panel(p: str) -> None:
        column = text.intrinsic("smin", "i64", [times(text, p, shape.width), last])
        step = times(text, column, "%rstep") if group.right_along_inner else column
        source, target = element(text, right, step, kind), _copy(text, group, copies, p)
        text.line(f"call void {copy}(ptr {source}, i64 %rstep, ptr {target}, i64 {count})")

    counted(text, "0", "%panels", 1, panel)
    left = element(text, "%left", k if group.left_along_inner else times(text, k, "%lstep"))
    first = text.value(f"icmp eq i64 {k}, 0")
    turn, sum_up = _lines(text, group), _tile(text, shape, group.height)
    some = text.slot("float", group.height * shape.width) if group.direct else ""

    def rows(row: str, part: bool) -> None:
        there = text.value(f"sub nsw i64 %rows, {row}")
        at = element(text, left, times(text, row, "%lstep") if group.left_along_inner else row)
        text.line(f"call void {turn}(ptr {at}, i64 %lstep, ptr {lines}, i64 {count}, i64 {there})")
        sums = element(text, "%sums", times(text, row, "%step"))

        def one(p: str) -> None:
            place = times(text, p, "%plane")
            if group.direct:
                place = text.intrinsic("smin", "i64", [times(text, p, shape.width), last])
            to = element(text, sums, place)
            given = f"ptr {lines}, ptr {_copy(text, group, copies, p)}, i64 {count}"
            if part:
                text.line(f"call void {sum_up}({given}, ptr {some}, i64 {shape.width}, i1 true)")
                counted(text, "0", there, 1, lambda r: _add_row(text, shape, (some, to, first), r))
            else:
                text.line(f"call void {sum_up}({given}, ptr {to}, i64 %step, i1 {first})")

        counted(text, "0", "%panels", 1, one)

    if group.direct:
        slot = counted(text, "0", "%rows", group.height, lambda row: rows(row, part=False))
        end = text.value(f"add nsw i64 %rows, {group.height - 1}")
        counted(text, "", end, group.height, lambda row: rows(row, part=True), slot)
    else:
        end = text.value(f"add nsw i64 %rows, {group.height - 1}")
        counted(text, "0", end, group.height, lambda row: rows(row, part=False))
    return text.value(f"add nsw i64 {k}, {count}")


def _add_row(text: Text, shape: Tile, memory: tuple[str, str, str], row: str) -> None:
    """Set a row of the result, or add to it."""
    some, to, first = memory
    kind = vector("float", shape.lanes)
    for v in range(shape.vectors):
        place = text.value(f"add nsw i64 {times(text, row, shape.width)}, {v * shape.lanes}")
        new = load(text, element(text, some, place), DType.F32, shape.lanes)
        at = element(text, element(text, to, times(text, row, "%step")), v * shape.lanes)
        old = load(text, at, DType.F32, shape.lanes)
        both = text.value(f"fadd {kind} {old}, {new}")
        value = text.value(f"select i1 {first}, {kind} {new}, {kind} {both}")
        text.line(f"store {kind} {value}, ptr {at}, align 4")


def _copy(text: Text, group: PanelGroup, copies: str, p: str) -> str:
    """Where the copy of a panel lies."""
    return element(text, copies, times(text, p, INNER * group.shape.width))


# --- the rows of a tile, behind each other ----------------------------------------------------


def _lines(text: Text, group: PanelGroup) -> str:
    """``void f(left, step, lines, count, rows)``: for each place along inner, an element of each row."""
    kind = "inner" if group.left_along_inner else "across"
    name = f"argand.lines{group.height}.{kind}{'.whole' * group.whole}"

    def write(own: Text) -> None:
        full, part, done = own.label("full"), own.label("part"), own.label("done")
        enough = own.value(f"icmp sge i64 %rows, {group.height}")
        own.line(f"br i1 {enough}, label %{full}, label %{part}")
        own.begin_block(full)
        if group.left_along_inner:
            _turn(own, group)
        else:
            counted(own, "0", "%count", 1, lambda k: _copy_rows(own, group.height, k))
        own.line(f"br label %{done}")
        own.begin_block(part)
        counted(own, "0", "%count", 1, lambda k: _some_rows(own, group, k, "%rows"))
        own.line(f"br label %{done}")
        own.begin_block(done)

    arguments = "ptr noalias %left, i64 %step, ptr noalias %lines, i64 %count, i64 %rows"
    return panels.declared(text, name, arguments, write)


def _parts(height: int) -> list[tuple[int, int]]:
    """The rows of a tile as blocks that can be turned: the first row and the size of each."""
    found, first = [], 0
    while first < height:
        size = next(n for n in (BLOCK, 4, 2, 1) if n <= height - first)
        found.append((first, size))
        first += size
    return found


def _turn(text: Text, group: PanelGroup) -> None:
    """Rows along inner, BLOCK elements at a time, become elements behind each other."""

    def block(k: str) -> None:
        target = element(text, "%lines", times(text, k, group.height))
        for first, size in _parts(group.height):
            kind = vector("float", size)
            rows = [element(text, "%left", times(text, first + r, "%step")) for r in range(size)]
            for begin in range(0, BLOCK, size):
                sources = [element(text, element(text, row, k), begin) for row in rows]
                found = [load(text, source, DType.F32, size) for source in sources]
                for place, value in enumerate(panels.turned(text, found, kind), begin):
                    at = element(text, target, place * group.height + first)
                    text.line(f"store {kind} {value}, ptr {at}, align 4")

    slot = counted(text, "0", "%count", BLOCK, block)
    if not group.whole:
        every = str(group.height)
        counted(text, "", "%count", 1, lambda k: _some_rows(text, group, k, every), slot)


def _copy_rows(text: Text, height: int, k: str) -> None:
    """The rows of a tile that lie side by side."""
    source = element(text, "%left", times(text, k, "%step"))
    target = element(text, "%lines", times(text, k, height))
    for first, size in _parts(height):
        value = load(text, element(text, source, first), DType.F32, size)
        kind = vector("float", size)
        text.line(f"store {kind} {value}, ptr {element(text, target, first)}, align 4")


def _some_rows(text: Text, group: PanelGroup, k: str, rows: str) -> None:
    """One element of each of the rows that there are, and zeros for the others."""
    target = element(text, "%lines", times(text, k, group.height))

    def one(row: str) -> None:
        place = (row, k) if group.left_along_inner else (k, row)
        at = text.value(f"add nsw i64 {times(text, place[0], '%step')}, {place[1]}")
        value = load(text, element(text, "%left", at), DType.F32, 1)
        text.line(f"store float {value}, ptr {element(text, target, row)}, align 4")

    def nothing(row: str) -> None:
        text.line(f"store float 0.0, ptr {element(text, target, row)}, align 4")

    slot = counted(text, "0", rows, 1, one)
    counted(text, "", str(group.height), 1, nothing, slot)


# --- a tile in registers ----------------------------------------------------------------------


def _tile(text: Text, shape: Tile, height: int) -> str:
    """``void f(lines, panel, count, sums, step, first)``: count products for height rows, added to sums, or set."""
    arguments = "ptr noalias %lines, ptr noalias %panel, i64 %count, ptr noalias %sums"
    arguments += ", i64 %step, i1 %first"
    return panels.declared(
        text, f"argand.tile{height}.lines", arguments, lambda own: _write_tile(own, shape, height)
    )


def _write_tile(text: Text, shape: Tile, height: int) -> None:
    lanes, kind = shape.lanes, vector("float", shape.lanes)
    sums = panels.cleared(text, shape, height)
    text.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")

    def add(k: str) -> None:
        base = element(text, "%panel", times(text, k, shape.width))
        line = element(text, "%lines", times(text, k, height))
        right = []
        for v in range(shape.vectors):
            at = element(text, base, v * lanes)
            ahead = element(text, at, AHEAD * shape.width)
            text.line(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")
            right.append(load(text, at, DType.F32, lanes))
        for r in range(height):
            left = broadcast(text, load(text, element(text, line, r), DType.F32, 1), lanes)
            for v in range(shape.vectors):
                old = text.value(f"load {kind}, ptr {sums[r, v]}")
                new = text.intrinsic("fma", kind, [left, right[v], old])
                text.line(f"store {kind} {new}, ptr {sums[r, v]}")

    counted(text, "0", "%count", 1, add)
    panels.store_sums(text, shape, sums, "%step")
