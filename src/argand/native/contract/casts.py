"""native.contract.casts: weights that are kept in a smaller type are converted where a product reads them.

Before:  kernel: %2 = cast of every element of %1 (i8);  contraction: reads %2
After:   contraction: reads %1, as i8

Before:  kernel: %4 = (%1 - %2) * %3, the last two per group of elements;  contraction: reads %4
After:   contraction: reads %1, with %2 and %3 as its zeros and scales (``quantized``)

So a product with few rows reads a quarter of the bytes, and nobody writes the converted weight to memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from argand.native.codegen.llvm.contraction import reads_quantized
from argand.native.codegen.target import Target
from argand.native.contract.quantized import meaning_of
from argand.native.ir import loops as ir
from argand.native.ir.strides import source_of
from argand.native.ir.tensor import Node
from argand.native.ir.types import DType
from argand.native.schedule.nest import LoopNest
from argand.native.schedule.order import Schedule
from argand.support.dataclass import replace

READ: Final = (DType.I8, DType.BF16, DType.F16)  # what the inner functions of products convert


class _Cast(NamedTuple):
    """A nest that does nothing but convert: where it stands, and the operand that the contraction reads instead."""

    position: int
    right: ir.Factor  # its buffers are numbers of the nest
    owners: Mapping[int, Node]  # what they are


def pull_casts(
    schedule: Schedule, work: Sequence[LoopNest | Node], target: Target
) -> list[LoopNest | Node]:
    """Let contractions read what was converted for them alone."""
    result: list[LoopNest | Node | None] = list(work)
    for position, item in enumerate(work):
        if not isinstance(item, LoopNest) or not isinstance(item.kernel, ir.Contraction):
            continue
        found = _find(schedule, result, position, target)
        if found is not None:
            result[found.position] = None
            result[position] = _reading(item, item.kernel, found)
    return [item for item in result if item is not None]


def _find(
    schedule: Schedule, work: Sequence[LoopNest | Node | None], position: int, target: Target
) -> _Cast | None:
    """The conversion of the right operand of a contraction, if nobody else reads its result."""
    nest = work[position]
    assert isinstance(nest, LoopNest) and isinstance(nest.kernel, ir.Contraction)
    product = nest.kernel
    number = product.right.buffer
    used = [s.buffer for s in product.body if isinstance(s, ir.Load | ir.Store)]
    value = nest.owners[number]
    if product.left.buffer == number or number in used:
        return None
    if any(isinstance(o, Node) and source_of(o) is value for o in schedule.demand.outputs):
        return None
    touching = [
        k for k, item in enumerate(work) if item is not None and _touches(schedule, item, value)
    ]
    if len(touching) != 2 or touching[1] != position:
        return None
    maker = work[touching[0]]
    right = _converted(maker, value, product, target) if isinstance(maker, LoopNest) else None
    if right is None:
        return None
    assert isinstance(maker, LoopNest)
    owners = {k: maker.owners[k] for k in (right.buffer, *(t.buffer for t in ir.tables_of(right)))}
    between = work[touching[0] + 1 : position + 1]
    if any(_stores(item, source) for item in between for source in owners.values()):
        return None
    return _Cast(touching[0], right, owners)


def _touches(schedule: Schedule, item: LoopNest | Node, value: Node) -> bool:
    if isinstance(item, LoopNest):
        return value in item.owners
    return any(source_of(source) is value for source in schedule.demand.inputs(item))


def _stores(item: LoopNest | Node | None, owner: Node) -> bool:
    if not isinstance(item, LoopNest) or owner not in item.owners:
        return False
    number = item.owners.index(owner)
    return any(isinstance(s, ir.Store) and s.buffer == number for s in ir.walk(item.kernel.body))


def _converted(
    nest: LoopNest, value: Node, product: ir.Contraction, target: Target
) -> ir.Factor | None:
    """What a nest converts element by element, at the same places, to store it as ``value``: as an operand."""
    source = _plainly_converted(nest, value)
    if source is not None:
        if product.right.dtype is not DType.F32 and source.dtype is not DType.I8:
            return None  # a half of one kind is rounded to the other; integers of 8 bits are exact in both
        return replace(product.right, buffer=source.buffer, dtype=source.dtype)
    right = product.right
    if (right.batch, right.across, right.inner, right.offset) != ((0, 0), product.inner, 1, 0):
        return None
    found = meaning_of(nest, value, product.inner)
    if found is None:
        return None
    across = product.inner * found.quantized.bits // 8
    factor = ir.Factor(
        buffer=found.integers.buffer,
        dtype=found.integers.dtype,
        batch=(0, 0),
        across=across,
        inner=1,
        offset=0,
        quantized=found.quantized,
    )
    return factor if reads_quantized(replace(product, right=factor), target) else None


def _plainly_converted(nest: LoopNest, value: Node) -> ir.Load | None:
    """The load of a nest that is load, cast and store."""
    kernel = nest.kernel
    if not isinstance(kernel, ir.Kernel) or kernel.vector is not None:
        return None
    statements = [s for s in ir.walk(kernel.body) if not isinstance(s, ir.Loop)]
    if any(isinstance(s, ir.Loop) and s.limit is not None for s in ir.walk(kernel.body)):
        return None
    match statements:
        case [ir.Load() as load, ir.Compute(op="cast") as cast, ir.Store() as store]:
            plain = (
                not load.indirect
                and cast.arguments == (load.result,)
                and store.value == cast.result
            )
            same = load.index == store.index and nest.owners[store.buffer] is value
            typed = nest.owners[load.buffer].dtype is load.dtype and load.dtype in READ
            return load if plain and same and typed else None
        case _:
            return None


def _reading(nest: LoopNest, product: ir.Contraction, cast: _Cast) -> LoopNest:
    """The contraction with another right operand."""
    value = nest.owners[product.right.buffer]
    owners = dict.fromkeys((*(o for o in nest.owners if o is not value), *cast.owners.values()))
    numbers = {owner: k for k, owner in enumerate(owners)}
    old = {k: numbers[o] for k, o in enumerate(nest.owners) if o is not value}
    kernel = replace(
        product,
        buffers=tuple(_type_of(owner) for owner in owners),
        left=ir.factor_with_buffers(product.left, old),
        right=ir.factor_with_buffers(
            cast.right, {k: numbers[owner] for k, owner in cast.owners.items()}
        ),
        body=tuple(ir.with_buffers(statement, old) for statement in product.body),
    )
    return LoopNest(kernel, tuple(owners))


def _type_of(owner: Node) -> DType:
    assert owner.dtype is not None
    return owner.dtype
