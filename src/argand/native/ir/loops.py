"""native.ir.loops: the loop IR, one ``Kernel`` or ``Contraction`` per loop nest; made by schedule, emitted by codegen.

A kernel runs its body once for each point of ``outer`` (flattened, split over threads). Bodies are
lists of statements on numbered values; every value has one definition, visible to what follows it in
its block and in blocks inside. A loop over one variable may end in accumulators, whose results are
values of the block around the loop. Indices are affine forms of the loop variables, in elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, final

from argand.native.ir.affine import Affine, Var
from argand.native.ir.types import DType
from argand.support.dataclass import dataclass, replace

ValueId: TypeAlias = int


@final
@dataclass(frozen=True, slots=True)
class Literal:
    """A number of the given type."""

    result: ValueId
    dtype: DType
    value: bool | int | float


@final
@dataclass(frozen=True, slots=True)
class Coordinate:
    """The value of an index expression, as i64."""

    result: ValueId
    index: Affine


@final
@dataclass(frozen=True, slots=True)
class Load:
    """Read one element; ``indirect`` adds value * stride.

    A value outside 0 .. bound - 1 is kept inside and marked in the buffer ``flag`` by its row of ``marks``
    (`runtime.marks.OutOfRange`); with a bound of 0 it is known to be right.
    """

    result: ValueId
    dtype: DType
    buffer: int
    index: Affine
    indirect: tuple[tuple[ValueId, int, int], ...] = ()  # (value, stride, bound)
    flag: int = -1
    marks: tuple[int, ...] = ()  # one for each of ``indirect``; none: all are 0


@final
@dataclass(frozen=True, slots=True)
class Compute:
    """A pointwise op of tensor IR on values; ``operand`` is the type of its arguments."""

    result: ValueId
    dtype: DType
    op: str
    arguments: tuple[ValueId, ...]
    operand: DType


@final
@dataclass(frozen=True, slots=True)
class Store:
    """Write one element."""

    dtype: DType
    buffer: int
    index: Affine
    value: ValueId


@final
@dataclass(frozen=True, slots=True)
class Accumulate:
    """The reduction of ``value`` over the loop it stands in; ``result`` lives around that loop."""

    result: ValueId
    dtype: DType
    op: str  # sum, prod, amax, amin, argmax, argmin
    value: ValueId
    operand: DType
    position: Affine  # argmax, argmin: the index that is the result


@final
@dataclass(frozen=True, slots=True)
class Loop:
    """``for var in range(extent)``; accumulators of nested loops are listed at the outermost one.

    ``limit`` ends it earlier: what is left of a row cut into pieces of ``extent``.
    """

    var: Var
    extent: int
    body: Block
    vector: bool = False
    limit: Affine | None = None


Statement: TypeAlias = Literal | Coordinate | Load | Compute | Store | Accumulate | Loop
Block: TypeAlias = tuple[Statement, ...]


@final
@dataclass(frozen=True, slots=True)
class Kernel:
    """One loop nest over numbered buffers."""

    buffers: tuple[DType, ...]
    outer: tuple[tuple[Var, int], ...]
    body: Block
    vector: Var | None = None  # an outer variable that runs over vector lanes
    scratch: tuple[tuple[DType, int], ...] = ()  # buffers after the others: one row, on the stack


@final
@dataclass(frozen=True, slots=True)
class PerGroup:
    """A number for each column and for each group of elements along ``inner``: where it lies in a buffer."""

    buffer: int
    dtype: DType
    across: int  # from column to column
    along: int  # from group to group
    offset: int = 0


@final
@dataclass(frozen=True, slots=True)
class Quantization:
    """How integers q stand for the elements of a factor: ``(q - zero) * scale``."""

    bits: int  # 8; or 4: two to a byte, the first in its lower half
    group: int  # elements along ``inner`` with the same scale and zero
    zero: PerGroup | float = 0.0
    scale: PerGroup | None = None  # None: 1


@final
@dataclass(frozen=True, slots=True)
class Factor:
    """An operand of a contraction: element (b0, b1, i, k) of a buffer, i its row (left) or its column (right)."""

    buffer: int
    dtype: DType
    # strides, in elements (of the buffer: bytes, where two numbers share one)
    batch: tuple[int, int]
    across: int
    inner: int
    offset: int = 0
    quantized: Quantization | None = None  # of the right factor, whose ``inner`` is 1


@final
@dataclass(frozen=True, slots=True)
class Contraction:
    """Matrix products whose elements go through statements before they are stored.

    ``body`` runs once for each element, with the sum of ``left * right`` over ``inner`` as value ``result``; its
    variables are d0 and d1 (the batch), d2 (the row) and d3 (the column).
    """

    buffers: tuple[DType, ...]
    batch: tuple[int, int]
    rows: int
    columns: int
    inner: int
    left: Factor
    right: Factor
    result: ValueId
    dtype: DType
    body: Block


ROW, COLUMN = 2, 3  # variables of a contraction's body


def walk(block: Block) -> Iterator[Statement]:
    """Every statement, loops before their bodies."""
    for statement in block:
        yield statement
        if isinstance(statement, Loop):
            yield from walk(statement.body)


def indices_of(statement: Statement) -> tuple[Affine, ...]:
    """The index expressions of a statement."""
    if isinstance(statement, Load | Store | Coordinate):
        return (statement.index,)
    return (statement.position,) if isinstance(statement, Accumulate) else ()


def uses_of(statement: Statement) -> tuple[ValueId, ...]:
    """The values a statement needs."""
    if isinstance(statement, Compute):
        return statement.arguments
    if isinstance(statement, Load):
        return tuple(value for value, _, _ in statement.indirect)
    return (statement.value,) if isinstance(statement, Store | Accumulate) else ()


def with_indices(block: Block, change: Callable[[Affine], Affine]) -> Block:
    """The block, which has no loops, with its index expressions changed."""

    def changed(statement: Statement) -> Statement:
        if isinstance(statement, Load | Store | Coordinate):
            return replace(statement, index=change(statement.index))
        if isinstance(statement, Accumulate):
            return replace(statement, position=change(statement.position))
        return statement

    return tuple(map(changed, block))


def renamed(statement: Statement, names: Mapping[ValueId, ValueId]) -> Statement:
    """A statement with other names for values; those without one keep theirs."""
    match statement:
        case Literal(result) | Coordinate(result):
            return replace(statement, result=names.get(result, result))
        case Load(result, indirect=indirect):
            listed = tuple(
                (names.get(value, value), stride, bound) for value, stride, bound in indirect
            )
            return replace(statement, result=names.get(result, result), indirect=listed)
        case Compute(result, arguments=arguments):
            listed_arguments = tuple(names.get(value, value) for value in arguments)
            return replace(statement, result=names.get(result, result), arguments=listed_arguments)
        case Store(value=value) | Accumulate(value=value):
            return replace(statement, value=names.get(value, value))
        case Loop():
            return replace(statement, body=tuple(renamed(s, names) for s in statement.body))


def results_of(statement: Statement) -> tuple[ValueId, ...]:
    """The value a statement defines, if it does."""
    return () if isinstance(statement, Store | Loop) else (statement.result,)


def tables_of(factor: Factor) -> tuple[PerGroup, ...]:
    """What else is read for an operand: its zeros and scales."""
    given = factor.quantized
    return (
        ()
        if given is None
        else tuple(t for t in (given.zero, given.scale) if isinstance(t, PerGroup))
    )


def factor_with_buffers(factor: Factor, numbers: Mapping[int, int]) -> Factor:
    """An operand with other numbers for its buffers."""
    given = factor.quantized
    if given is not None:
        zero, scale = (
            replace(table, buffer=numbers[table.buffer]) if isinstance(table, PerGroup) else table
            for table in (given.zero, given.scale)
        )
        given = Quantization(given.bits, given.group, 0.0 if zero is None else zero, scale)  # type: ignore[arg-type]
    return replace(factor, buffer=numbers[factor.buffer], quantized=given)


def with_buffers(statement: Statement, numbers: Mapping[int, int]) -> Statement:
    """A statement with other numbers for its buffers; those of rows on the stack stay."""
    if isinstance(statement, Load):
        flag = numbers.get(statement.flag, statement.flag)
        return replace(statement, buffer=numbers.get(statement.buffer, statement.buffer), flag=flag)
    if isinstance(statement, Store):
        return replace(statement, buffer=numbers.get(statement.buffer, statement.buffer))
    return statement
