"""native.codegen.llvm.digits: few rows by small integers, as products of bytes.

In: what ``small`` gets. Out: the name of a function with the arguments of ``small_dots``, declared
once per module.

To convert integers to floats and multiply them takes three instructions for 16 weights, and a core
is then slower than its memory. So floats of left become integers instead, once for all columns:
``x = X * unit`` with a power of two for a block of a row, and ``X`` of 31 bits, written as four
digits of base 256 with signs. A product of bytes (VNNI) takes 64 of them: four instructions for 64
weights, no conversion, and exact sums. What is rounded are the numbers of left, by at most
``2**-30`` of the largest in the block: those of at least ``2**-6`` of it are exact.

Not every block can be written so. One with infinities, NaN, numbers beyond the ordinary, or in
which most numbers are smaller than ``2**-16`` of the largest goes through ``exact``, which
multiplies floats as eager does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from argand.native.codegen.llvm import panels, small
from argand.native.codegen.llvm.control import counted
from argand.native.codegen.llvm.dots import LEFT
from argand.native.codegen.llvm.panels import element, load, times
from argand.native.codegen.llvm.small import Small
from argand.native.codegen.llvm.small_dots import GroupBody, each_group, exact
from argand.native.codegen.target import Target
from argand.native.codegen.text import Text, splat, vector
from argand.native.ir import loops as ir
from argand.native.ir.types import DType

_LANES: Final = 16
_LINE: Final = 64  # bytes of a register
_DIGITS: Final = 4
_BITS: Final = 29  # |X| < 2 ** (_BITS + 1), so that the highest digit has room for a carry
_FLOATS: Final = vector("float", _LANES)
_WORDS: Final = vector("i32", _LANES)
_BYTES: Final = vector("i8", _LINE)
_EXPONENT: Final = 0x7F800000
_ORDINARY: Final = (
    37 << 23,
    253 << 23,
)  # of the largest float: its unit is one, and sums are none too large
_COARSE: Final = 14 << 23  # an X below 2**14 has lost ten of the 24 bits of its float
# Carries of the digits below the highest: added, they make digits from 0 to 255; turned back, digits with signs.
_CARRY: Final = 0x00808080


def fits(given: ir.Contraction, target: Target) -> bool:
    """Whether few rows are multiplied as bytes: registers of whole groups, rows that gain by it."""
    quantized = given.right.quantized
    assert quantized is not None
    features = target.features.split(",")
    able = "+avx512vnni" in features and "+avx512bw" in features and target.vector_bytes == 64
    if not able or given.rows > (2 if quantized.bits == 4 else 4):
        return False
    unit = _LINE * (8 // quantized.bits)
    if quantized.group % unit == 0:
        return True
    tables = [t for t in (quantized.zero, quantized.scale) if isinstance(t, ir.PerGroup)]
    lanes = quantized.group * quantized.bits % (8 * _LINE // _LANES) == 0
    side_by_side = all(table.along == 1 for table in tables)
    return lanes and side_by_side and unit % quantized.group == 0 and given.inner % unit == 0


def dots(text: Text, about: Small, given: ir.Contraction) -> str:
    """The name of a function with the arguments ``DOTS``: columns are read where they lie."""
    quantized, rows = given.right.quantized, int(given.rows)
    assert quantized is not None
    # how many groups a register of a column has; 0: groups are longer
    groups = _LINE * (8 // about.bits) // quantized.group

    def write(own: Text) -> None:
        _Digits(own, about, rows, groups).run()

    name = f"argand.digits{rows}.{groups}.{about.name}"
    return panels.declared(text, name, small.DOTS, write)


class _Digits:
    """The text of one such function."""

    def __init__(self, text: Text, about: Small, rows: int, groups: int) -> None:
        self.text, self.about, self.rows, self.groups = text, about, rows, groups
        self.halves = range(8 // about.bits)
        self.unit = _LINE * len(self.halves)  # elements of a column in a register
        self.length = LEFT // rows // self.unit * self.unit
        # Of a row: for each unit, for each half of its bytes, for each digit a register.
        self.step = self.length * _DIGITS + _LINE
        self.digits = text.slot("i8", rows * self.step)
        self.row_units = text.slot("float", rows)
        # Of each row and group: what the sums of each digit begin with, and the sums of left.
        self.places = (self.length // self.unit + 1) * _LANES
        self.begins = text.slot("i32", rows * self.places * _DIGITS) if self._signed else ""
        self.left_sums = text.slot("float", rows * self.places) if self._has_zero else ""

    @property
    def _signed(self) -> bool:
        """Whether integers have a sign, which products do not take: 128 is added to them."""
        return self.about.right is DType.I8

    @property
    def _has_zero(self) -> bool:
        return small.has_zero(self.about)

    @property
    def _chained(self) -> bool:
        """Whether sums of a digit, 256 times larger, may be what those of the next one begin with."""
        return self.about.bits == 4 and self.groups > 0

    def run(self) -> None:
        counted(self.text, "0", "%inner", 1, self._block)

    def _block(self, k: str) -> str:
        """Part of all sums; gives where the next part begins."""
        text = self.text
        rest = text.value(f"sub nsw i64 %inner, {k}")
        count = text.intrinsic("smin", "i64", [rest, str(self.length)])
        end = text.value(f"add nsw i64 {k}, {count}")
        odd = "false"
        for row in range(self.rows):
            at = text.value(f"add nsw i64 {times(text, row, '%lstep')}, {k}")
            source = element(text, "%left", at, self.about.left.row.memory)
            odd = text.value(f"or i1 {odd}, {self._write_row(row, source, count)}")
        slow, fast, done = (text.label(stem) for stem in ("slow", "fast", "both"))
        text.line(f"br i1 {odd}, label %{slow}, label %{fast}")
        text.begin_block(slow)
        slow_text = exact(text, self.about, self.rows)
        given = (small.OPERANDS, f"i64 {k}", f"i64 {end}", "i64 %columns", small.TABLES)
        text.line(f"call void {slow_text}({', '.join(given).replace(' noalias', '')})")
        text.line(f"br label %{done}")
        text.begin_block(fast)
        if self._signed or self._has_zero:
            self._segments(k, count, self._sum_left)
        slot, low = "", "0"
        for columns in dict.fromkeys((max(1, 4 // self.rows), 1)):

            def some(column: str, columns: int = columns) -> None:
                self._columns(column, columns, (k, count))

            slot = counted(text, low, "%columns", columns, some, slot)
            low = ""
        text.line(f"br label %{done}")
        text.begin_block(done)
        return end

    def _segments(self, k: str, length: str, body: GroupBody) -> None:
        """Run ``body`` over what is scaled at once: a group, or a unit of several groups."""
        text = self.text
        if not self.groups:
            each_group(text, _LANES, (k, length), body)
            return
        first = text.value(f"udiv i64 {k}, %group")

        def unit(i: str) -> None:
            number_of = text.value(f"udiv exact i64 {i}, {self.unit}")
            end = text.value(f"add nsw i64 {i}, {self.unit}")
            group = text.value(f"add nsw i64 {first}, {times(text, number_of, self.groups)}")
            body(i, end, group, times(text, number_of, _LANES))

        counted(text, "0", length, self.unit, unit)

    # --- left ----------------------------------------------------------------------------

    def _write_row(self, row: int, source: str, count: str) -> str:
        """The digits and the unit of a row; gives whether it cannot be written so."""
        text = self.text
        largest = self._largest(source, count)
        power = text.value(f"and i32 {largest}, {_EXPONENT}")
        nothing = text.value(f"icmp eq i32 {largest}, 0")
        unit = text.value(f"sub i32 {power}, {_BITS << 23}")
        inverse = text.value(f"sub i32 {(2 * 127 + _BITS) << 23}, {power}")
        unit, inverse = (
            text.value(f"select i1 {nothing}, i32 0, i32 {bits}") for bits in (unit, inverse)
        )
        text.line(f"store i32 {unit}, ptr {element(text, self.row_units, row)}")
        factor = text.value(f"bitcast i32 {inverse} to float")
        coarse = self._coarse(source, count, text.value(f"add i32 {unit}, {_COARSE}"))
        self._write_digits(row, source, count, panels.broadcast(text, factor, _LANES))
        low, high = (
            text.value(f"icmp {test} i32 {largest}, {limit}")
            for test, limit in zip(("ult", "uge"), _ORDINARY, strict=True)
        )
        low = text.value(f"xor i1 {low}, {nothing}")
        mostly = text.value(f"icmp sgt i64 {text.value(f'shl i64 {coarse}, 1')}, {count}")
        return text.value(f"or i1 {text.value(f'or i1 {low}, {high}')}, {mostly}")

    def _magnitudes(self, source: str, i: str) -> str:
        """Floats of left as the bits of their magnitudes, which are in the order of these, NaN last."""
        text, left = self.text, self.about.left
        value = load(text, element(text, source, i, left.row.memory), left, _LANES)
        bits = text.value(f"bitcast {_FLOATS} {value} to {_WORDS}")
        return text.value(f"and {_WORDS} {bits}, {splat('i32', _LANES, 0x7FFFFFFF)}")

    def _largest(self, source: str, count: str) -> str:
        text, slot = self.text, self._zeroed()

        def step(i: str) -> None:
            before = text.value(f"load {_WORDS}, ptr {slot}")
            most = text.intrinsic("smax", _WORDS, [before, self._magnitudes(source, i)])
            text.line(f"store {_WORDS} {most}, ptr {slot}")

        counted(text, "0", count, _LANES, step)
        return self._reduced("smax", slot)

    def _coarse(self, source: str, count: str, limit: str) -> str:
        """How many numbers of left are smaller than a limit, and not zero."""
        text, slot = self.text, self._zeroed()
        ones = splat("i32", _LANES, -1)
        wide = panels.broadcast(text, text.value(f"bitcast i32 {limit} to float"), _LANES)
        below = text.value(
            f"add {_WORDS} {text.value(f'bitcast {_FLOATS} {wide} to {_WORDS}')}, {ones}"
        )

        def step(i: str) -> None:
            less = text.value(f"add {_WORDS} {self._magnitudes(source, i)}, {ones}")
            found = text.value(f"icmp ult {_WORDS} {less}, {below}")
            more = text.value(f"zext {vector('i1', _LANES)} {found} to {_WORDS}")
            before = text.value(f"load {_WORDS}, ptr {slot}")
            text.line(f"store {_WORDS} {text.value(f'add {_WORDS} {before}, {more}')}, ptr {slot}")

        counted(text, "0", count, _LANES, step)
        return text.value(f"sext i32 {self._reduced('add', slot)} to i64")

    def _write_digits(self, row: int, source: str, count: str, factor: str) -> None:
        text, left = self.text, self.about.left
        target = element(text, self.digits, row * self.step, "i8")

        def unit(i: str) -> None:
            at = element(text, source, i, left.row.memory)
            values = [
                load(text, element(text, at, n, left.row.memory), left, _LANES)
                for n in range(0, self.unit, _LANES)
            ]
            to = element(text, target, times(text, i, _DIGITS), "i8")
            for half in self.halves:
                floats = values if self.about.bits == 8 else self._every_second(values, half)
                whole = [self._whole(value, factor) for value in floats]
                for digit, value in enumerate(self._by_digit(whole)):
                    place = element(text, to, (half * _DIGITS + digit) * _LINE, "i8")
                    text.line(f"store {_WORDS} {value}, ptr {place}, align 64")

        counted(text, "0", count, self.unit, unit)

    def _every_second(self, values: list[str], half: int) -> list[str]:
        """The numbers whose partners are in the lower or the upper halves of bytes."""
        places = range(half, 2 * _LANES, 2)
        pairs = zip(values[::2], values[1::2], strict=True)
        return [self._chosen(_FLOATS, one, other, places) for one, other in pairs]

    def _whole(self, value: str, factor: str) -> str:
        """Floats as integers, each byte of which is a digit with a sign."""
        text, name = self.text, "@llvm.x86.avx512.mask.cvtps2dq.512"
        text.declare(f"declare {_WORDS} {name}({_FLOATS}, {_WORDS}, i16, i32)")
        scaled = text.value(f"fmul {_FLOATS} {value}, {factor}")
        # to the nearest, as the processor is set
        given = f"{_FLOATS} {scaled}, {_WORDS} zeroinitializer, i16 -1, i32 4"
        whole = text.value(f"call {_WORDS} {name}({given})")
        carry = splat("i32", _LANES, _CARRY)
        return text.value(f"xor {_WORDS} {text.value(f'add {_WORDS} {whole}, {carry}')}, {carry}")

    def _by_digit(self, whole: list[str]) -> list[str]:
        """64 integers as four registers: the lowest bytes of all, and so on."""
        text, lanes = self.text, range(4)  # of 128 bits, with four integers each
        order = [
            16 * lane + 4 * n + digit for lane in lanes for digit in range(4) for n in range(4)
        ]
        turned = []
        for value in whole:
            narrow = text.value(f"bitcast {_WORDS} {value} to {_BYTES}")
            mixed = self._chosen(_BYTES, narrow, narrow, order)
            turned.append(text.value(f"bitcast {_BYTES} {mixed} to {_WORDS}"))
        found = []
        for digits in ((0, 1), (2, 3)):
            places = [
                _LANES * which + 4 * lane + d for d in digits for which in (0, 1) for lane in lanes
            ]
            first, second = (self._chosen(_WORDS, turned[n], turned[n + 1], places) for n in (0, 2))
            for low in (0, 8):
                both = [*range(low, low + 8), *range(_LANES + low, _LANES + low + 8)]
                found.append(self._chosen(_WORDS, first, second, both))
        return found

    def _chosen(self, kind: str, one: str, other: str, places: Iterable[int]) -> str:
        mask = ", ".join(f"i32 {place}" for place in places)
        count = mask.count(",") + 1
        return self.text.value(
            f"shufflevector {kind} {one}, {kind} {other}, <{count} x i32> <{mask}>"
        )

    def _sum_left(self, begin: str, end: str, _: str, place: str) -> None:
        """The sums of a segment of left, lane by lane."""
        text, ones = self.text, splat("i8", _LINE, 1)
        for row in range(self.rows):
            sums = [self._zeroed() for _ in range(_DIGITS)]

            def unit(i: str, row: int = row, sums: list[str] = sums) -> None:
                for half in self.halves:
                    for digit, slot in enumerate(sums):
                        self._add(slot, ones, self._digit(row, i, half, digit))

            counted(text, begin, end, self.unit, unit)
            values = [text.value(f"load {_WORDS}, ptr {slot}") for slot in sums]
            if self._has_zero:
                at = element(text, element(text, self.left_sums, place), row * self.places)
                text.line(f"store {_FLOATS} {self._joined(values)}, ptr {at}, align 64")
            for digit, value in enumerate(values if self._signed else ()):
                taken = text.value(f"mul {_WORDS} {value}, {splat('i32', _LANES, -128)}")
                at = self._begin(row, place, digit)
                text.line(f"store {_WORDS} {taken}, ptr {at}, align 64")

    def _begin(self, row: int, place: str, digit: int) -> str:
        """Where the number lies that the sums of a digit begin with."""
        at = element(self.text, self.begins, times(self.text, place, _DIGITS), "i32")
        return element(self.text, at, row * self.places * _DIGITS + digit * _LANES, "i32")

    def _digit(self, row: int, i: str, half: int, digit: int) -> str:
        """A register of digits of a unit."""
        text = self.text
        at = element(text, self.digits, times(text, i, _DIGITS), "i8")
        place = row * self.step + (half * _DIGITS + digit) * _LINE
        return text.value(f"load {_BYTES}, ptr {element(text, at, place, 'i8')}, align 64")

    # --- columns -------------------------------------------------------------------------

    def _columns(self, column: str, count: int, block: tuple[str, str]) -> None:
        """The sums of some columns over a block."""
        text, (k, length) = self.text, block
        numbers = [text.value(f"add nsw i64 {column}, {n}") for n in range(count)]
        right = small.Columns(text, self.about, numbers, k)
        sums = {(r, c): text.slot(_FLOATS) for r in range(self.rows) for c in range(count)}
        for slot in sums.values():
            text.line(f"store {_FLOATS} zeroinitializer, ptr {slot}")

        def segment(begin: str, end: str, group: str, place: str) -> None:
            found = self._integers(begin, end, place, right, count)
            for c in range(count):
                zero = self._spread(right.zeros[c], group) if self._has_zero else ""
                scale = self._spread(right.scales[c], group)
                for r in range(self.rows):
                    value = self._joined(found[r, c])
                    if zero:
                        at = element(text, element(text, self.left_sums, place), r * self.places)
                        minus = text.value(f"fneg {_FLOATS} {zero}")
                        taken = [load(text, at, DType.F32, _LANES), minus, value]
                        value = text.intrinsic("fma", _FLOATS, taken)
                    before = text.value(f"load {_FLOATS}, ptr {sums[r, c]}")
                    total = text.intrinsic("fma", _FLOATS, [value, scale, before])
                    text.line(f"store {_FLOATS} {total}, ptr {sums[r, c]}")

        self._segments(k, length, segment)
        self._finish(column, k, sums)

    def _integers(
        self, begin: str, end: str, place: str, right: small.Columns, count: int
    ) -> dict[tuple[int, int], list[str]]:
        """The sums of a segment: a register for each digit; for two of them where they are chained."""
        text = self.text
        sums = {
            (r, c): [self._zeroed() for _ in range(2 if self._chained else _DIGITS)]
            for r in range(self.rows)
            for c in range(count)
        }
        for (r, _), slots in sums.items():
            for digit, slot in enumerate(slots if self._signed else ()):
                at = self._begin(r, place, digit)
                value = text.value(f"load {_WORDS}, ptr {at}, align 64")
                text.line(f"store {_WORDS} {value}, ptr {slot}")

        def unit(i: str) -> None:
            right.fetch(i)
            for c, source in enumerate(right.at(i)):
                weights = self._weights(source)
                for r in range(self.rows):
                    self._add_unit(sums[r, c], weights, r, i)

        if self.groups:
            unit(begin)
        else:
            counted(text, begin, end, self.unit, unit)
        return {
            at: [text.value(f"load {_WORDS}, ptr {slot}") for slot in slots]
            for at, slots in sums.items()
        }

    def _add_unit(self, slots: list[str], weights: list[str], row: int, i: str) -> None:
        for pair in range(0, _DIGITS, 2):
            for digit in (pair + 1, pair):
                slot = slots[pair // 2] if self._chained else slots[digit]
                if self._chained and digit == pair:
                    self._shift(slot)
                for half, weight in enumerate(weights):
                    self._add(slot, weight, self._digit(row, i, half, digit))

    def _shift(self, slot: str) -> None:
        text = self.text
        value = text.value(f"load {_WORDS}, ptr {slot}")
        moved = text.value(f"shl {_WORDS} {value}, {splat('i32', _LANES, 8)}")
        text.line(f"store {_WORDS} {moved}, ptr {slot}")

    def _joined(self, values: list[str]) -> str:
        """Sums of digits as floats: pairs of digits are joined as integers, which has room for a block."""
        text = self.text
        if len(values) == _DIGITS:
            eight = splat("i32", _LANES, 8)
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [
                text.value(f"add {_WORDS} {text.value(f'shl {_WORDS} {high}, {eight}')}, {low}")
                for low, high in pairs
            ]
        low, high = (text.value(f"sitofp {_WORDS} {value} to {_FLOATS}") for value in values)
        return text.intrinsic("fma", _FLOATS, [high, splat("float", _LANES, 2.0**16), low])

    def _spread(self, table: small.Table, group: str) -> str:
        """The numbers of the groups of a segment, each in its lanes."""
        if self.groups <= 1 or not isinstance(table.type, DType):
            return table.spread(group, _LANES)
        numbers = load(self.text, table.at(group), table.type, self.groups)
        each = _LANES // self.groups
        kind = vector("float", self.groups)
        return self._chosen(kind, numbers, "poison", [lane // each for lane in range(_LANES)])

    def _weights(self, source: str) -> list[str]:
        """The integers of a unit of a column, without sign."""
        text = self.text
        loaded = text.value(f"load {_BYTES}, ptr {source}, align 1")
        if self.about.bits == 8:
            turned = f"xor {_BYTES} {loaded}, {splat('i8', _LINE, -128)}"
            return [text.value(turned) if self._signed else loaded]
        words = vector("i16", 2 * _LANES)
        pairs = text.value(f"bitcast {_BYTES} {loaded} to {words}")
        moved = text.value(f"lshr {words} {pairs}, {splat('i16', 2 * _LANES, 4)}")
        high = text.value(f"bitcast {words} {moved} to {_BYTES}")
        mask = splat("i8", _LINE, 15)
        return [text.value(f"and {_BYTES} {value}, {mask}") for value in (loaded, high)]

    def _add(self, slot: str, right: str, left: str) -> None:
        """Add four products to each lane; right has no sign."""
        text, name = self.text, "@llvm.x86.avx512.vpdpbusd.512"
        text.declare(f"declare {_WORDS} {name}({_WORDS}, {_BYTES}, {_BYTES})")
        given = f"{_WORDS} {text.value(f'load {_WORDS}, ptr {slot}')}, {_BYTES} {right}, {_BYTES} {left}"
        text.line(f"store {_WORDS} {text.value(f'call {_WORDS} {name}({given})')}, ptr {slot}")

    def _zeroed(self) -> str:
        slot = self.text.slot(_WORDS)
        self.text.line(f"store {_WORDS} zeroinitializer, ptr {slot}")
        return slot

    def _reduced(self, op: str, slot: str) -> str:
        name = f"@llvm.vector.reduce.{op}.v{_LANES}i32"
        self.text.declare(f"declare i32 {name}({_WORDS})")
        return self.text.value(
            f"call i32 {name}({_WORDS} {self.text.value(f'load {_WORDS}, ptr {slot}')})"
        )

    def _finish(self, column: str, k: str, sums: dict[tuple[int, int], str]) -> None:
        """Lanes are added, times the unit of their row, to what blocks before gave."""
        text, name = self.text, f"@llvm.vector.reduce.fadd.v{_LANES}f32"
        text.declare(f"declare float {name}(float, {_FLOATS})")
        first = text.value(f"icmp eq i64 {k}, 0")
        for (r, c), slot in sums.items():
            place = text.value(f"add nsw i64 {column}, {r * self.about.shape.width + c}")
            to = element(text, "%sums", place)
            before = load(text, to, DType.F32, 1)
            before = text.value(f"select i1 {first}, float 0.0, float {before}")
            lanes = text.value(f"load {_FLOATS}, ptr {slot}")
            total = text.value(f"call reassoc float {name}(float 0.0, {_FLOATS} {lanes})")
            unit = load(text, element(text, self.row_units, r), DType.F32, 1)
            total = text.intrinsic("fma", "float", [total, unit, before])
            text.line(f"store float {total}, ptr {to}, align 4")
