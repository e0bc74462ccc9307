"""native.contract.quantized: loop nests that turn small integers into weights, read as what they mean.

In: a nest that stores ``(q - zero) * scale`` for every element of a matrix, q an integer of 8 or 4 bits, zero and scale one number
per column, per group of elements along a column, or for all. Out: ``Meaning``: where q, zero and scale lie, or None.

So it does not matter who wrote the formula: ``argand.quantize``, torchao, or a user. Where eager rounds the weights of a half
type, these are not rounded: they are float32 inside of a product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine, Var
from argand.native.ir.tensor import Node
from argand.native.ir.types import DType
from argand.native.schedule.nest import LoopNest
from argand.sizes.expressions import SizeInt

_BYTES: Final = (DType.I8, DType.U8)
_TABLES: Final = (DType.F32, DType.BF16, DType.F16, *_BYTES)
_HOLD: Final = (
    frozenset(  # types that hold all integers of a byte, and their differences in the wide ones
        {DType.I16, DType.I32, DType.I64, DType.F16, DType.BF16, DType.F32, DType.F64}
    )
)


class Meaning(NamedTuple):
    """What a nest computes: integers, and how they stand for numbers; buffers are numbers of the nest's own."""

    integers: ir.Load
    quantized: ir.Quantization


class _Digit(NamedTuple):
    """A loop as a part of the place of an element: it counts ``extent`` steps of ``weight`` elements."""

    var: Var
    weight: int
    extent: int


class _Formula:
    """The values of a nest as formulas of integers, zeros and scales; None where they are something else."""

    def __init__(self, nest: LoopNest, digits: Sequence[_Digit]) -> None:
        kernel = nest.kernel
        assert isinstance(kernel, ir.Kernel)
        self.made = {
            s.result: s for s in ir.walk(kernel.body) if not isinstance(s, ir.Loop | ir.Store)
        }
        self.digits = digits

    def integer(self, value: ir.ValueId) -> tuple[ir.Load, int] | None:
        """The load behind an integer of a byte or of half a byte, through casts that keep it; and its bits."""
        statement = self.made[value]
        match statement:
            case ir.Load(dtype=dtype, indirect=()) if dtype in _BYTES:
                return statement, 8
            case ir.Compute(op="cast", arguments=(source,), dtype=dtype) if dtype in _HOLD:
                return self.integer(source)
            case ir.Compute(op="select", arguments=(test, upper, lower), dtype=DType.U8) if (
                self._is_odd(test)
            ):
                high, low = self._half(upper, "shr", 4), self._half(lower, "and", 15)
                return (high, 4) if high is not None and high == low else None
            case _:
                return None

    def _half(self, value: ir.ValueId, op: str, number: int) -> ir.Load | None:
        """The load of a byte of which a half is taken."""
        statement = self.made[value]
        if (
            not isinstance(statement, ir.Compute)
            or statement.op != op
            or statement.dtype is not DType.U8
        ):
            return None
        byte, by = map(self.made.__getitem__, statement.arguments)
        fits = isinstance(byte, ir.Load) and byte.dtype is DType.U8 and not byte.indirect
        return byte if fits and isinstance(by, ir.Literal) and by.value == number else None  # type: ignore[return-value]

    def _is_odd(self, value: ir.ValueId) -> bool:
        """Whether a truth says that the innermost place, of two, is the second."""
        statement = self.made[value]
        last = self.digits[-1]
        if (
            not isinstance(statement, ir.Compute)
            or statement.op != "eq"
            or (last.weight, last.extent) != (1, 2)
        ):
            return False
        place, one = map(self.made.__getitem__, statement.arguments)
        second = isinstance(one, ir.Literal) and one.value == 1
        return isinstance(place, ir.Coordinate) and place.index == Affine.of(last.var) and second

    def table(self, value: ir.ValueId) -> ir.Load | float | None:
        """A number that is loaded or known, through casts that keep it."""
        statement = self.made[value]
        match statement:
            case ir.Literal(value=number):
                return float(number)
            case ir.Load(dtype=dtype, indirect=()) if dtype in _TABLES:
                return statement
            case ir.Compute(op="cast", arguments=(source,), dtype=dtype, operand=operand):
                whole = operand in (*_BYTES, DType.I16, DType.I32) and dtype in _HOLD
                wider = operand.is_half and dtype is DType.F32
                return self.table(source) if whole or wider else None
            case _:
                return None

    def shifted(self, value: ir.ValueId) -> tuple[ir.Load, int, ir.Load | float] | None:
        """``q - zero``, or q alone."""
        plain = self.integer(value)
        if plain is not None:
            return (*plain, 0.0)
        match self.made[value]:
            case ir.Compute(op="cast" | "round", arguments=(source,), dtype=dtype) if (
                dtype.is_float
            ):
                return self.shifted(source)
            case ir.Compute(op="sub", arguments=(left, right), dtype=dtype) if dtype in _HOLD:
                found, zero = self.integer(left), self.table(right)
                return None if found is None or zero is None else (*found, zero)
            case _:
                return None

    def scaled(
        self, value: ir.ValueId
    ) -> tuple[ir.Load, int, ir.Load | float, ir.Load | None] | None:
        """``(q - zero) * scale``."""
        match self.made[value]:
            case ir.Compute(
                op="cast" | "round", arguments=(source,), dtype=dtype, operand=operand
            ) if dtype.is_float and operand.is_float:
                return self.scaled(source)
            case ir.Compute(op="mul", arguments=(left, right), dtype=dtype) if dtype.is_float:
                for one, other in ((left, right), (right, left)):
                    found, scale = self.shifted(one), self.table(other)
                    if found is not None and isinstance(scale, ir.Load) and scale.dtype.is_float:
                        return (*found, scale)
                return None
            case _:
                found = self.shifted(value)
                return None if found is None else (*found, None)


