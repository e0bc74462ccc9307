"""native.codegen.llvm.integers: inner functions of products of 8-bit integers, summed in 32 bits.

In: the tile of a target, how many rows. Out: the name of a function, declared once per module.

Few rows read columns where they lie, as in ``panels``. Where the processor multiplies and adds four bytes at a time (VNNI), one side
has no sign: 128 is added to the right side by turning its highest bit, and taken off again as 128 times the sum of the
left row. Elsewhere pairs of 16 bits are multiplied and added, which is exact. Sums that leave 32 bits wrap around, as in eager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from argand.native.codegen.llvm import panels
from argand.native.codegen.llvm.control import counted
from argand.native.codegen.llvm.panels import Tile, element, times
from argand.native.codegen.target import Target
from argand.native.codegen.text import Text, splat, vector
from argand.native.ir import loops as ir
from argand.native.ir.types import DType
from argand.sizes.expressions import SizeInt

_LEFT: Final = 1 << 14  # bytes of left rows that stay near while columns of right pass by
_PAIRS: Final[Mapping[int, tuple[str, str]]] = {
    16: ("avx512bw", "avx512.pmaddw.d.512"),
    8: ("avx2", "avx2.pmadd.wd"),
}


def has_dots(target: Target) -> bool:
    """Whether the target multiplies and adds four bytes at a time, in registers of full width."""
    features = target.features.split(",")
    return "+avx512vnni" in features and target.vector_bytes == 64


def fits(given: ir.Contraction, target: Target, few: bool) -> bool:
    """Whether there is a function for a contraction of 8-bit integers."""
    fixed = not any(
        isinstance(n, SizeInt) for n in (*given.batch, given.rows, given.columns, given.inner)
    )
    feature = _PAIRS.get(target.vector_bytes // 4, ("none", ""))[0]
    able = has_dots(target) or f"+{feature}" in target.features.split(",")
    types = (given.left.dtype, given.right.dtype, given.dtype)
    return few and fixed and able and types == (DType.I8, DType.I8, DType.I32)


def dots(text: Text, shape: Tile, rows: int, vnni: bool) -> str:
    """``void f(left, left_step, right, right_step, sums, inner, columns)``: columns of right read where they lie."""

    def write(own: Text) -> None:
        _ByteDots(own, shape, rows, vnni).run()

    operands = "ptr noalias %left, i64 %lstep, ptr noalias %right, i64 %rstep, ptr noalias %sums"
    return panels.declared(
        text, f"argand.bytes{rows}", f"{operands}, i64 %inner, i64 %columns", write
    )


class _ByteDots:
    """The text of one such function."""

    def __init__(self, text: Text, shape: Tile, rows: int, vnni: bool) -> None:
        self.text, self.shape, self.rows, self.vnni = text, shape, rows, vnni
        self.unit, self.kind = 4 * shape.lanes, vector("i32", shape.lanes)
        self.length = _LEFT // rows // self.unit * self.unit
        # what is to be taken off the sums of a block
        self.offsets = [text.slot("i32") for _ in range(rows)]

    def run(self) -> None:
        counted(self.text, "0", "%inner", 1, self._block)

    def _block(self, k: str) -> str:
        text = self.text
        rest = text.value(f"sub nsw i64 %inner, {k}")
        count = text.intrinsic("smin", "i64", [rest, str(self.length)])
        lefts = []
        for row in range(self.rows):
            lefts.append(
                element(
                    text,
                    "%left",
                    text.value(f"add nsw i64 {times(text, row, '%lstep')}, {k}"),
                    "i8",
                )
            )
            if self.vnni:
                self._sum_row(row, lefts[row], count)
        together = max(
            n
            for n in (1, 2, 4, 8)
            if n == 1 or n * self.rows <= (24 if self.shape.lanes >= 16 else 8)
        )
        slot, low = "", "0"
        for columns in dict.fromkeys((together, 1)):

            def some(column: str, columns: int = columns) -> None:
                self._columns(column, columns, lefts, (k, count))

            slot = counted(text, low, "%columns", columns, some, slot)
            low = ""
        return text.value(f"add nsw i64 {k}, {count}")

    def _sum_row(self, row: int, left: str, count: str) -> None:
        """128 times the sum of a row, over whole units: what turning the highest bit of the right side adds."""
        text, total = self.text, self.text.slot(self.kind)
        text.line(f"store {self.kind} zeroinitializer, ptr {total}")
        ones = splat("i8", self.unit, 1)

        def add(i: str) -> None:
            self._add(total, ones, self._load(element(text, left, i, "i8")))

        counted(text, "0", count, self.unit, add)
        found = self._reduced(text.value(f"load {self.kind}, ptr {total}"))
        text.line(f"store i32 {text.value(f'shl i32 {found}, 7')}, ptr {self.offsets[row]}")

    def _columns(self, column: str, count: int, lefts: list[str], block: tuple[str, str]) -> None:
        text, (k, length) = self.text, block
        numbers = [text.value(f"add nsw i64 {column}, {n}") for n in range(count)]
        rights = [
            element(
                text, "%right", text.value(f"add nsw i64 {times(text, c, '%rstep')}, {k}"), "i8"
            )
            for c in numbers
        ]
        places = [(r, c) for r in range(self.rows) for c in range(count)]
        sums, singles = ({p: text.slot(kind) for p in places} for kind in (self.kind, "i32"))
        for place in places:
            text.line(f"store {self.kind} zeroinitializer, ptr {sums[place]}")
            text.line(f"store i32 0, ptr {singles[place]}")
        text.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        # to the columns after these, in the next level of cache
        jump = times(text, "%rstep", count)

        def unit(i: str) -> None:
            rows = [self._load(element(text, left, i, "i8")) for left in lefts]
            for c, right in enumerate(rights):
                at = element(text, right, i, "i8")
                text.line(
                    f"call void @llvm.prefetch.p0(ptr {element(text, at, jump, 'i8')}, i32 0, i32 2, i32 1)"
                )
                weight = self._turned(self._load(at)) if self.vnni else self._load(at)
                for r, row in enumerate(rows):
                    self._add(sums[r, c], weight, row)

        slot = counted(text, "0", length, self.unit, unit)
        counted(text, "", length, 1, lambda i: self._one(i, lefts, rights, singles), slot)
        self._finish(column, k, sums, singles)

    def _one(
        self, i: str, lefts: list[str], rights: list[str], sums: dict[tuple[int, int], str]
    ) -> None:
        """One element of each, at the end of a row."""
        text = self.text

        def loaded(pointer: str) -> str:
            at = element(text, pointer, i, "i8")
            return text.value(f"sext i8 {text.value(f'load i8, ptr {at}')} to i32")

        rows, columns = [loaded(p) for p in lefts], [loaded(p) for p in rights]
        for (r, c), slot in sums.items():
            old = text.value(f"load i32, ptr {slot}")
            total = text.value(f"add i32 {old}, {text.value(f'mul i32 {rows[r]}, {columns[c]}')}")
            text.line(f"store i32 {total}, ptr {slot}")

    def _load(self, pointer: str) -> str:
        return self.text.value(f"load {vector('i8', self.unit)}, ptr {pointer}, align 1")

    def _turned(self, value: str) -> str:
        return self.text.value(
            f"xor {vector('i8', self.unit)} {value}, {splat('i8', self.unit, -128)}"
        )

    def _add(self, slot: str, right: str, left: str) -> None:
        """Add the products of a unit; with VNNI right has no sign."""
        text = self.text
        old = text.value(f"load {self.kind}, ptr {slot}")
        new = self._four(old, right, left) if self.vnni else self._two(old, right, left)
        text.line(f"store {self.kind} {new}, ptr {slot}")

    def _four(self, old: str, right: str, left: str) -> str:
        name, wide = "@llvm.x86.avx512.vpdpbusd.512", vector("i8", self.unit)
        self.text.declare(f"declare {self.kind} {name}({self.kind}, {wide}, {wide})")
        return self.text.value(
            f"call {self.kind} {name}({self.kind} {old}, {wide} {right}, {wide} {left})"
        )

    def _two(self, old: str, right: str, left: str) -> str:
        text, lanes = self.text, self.shape.lanes
        name = f"@llvm.x86.{_PAIRS[lanes][1]}"
        bytes_, words = vector("i8", 2 * lanes), vector("i16", 2 * lanes)
        text.declare(f"declare {self.kind} {name}({words}, {words})")
        for half in range(2):
            mask = ", ".join(f"i32 {half * 2 * lanes + lane}" for lane in range(2 * lanes))
            given = []
            for value in (right, left):
                wide = vector("i8", self.unit)
                part = text.value(
                    f"shufflevector {wide} {value}, {wide} poison, <{2 * lanes} x i32> <{mask}>"
                )
                given.append(f"{words} {text.value(f'sext {bytes_} {part} to {words}')}")
            product = text.value(f"call {self.kind} {name}({', '.join(given)})")
            old = text.value(f"add {self.kind} {old}, {product}")
        return old

    def _reduced(self, value: str) -> str:
        name = f"@llvm.vector.reduce.add.v{self.shape.lanes}i32"
        self.text.declare(f"declare i32 {name}({self.kind})")
        return self.text.value(f"call i32 {name}({self.kind} {value})")

    def _finish(
        self,
        column: str,
        k: str,
        sums: dict[tuple[int, int], str],
        singles: dict[tuple[int, int], str],
    ) -> None:
        """Lanes are added, to what blocks before gave."""
        text = self.text
        first = text.value(f"icmp eq i64 {k}, 0")
        for (r, c), slot in sums.items():
            to = element(
                text,
                "%sums",
                text.value(f"add nsw i64 {column}, {r * self.shape.width + c}"),
                "i32",
            )
            before = text.value(
                f"select i1 {first}, i32 0, i32 {text.value(f'load i32, ptr {to}')}"
            )
            total = self._reduced(text.value(f"load {self.kind}, ptr {slot}"))
            total = text.value(f"add i32 {total}, {text.value(f'load i32, ptr {singles[r, c]}')}")
            if self.vnni:
                total = text.value(
                    f"sub i32 {total}, {text.value(f'load i32, ptr {self.offsets[r]}')}"
                )
            text.line(f"store i32 {text.value(f'add i32 {before}, {total}')}, ptr {to}")
