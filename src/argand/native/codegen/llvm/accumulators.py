"""native.codegen.llvm.accumulators: the running value of a reduction.

A vector of partial results for whole vectors and a scalar for the rest of a row; both are joined
in a fixed order at the end, so the result never depends on threads.
"""

from __future__ import annotations

from typing import final

from argand.native.codegen.llvm import arithmetic
from argand.native.codegen.text import Text, splat, vector
from argand.native.ir.loops import Accumulate
from argand.native.ir.types import DType

_LAST_INDEX = 2**63 - 1


@final
class Accumulator:
    """Stack slots of one reduction; LLVM keeps them in registers.

    ``lanes`` of the loops inside, ``around`` of the place of the result: when the result is a vector
    itself there is one partial result per lane and nothing to join.
    """

    def __init__(
        self, text: Text, statement: Accumulate, lanes: tuple[int, ...], around: int
    ) -> None:
        self.op, self.around = statement.op, around
        self.dtype = statement.operand if statement.op.startswith("arg") else statement.dtype
        if self.dtype.is_half:
            self.dtype = DType.F32
        self.element = self.dtype.row.compute
        self.slots: dict[int, str] = {}
        self.places: dict[int, str] = {}
        for width in {around, *lanes}:
            slot = text.slot(vector(self.element, width))
            start = splat(self.element, width, arithmetic.identity(self.op, self.dtype))
            text.line(f"store {vector(self.element, width)} {start}, ptr {slot}")
            self.slots[width] = slot
            if self.op.startswith("arg"):
                place = text.slot(vector("i64", width))
                last = splat("i64", width, _LAST_INDEX)
                text.line(f"store {vector('i64', width)} {last}, ptr {place}")
                self.places[width] = place

    def add(self, text: Text, value: str, position: str, lanes: int) -> None:
        """Take in one value (or vector of values)."""
        new, place = self._join(text, self._load(text, lanes), (value, position), lanes)
        text.line(f"store {vector(self.element, lanes)} {new}, ptr {self.slots[lanes]}")
        if self.places:
            text.line(f"store {vector('i64', lanes)} {place}, ptr {self.places[lanes]}")

    def finish(self, text: Text) -> str:
        """Join the partial results; the final value (for argmax the index)."""
        lanes, *narrower = sorted(self.slots, reverse=True)
        value, place = self._load(text, lanes)
        for width in narrower:
            while lanes > width:
                value, place = self._halve(text, value, place, lanes)
                lanes //= 2
            value, place = self._join(text, (value, place), self._load(text, width), width)
        return place if self.places else value

    def _load(self, text: Text, lanes: int) -> tuple[str, str]:
        value = text.value(f"load {vector(self.element, lanes)}, ptr {self.slots[lanes]}")
        kind = vector("i64", lanes)
        return value, text.value(f"load {kind}, ptr {self.places[lanes]}") if self.places else ""

    def _halve(self, text: Text, value: str, place: str, lanes: int) -> tuple[str, str]:
        half = lanes // 2
        low, high = (
            self._part(text, self.element, value, lanes, start, half) for start in (0, half)
        )
        first = second = ""
        if self.places:
            first, second = (
                self._part(text, "i64", place, lanes, start, half) for start in (0, half)
            )
        return self._join(text, (low, first), (high, second), half)

    @staticmethod
    def _part(text: Text, element: str, value: str, lanes: int, start: int, count: int) -> str:
        kind = vector(element, lanes)
        if count == 1:
            return text.value(f"extractelement {kind} {value}, i64 {start}")
        chosen = ", ".join(f"i32 {start + k}" for k in range(count))
        return text.value(
            f"shufflevector {kind} {value}, {kind} poison, <{count} x i32> <{chosen}>"
        )

    def _join(
        self, text: Text, left: tuple[str, str], right: tuple[str, str], lanes: int
    ) -> tuple[str, str]:
        if self.places:
            return self._better(text, left, right, lanes)
        return arithmetic.combine(text, self.op, left[0], right[0], self.dtype, lanes), ""

    def _better(
        self, text: Text, old: tuple[str, str], new: tuple[str, str], lanes: int
    ) -> tuple[str, str]:
        """The more extreme of two (value, index) pairs; the first index on ties; NaN wins."""
        kind, wide, mask = (vector(self.element, lanes), vector("i64", lanes), vector("i1", lanes))
        largest = self.op == "argmax"
        earlier = text.value(f"icmp slt {wide} {new[1]}, {old[1]}")
        if self.dtype.is_float:
            wins = text.value(f"fcmp {'ogt' if largest else 'olt'} {kind} {new[0]}, {old[0]}")
            ties = text.value(f"fcmp oeq {kind} {new[0]}, {old[0]}")
            broken_new = text.value(f"fcmp uno {kind} {new[0]}, {new[0]}")
            broken_old = text.value(f"fcmp uno {kind} {old[0]}, {old[0]}")
            both = text.value(f"and {mask} {broken_new}, {broken_old}")
            ties = text.value(f"or {mask} {ties}, {both}")
            whole = text.value(f"xor {mask} {broken_old}, {splat('i1', lanes, True)}")
            fresh = text.value(f"and {mask} {broken_new}, {whole}")
            wins = text.value(f"or {mask} {wins}, {fresh}")
        else:
            sign = "s" if self.dtype.is_signed else "u"
            wins = text.value(f"icmp {sign}{'gt' if largest else 'lt'} {kind} {new[0]}, {old[0]}")
            ties = text.value(f"icmp eq {kind} {new[0]}, {old[0]}")
        tied = text.value(f"and {mask} {ties}, {earlier}")
        take = text.value(f"or {mask} {wins}, {tied}")
        value = text.value(f"select {mask} {take}, {kind} {new[0]}, {kind} {old[0]}")
        place = text.value(f"select {mask} {take}, {wide} {new[1]}, {wide} {old[1]}")
        return value, place