def meaning_of(nest: LoopNest, value: Node, inner: int) -> Meaning | None:
    """What a nest computes that stores nothing but ``value``, rows of ``inner`` elements behind each other."""
    kernel = nest.kernel
    if not isinstance(kernel, ir.Kernel) or kernel.vector is not None or kernel.scratch:
        return None
    statements = list(ir.walk(kernel.body))
    stores = [s for s in statements if isinstance(s, ir.Store)]
    if len(stores) != 1 or nest.owners[stores[0].buffer] is not value:
        return None
    if any(
        isinstance(s, ir.Accumulate) or (isinstance(s, ir.Loop) and s.limit is not None)
        for s in statements
    ):
        return None
    extents = dict(kernel.outer) | {s.var: s.extent for s in statements if isinstance(s, ir.Loop)}
    digits = _digits(stores[0].index, extents)
    if digits is None or isinstance(inner, SizeInt):
        return None
    found = _Formula(nest, digits).scaled(stores[0].value)
    if found is None:
        return None
    if not _same_place(found[0].index, digits, found[1]):
        return None
    return _grouped(found, digits, inner)


def _digits(index: Affine, extents: Mapping[Var, int]) -> list[_Digit] | None:
    """Loops that walk over all elements once, by weight, the largest first; None when they do not."""
    if index.constant or any(isinstance(n, SizeInt) for n in extents.values()):
        return None
    found = sorted(
        (_Digit(v, step, extents[v]) for v, step in index.terms), key=lambda d: -d.weight
    )
    weight = 1
    for digit in reversed(found):
        if digit.weight != weight:
            return None
        weight *= digit.extent
    used = {digit.var for digit in found}
    return found if found and all(n == 1 or v in used for v, n in extents.items()) else None


def _same_place(index: Affine, digits: Sequence[_Digit], bits: int) -> bool:
    """Whether the integer of an element lies where the element does; of two in a byte, where both do."""
    if bits == 8:
        return index == Affine(0, tuple(sorted((d.var, d.weight) for d in digits)))
    return index == Affine(0, tuple(sorted((d.var, d.weight // 2) for d in digits[:-1])))


def _grouped(
    found: tuple[ir.Load, int, ir.Load | float, ir.Load | None],
    digits: Sequence[_Digit],
    inner: int,
) -> Meaning | None:
    integers, bits, zero, scale = found
    tables = [table for table in (zero, scale) if isinstance(table, ir.Load)]
    weights = [d.weight for d in digits if any(table.index.coefficient(d.var) for table in tables)]
    group = min((*weights, inner))
    if inner % group:
        return None
    places = [_per_group(table, digits, inner, group) for table in tables]
    if None in places:
        return None
    listed = iter(places)
    zeros = next(listed) if isinstance(zero, ir.Load) else zero
    scales = next(listed) if scale is not None else None
    assert zeros is not None
    return Meaning(integers, ir.Quantization(bits, group, zeros, scales))


def _per_group(
    table: ir.Load, digits: Sequence[_Digit], inner: int, group: int
) -> ir.PerGroup | None:
    """Where the number of a group lies: each loop steps over groups of one column, over columns, or over both."""
    across: set[int] = set()
    along: set[int] = set()
    for digit in digits:
        step, reach = table.index.coefficient(digit.var), digit.weight * digit.extent
        unit = inner if digit.weight >= inner else group
        if digit.weight < group:
            if step:
                return None
            each = 0
        elif digit.weight % unit or step % (digit.weight // unit):
            return None
        else:
            each = step // (digit.weight // unit)
        if group < reach and unit != inner:
            along.add(each)
        if inner < reach:
            across.add(each if unit == inner else each * (inner // group))
    if (
        len(across) > 1
        or len(along) > 1
        or not set(table.index.variables()) <= {d.var for d in digits}
    ):
        return None
    return ir.PerGroup(table.buffer, table.dtype, sum(across), sum(along), table.index.constant)
