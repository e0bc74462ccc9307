"""native.codegen.llvm.small_dots: few rows times a right operand of small integers, which are read where they lie.

In: what the integers stand for (``Small``), how many rows there are. Out: the name of a function, declared once per module.

What a group adds to a sum is scaled once. Integers of 8 bits are converted as vectors. Of 4 bits, a word of 8 numbers is
spread over lanes, and each lane keeps another of them, where it is: a multiple of a power of 16. Rows of left are
copied first, in the order in which lanes meet them, over that power.

Zeros are subtracted from sums, not from elements: ``sum x * (q - zero) == sum x * q - zero * sum x``. That holds for
numbers of ordinary size; a block of left with infinities or huge ones goes through a slower text, which subtracts from
elements and scales them, as eager does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from argand.native.codegen.llvm import panels
from argand.native.codegen.llvm.control import counted
from argand.native.codegen.llvm.dots import LEFT
from argand.native.codegen.llvm.panels import element, load, times
from argand.native.codegen.llvm.small import (
    COPIES,
    DOTS,
    OPERANDS,
    PER_WORD,
    TABLES,
    Columns,
    Small,
    has_zero,
)
from argand.native.codegen.text import Text, number, splat, vector
from argand.native.ir.types import DType

# how far the numbers of left stay below the largest float, so that sums before scaling do
_HUGE: Final = 2.0**52


# from element, to element, the number of the (first) group in its column, and its place in a block
GroupBody: TypeAlias = Callable[[str, str, str, str], None]
# an integer, its column and its part of a unit
_Changed: TypeAlias = Callable[[str, int, int], str]


def small_dots(text: Text, about: Small, rows: int) -> str:
    """``void f(left, lstep, right, rstep, sums, inner, columns, tables)``: columns of right read where they lie."""

    def write(own: Text) -> None:
        _SmallDots(own, about, rows).run()

    return panels.declared(text, f"argand.small{rows}.{about.name}", DOTS, write)


def exact(text: Text, about: Small, rows: int) -> str:
    """``void f(left, lstep, right, rstep, sums, begin, inner, columns, tables)``: from ``begin`` on, as eager does."""

    def write(own: Text) -> None:
        _SmallDots(own, about, rows).run_exact()

    arguments = f"{OPERANDS}, i64 %begin, i64 %inner, i64 %columns, {TABLES}"
    return panels.declared(text, f"argand.exact{rows}.{about.name}", arguments, write)


def each_group(text: Text, step: int, block: tuple[str, str], body: GroupBody) -> None:
    """Run ``body`` over the groups of a block, each with its place: so many elements behind each other."""
    k, length = block
    group, ends, place = (text.slot("i64") for _ in range(3))
    first = text.value(f"udiv i64 {k}, %group")
    into = text.value(f"sub nsw i64 {k}, {times(text, first, '%group')}")
    start = text.value(f"sub nsw i64 %group, {into}")
    for slot, value in ((group, first), (ends, start), (place, "0")):
        text.line(f"store i64 {value}, ptr {slot}")

    def one(i: str) -> str:
        number_of, whole, at = (
            text.value(f"load i64, ptr {slot}") for slot in (group, ends, place)
        )
        end = text.intrinsic("smin", "i64", [whole, length])
        body(i, end, number_of, at)
        for slot, value, more in (
            (group, number_of, 1),
            (ends, whole, "%group"),
            (place, at, step),
        ):
            text.line(f"store i64 {text.value(f'add nsw i64 {value}, {more}')}, ptr {slot}")
        return end

    counted(text, "0", length, 1, one)


class _SmallDots:
    """The text of one such function."""

    def __init__(self, text: Text, about: Small, rows: int) -> None:
        self.text, self.about, self.rows = text, about, rows
        self.lanes, self.kind = about.shape.lanes, vector("float", about.shape.lanes)
        self.parts = range(8 // about.bits)
        self.length = max(LEFT // rows // about.unit, 1) * about.unit
        # rows a power of two apart would share one set of a cache
        self.step = self.length + self.lanes
        self.copy = text.slot("float", rows * self.step)
        # For each row and group the sums of left, as many as there are lanes; a group is at least a unit.
        self.sums_step = (self.length // about.unit + 1) * self.lanes
        self.left_sums = text.slot("float", rows * self.sums_step) if has_zero(about) else ""
        # becomes NaN where a block has numbers that sums before scaling do not bear
        self.seen = text.slot(self.kind)

    def run(self) -> None:
        """All blocks, those with odd numbers as eager does."""
        counted(self.text, "0", "%inner", 1, self._block)

    def run_exact(self) -> None:
        """All blocks as eager does."""

        def block(k: str) -> str:
            count = self._copy_block(k)
            self._all_columns(k, count, True)
            return self.text.value(f"add nsw i64 {k}, {count}")

        counted(self.text, "%begin", "%inner", 1, block)

    def _copy_block(self, k: str) -> str:
        """Copy the rows of a block; gives its length."""
        text = self.text
        rest = text.value(f"sub nsw i64 %inner, {k}")
        count = text.intrinsic("smin", "i64", [rest, str(self.length)])
        text.line(f"store {self.kind} zeroinitializer, ptr {self.seen}")
        for row in range(self.rows):
            at = text.value(f"add nsw i64 {times(text, row, '%lstep')}, {k}")
            source = element(text, "%left", at, self.about.left.row.memory)
            self._copy_row(source, element(text, self.copy, row * self.step), count)
        return count

    def _block(self, k: str) -> str:
        """Part of all sums; gives where the next part begins."""
        text, count = self.text, self._copy_block(k)
        if has_zero(self.about):
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
            value = load(
                text, element(text, source, i, about.left.row.memory), about.left, about.unit
            )
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
        moved = text.value(
            f"shufflevector {kind} {value}, {kind} poison, <{self.lanes} x i32> <{mask}>"
        )
        powers = ", ".join(f"float {number('float', 16.0**-p)}" for p in self._powers(part))
        return text.value(f"fmul {self.kind} {moved}, <{powers}>")

    def _powers(self, part: int) -> list[int]:
        """By which powers of 16 numbers of 4 bits are larger than they should be, lane by lane."""
        words = self.lanes // COPIES
        return [
            lane // words + (COPIES * part if self._unsigned else 0) for lane in range(self.lanes)
        ]

    @property
    def _unsigned(self) -> bool:
        """Whether the target converts integers without sign: the last of a word has the place of the sign."""
        return self.lanes >= 16

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
                        value = load(
                            text, element(text, at, part * self.lanes), DType.F32, self.lanes
                        )
                        self._add(total, value, self._back(part))

                counted(text, begin, end, self.about.unit, unit)
                value = text.value(f"load {self.kind}, ptr {total}")
                to = element(text, element(text, self.left_sums, place), row * self.sums_step)
                text.line(f"store {self.kind} {value}, ptr {to}, align 4")

        each_group(text, self.lanes, (k, length), group)

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
        right = Columns(
            text, self.about, [text.value(f"add nsw i64 {column}, {n}") for n in range(count)], k
        )
        sums = {(r, c): text.slot(self.kind) for r in range(self.rows) for c in range(count)}
        for slot in sums.values():
            text.line(f"store {self.kind} zeroinitializer, ptr {slot}")

        def group(begin: str, end: str, number_of: str, place: str) -> None:
            zeros = [table.spread(number_of, self.lanes) for table in right.zeros]
            scales = [table.spread(number_of, self.lanes) for table in right.scales]
            if exact:
                self._group(
                    begin,
                    end,
                    right,
                    sums,
                    lambda w, c, part: self._meant(w, zeros[c], scales[c], part),
                )
                return
            partial = {place: text.slot(self.kind) for place in sums}
            for slot in partial.values():
                text.line(f"store {self.kind} zeroinitializer, ptr {slot}")
            self._group(begin, end, right, partial, lambda w, c, part: w)
            for (r, c), slot in partial.items():
                value = text.value(f"load {self.kind}, ptr {slot}")
                if has_zero(self.about):
                    at = element(text, element(text, self.left_sums, place), r * self.sums_step)
                    minus = text.value(f"fneg {self.kind} {zeros[c]}")
                    value = text.intrinsic(
                        "fma", self.kind, [load(text, at, DType.F32, self.lanes), minus, value]
                    )
                self._add(sums[r, c], value, scales[c])

        each_group(text, self.lanes, (k, length), group)
        self._finish(column, k, sums)

    def _group(
        self,
        begin: str,
        end: str,
        right: Columns,
        sums: Mapping[tuple[int, int], str],
        of: _Changed,
    ) -> None:
        """Add a group, ``begin`` to ``end`` of the copy of left; ``of``: what becomes of an integer of a column."""
        text, about = self.text, self.about
        if about.short:
            right.fetch(begin)

        def unit(i: str) -> None:
            left = element(text, self.copy, i)
            if not about.short:
                right.fetch(i)
            values = {
                (r, p): load(
                    text, element(text, left, r * self.step + p * self.lanes), DType.F32, self.lanes
                )
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
        return self.text.value(
            f"fmul {self.kind} {self.text.value(f'fsub {self.kind} {weight}, {zero}')}, {scale}"
        )

    def _add(self, slot: str, left: str, right: str) -> None:
        text = self.text
        old = text.value(f"load {self.kind}, ptr {slot}")
        text.line(
            f"store {self.kind} {text.intrinsic('fma', self.kind, [left, right, old])}, ptr {slot}"
        )

    def _weights(self, source: str) -> list[str]:
        """The integers of a unit of a column as floats."""
        text, lanes, about = self.text, self.lanes, self.about
        if about.bits == 8:
            return [load(text, source, about.right, lanes)]
        words = lanes // COPIES
        narrow, wide = vector("i32", words), vector("i32", lanes)
        loaded = text.value(f"load {narrow}, ptr {source}, align 1")
        mask = ", ".join(f"i32 {lane % words}" for lane in range(lanes))
        spread = text.value(
            f"shufflevector {narrow} {loaded}, {narrow} poison, <{lanes} x i32> <{mask}>"
        )
        result = []
        for part in self.parts:
            if part and not self._unsigned:
                spread = text.value(f"lshr {wide} {spread}, {splat('i32', lanes, 4 * COPIES)}")
            bits = ", ".join(f"i32 {15 << 4 * power}" for power in self._powers(part))
            kept = text.value(f"and {wide} {spread}, <{bits}>")
            result.append(
                text.value(
                    f"{'uitofp' if self._unsigned else 'sitofp'} {wide} {kept} to {self.kind}"
                )
            )
        return result

    def _finish(self, column: str, k: str, sums: dict[tuple[int, int], str]) -> None:
        """Lanes are added, to what blocks before gave."""
        text, name = self.text, f"@llvm.vector.reduce.fadd.v{self.lanes}f32"
        text.declare(f"declare float {name}(float, {self.kind})")
        first = text.value(f"icmp eq i64 {k}, 0")
        for (r, c), slot in sums.items():
            to = element(
                text, "%sums", text.value(f"add nsw i64 {column}, {r * self.about.shape.width + c}")
            )
            before = text.value(
                f"select i1 {first}, float 0.0, float {load(text, to, DType.F32, 1)}"
            )
            lanes = text.value(f"load {self.kind}, ptr {slot}")
            total = text.value(f"call reassoc float {name}(float 0.0, {self.kind} {lanes})")
            text.line(
                f"store float {text.value(f'fadd float {before}, {total}')}, ptr {to}, align 4"
            )


def _order(lanes: int, part: int) -> list[int]:
    """Which elements of a unit of 4 bits meet in the lanes of its first or second half.

    Lane ``words * c + w`` has word w and keeps its number ``c + 4 * part``: element ``8 * w + c + 4 * part``.
    """
    words = lanes // COPIES
    return [PER_WORD * (lane % words) + lane // words + COPIES * part for lane in range(lanes)]
