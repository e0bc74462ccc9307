"""native.contract.casts: weights that are kept in a smaller type are converted where a product reads them.

Before:  kernel: %2 = cast of every element of %1 (i8);  contraction: reads %2
After:   contraction: reads %1, as i8

So a product with few rows reads a quarter of the bytes, and nobody writes the converted weight to memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final, NamedTuple

from argand.native.ir import loops as ir
from argand.native.ir.strides import source_of
from argand.native.ir.tensor import Node
from argand.native.ir.types import DType
from argand.native.schedule.nest import LoopNest
from argand.native.schedule.order import Schedule

READ: Final = (DType.I8, DType.BF16, DType.F16)  # what the inner functions of products convert


class _Cast(NamedTuple):
    """A nest that does nothing but convert: where it stands, what it reads, and from which element on."""

    position: int
    source: Node
    dtype: DType


def pull_casts(schedule: Schedule, work: Sequence[LoopNest | Node]) -> list[LoopNest | Node]:
    """Let contractions read what was converted for them alone."""
    result: list[LoopNest | Node | None] = list(work)
    for position, item in enumerate(work):
        if not isinstance(item, LoopNest) or not isinstance(item.kernel, ir.Contraction):
            continue
        found = _find(schedule, result, position)
        if found is not None:
            result[found.position] = None
            result[position] = _reading(item, found)
    return [item for item in result if item is not None]


def _find(schedule: Schedule, work: Sequence[LoopNest | Node | None], position: int) -> _Cast | None:
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
    touching = [k for k, item in enumerate(work) if item is not None and _touches(schedule, item, value)]
    if len(touching) != 2 or touching[1] != position:
        return None
    maker = work[touching[0]]
    source = _converted(maker, value) if isinstance(maker, LoopNest) else None
    if source is None or any(_stores(item, source) for item in work[touching[0] + 1 : position + 1]):
        return None
    assert source.dtype is not None
    if product.right.dtype is not DType.F32 and source.dtype is not DType.I8:
        return None  # a half of one kind is rounded to the other; integers of 8 bits are exact in both
    return _Cast(touching[0], source, source.dtype)


def _touches(schedule: Schedule, item: LoopNest | Node, value: Node) -> bool:
    if isinstance(item, LoopNest):
        return value in item.owners
    return any(source_of(source) is value for source in schedule.demand.inputs(item))


def _stores(item: LoopNest | Node | None, owner: Node) -> bool:
    if not isinstance(item, LoopNest) or owner not in item.owners:
        return False
    number = item.owners.index(owner)
    return any(isinstance(s, ir.Store) and s.buffer == number for s in ir.walk(item.kernel.body))


def _converted(nest: LoopNest, value: Node) -> Node | None:
    """What a nest converts element by element, at the same places, to store it as ``value``."""
    kernel = nest.kernel
    if not isinstance(kernel, ir.Kernel) or kernel.vector is not None:
        return None
    statements = [s for s in ir.walk(kernel.body) if not isinstance(s, ir.Loop)]
    if any(isinstance(s, ir.Loop) and s.limit is not None for s in ir.walk(kernel.body)):
        return None
    match statements:
        case [ir.Load() as load, ir.Compute(op="cast") as cast, ir.Store() as store]:
            plain = not load.indirect and cast.arguments == (load.result,) and store.value == cast.result
            same = load.index == store.index and nest.owners[store.buffer] is value
            source = nest.owners[load.buffer]
            return source if plain and same and source.dtype is load.dtype and load.dtype in READ else None
        case _:
            return None


def _reading(nest: LoopNest, cast: _Cast) -> LoopNest:
    product = nest.kernel
    assert isinstance(product, ir.Contraction)
    number = product.right.buffer
    owners = [cast.source if k == number else owner for k, owner in enumerate(nest.owners)]
    buffers = tuple(cast.dtype if k == number else dtype for k, dtype in enumerate(product.buffers))
    right = dataclasses.replace(product.right, dtype=cast.dtype)
    return LoopNest(dataclasses.replace(product, buffers=buffers, right=right), tuple(owners))
