"""native.codegen.llvm.dots: few rows times columns that are read where they lie, as LLVM text.

In: the tile of a target, how many rows there are, element types. Out: the name of a function that is declared once per
module. Copying a panel (``panels``) would cost more than such a product.
"""

from __future__ import annotations

import functools
from typing import Final, NamedTuple

from argand.native.codegen.llvm.control import counted
from argand.native.codegen.llvm.panels import Tile, declared, element, load, times
from argand.native.codegen.text import Text, vector
from argand.native.ir.types import DType

# elements of the left operand that stay near while columns of the right one pass by
LEFT: Final = 4096


class _Dots(NamedTuple):
    """What the text of one such function depends on."""

    shape: Tile
    rows: int
    left: DType
    right: DType
    whole: bool  # the inner size is a multiple of the lanes

    @property
    def length(self) -> int:
        """Elements of a row that are summed at a time: all rows of left stay in the nearest cache."""
        return int(LEFT // self.rows // self.shape.lanes * self.shape.lanes)

    @property
    def step(self) -> int:
        """From row to row of the copy of left; rows a power of two apart would share one set of a cache."""
        return self.length + self.shape.lanes

    @property
    def together(self) -> int:
        """Columns at a time: enough sums to hide the latency of one, and no more than there are registers."""
        most = 24 if self.shape.lanes >= 16 else 12
        return max(count for count in (1, 2, 4, 8) if count == 1 or count * self.rows <= most)

    @property
    def unroll(self) -> int:
        """Vectors of a column at a time, where few columns alone would wait for their sums."""
        return max(1, 8 // (self.together * self.rows))


def dots(text: Text, shape: Tile, rows: int, dtypes: tuple[DType, DType], whole: bool) -> str:
    """``void f(left, left_step, right, right_step, sums, inner, columns)``: columns of right read where they lie.

    All rows of left meet some columns of right at a time; the sums of a column are lanes that are added at the end.
    """
    about = _Dots(shape, rows, *dtypes, whole)
    name = f"argand.dots{rows}.{dtypes[0].value}.{dtypes[1].value}{'.whole' * whole}"
    operands = "ptr noalias %left, i64 %lstep, ptr noalias %right, i64 %rstep"

    def write(own: Text) -> None:
        copy = own.slot("float", about.rows * about.step)
        counted(own, "0", "%inner", 1, lambda k: _dots_block(own, about, copy, k))

    return declared(text, name, f"{operands}, ptr noalias %sums, i64 %inner, i64 %columns", write)


def _dots_block(text: Text, about: _Dots, copy: str, k: str) -> str:
    """Part of all sums; gives where the next part begins."""
    rest = text.value(f"sub nsw i64 %inner, {k}")
    count = text.intrinsic("smin", "i64", [rest, str(about.length)])
    for row in range(about.rows):
        at = text.value(f"add nsw i64 {times(text, row, '%lstep')}, {k}")
        source = element(text, "%left", at, about.left.row.memory)
        target = element(text, copy, row * about.step)
        slot, low = "", "0"
        for lanes in (about.shape.lanes, *((1,) * (not about.whole))):

            def move(
                i: str, lanes: int = lanes, source: str = source, target: str = target
            ) -> None:
                value = load(
                    text, element(text, source, i, about.left.row.memory), about.left, lanes
                )
                text.line(
                    f"store {vector('float', lanes)} {value}, ptr {element(text, target, i)}, align 4"
                )

            slot = counted(text, low, count, lanes, move, slot)
            low = ""
    first = text.value(f"icmp eq i64 {k}, 0")
    slot, low = "", "0"
    for together in dict.fromkeys((about.together, 1)):

        def columns(c: str, together: int = together) -> None:
            base = text.value(f"add nsw i64 {times(text, c, '%rstep')}, {k}")
            right = element(text, "%right", base, about.right.row.memory)
            rights = [
                element(text, right, times(text, n, "%rstep"), about.right.row.memory)
                for n in range(together)
            ]
            _dot(text, about, copy, rights, count, (c, first))

        slot = counted(text, low, "%columns", together, columns, slot)
        low = ""
    return text.value(f"add nsw i64 {k}, {count}")


def _dot(
    text: Text, about: _Dots, copy: str, rights: list[str], count: str, place: tuple[str, str]
) -> None:
    """The sums of some columns over count elements, added to those before them, or set."""
    lanes, kind = about.shape.lanes, vector("float", about.shape.lanes)
    places = [(r, c) for r in range(about.rows) for c in range(len(rights))]
    sums = {(*p, u): text.slot(kind) for p in places for u in range(about.unroll)}
    singles = {} if about.whole else {(*p, 0): text.slot("float") for p in places}
    text.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    # to the columns after these, in the next level of cache
    jump = times(text, "%rstep", len(rights))
    for slot in sums.values():
        text.line(f"store {kind} zeroinitializer, ptr {slot}")
    for slot in singles.values():
        text.line(f"store float 0.0, ptr {slot}")

    def add(k: str, width: int, slots: dict[tuple[int, int, int], str], repeats: int = 1) -> None:
        of = vector("float", width)
        for u in range(repeats):
            left = element(text, element(text, copy, k), u * width)
            values = [
                load(text, element(text, left, r * about.step), DType.F32, width)
                for r in range(about.rows)
            ]
            for c, source in enumerate(rights):
                at = element(
                    text,
                    element(text, source, k, about.right.row.memory),
                    u * width,
                    about.right.row.memory,
                )
                # the processor's own prefetch ends with a row, which may be half a page
                if width > 1:
                    ahead = element(text, at, jump, about.right.row.memory)
                    text.line(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 2, i32 1)")
                weight = load(text, at, about.right, width)
                for r, value in enumerate(values):
                    slot = slots[r, c, u]
                    old = text.value(f"load {of}, ptr {slot}")
                    text.line(
                        f"store {of} {text.intrinsic('fma', of, [value, weight, old])}, ptr {slot}"
                    )

    slot, low = "", "0"
    for repeats in dict.fromkeys((about.unroll, 1)):
        body = functools.partial(add, width=lanes, slots=sums, repeats=repeats)
        slot = counted(text, low, count, lanes * repeats, body, slot)
        low = ""
    if not about.whole:
        counted(text, "", count, 1, lambda k: add(k, 1, singles), slot)
    for r, c in places:
        parts = [sums[r, c, u] for u in range(about.unroll)]
        _add_to_sum(text, about, parts, None if about.whole else singles[r, c, 0], (r, c), place)


def _add_to_sum(
    text: Text,
    about: _Dots,
    parts: list[str],
    single: str | None,
    at: tuple[int, int],
    place: tuple[str, str],
) -> None:
    """The lanes of one sum are added to what the blocks before gave; ``single``: the elements beyond whole vectors."""
    lanes, kind = about.shape.lanes, vector("float", about.shape.lanes)
    text.declare(f"declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, {kind})")
    column, first = place
    r, c = at
    to = element(text, "%sums", text.value(f"add nsw i64 {column}, {r * about.shape.width + c}"))
    before = text.value(f"select i1 {first}, float 0.0, float {load(text, to, DType.F32, 1)}")
    if single is not None:
        before = text.value(f"fadd float {before}, {load(text, single, DType.F32, 1)}")
    loaded = [text.value(f"load {kind}, ptr {part}") for part in parts]
    value = functools.reduce(lambda a, b: text.value(f"fadd {kind} {a}, {b}"), loaded)
    call = f"call reassoc float @llvm.vector.reduce.fadd.v{lanes}f32(float 0.0, {kind} {value})"
    total = text.value(f"fadd float {before}, {text.value(call)}")
    text.line(f"store float {total}, ptr {to}, align 4")
