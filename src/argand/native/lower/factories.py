"""native.lower.factories: tensors from nothing, and lookups by index tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from argand.native.ir.affine import Affine
from argand.native.ir.builder import broadcast
from argand.native.ir.tensor import Lookup, Node
from argand.native.ir.types import DType
from argand.native.lower.context import Lowering, LoweringContext, NotLowered, Scalar
from argand.native.lower.views import iota
from argand.runtime.marks import OutOfRange
from argand.sizes.expressions import SizeInt


def _empty(c: LoweringContext, *args: Any, **kwargs: Any) -> Node:
    return c.build.constant(0, c.dtype, c.shape)


def _full(c: LoweringContext, size: Sequence[int], value: Scalar, *_: Any, **__: Any) -> Node:
    return c.full(c.node(value))


def _arange(
    c: LoweringContext, start: Scalar, end: Scalar | None = None, step: Scalar = 1, **_: Any
) -> Node:
    begin = 0 if end is None else start
    counter = iota(c, c.shape, 0)
    wide = DType.F64 if c.dtype.is_float else DType.I64
    scaled = c.op("mul", c.build.cast(counter, wide), c.build.constant(step, wide))
    return c.node(c.op("add", scaled, c.build.constant(begin, wide)))


def _linspace_forms(c: LoweringContext, start: Scalar, end: Scalar, steps: int, **_: Any) -> Node:
    opened = any(isinstance(value, SizeInt) for value in (start, end, steps))
    if not c.dtype.is_float or c.dtype.is_half or steps < 2 or opened:
        raise NotLowered
    step = (end - start) / (steps - 1)
    counter = iota(c, c.shape, 0)
    up = c.op("add", c.op("mul", c.build.cast(counter, c.dtype), step), float(start))
    back = c.build.cast(c.op("sub", steps - 1, counter), c.dtype)
    down = c.op("sub", float(end), c.op("mul", back, step))
    return c.where(c.op("lt", counter, steps // 2), up, down)


def wrapped(c: LoweringContext, index: Node, size: int) -> Node:
    """An index tensor as i64, negative entries counted from the end."""
    index = c.build.cast(index, DType.I64)
    return c.where(c.op("lt", index, 0), c.op("add", index, size), index)


def _embedding(c: LoweringContext, weight: Node, index: Node, *_: Any, **__: Any) -> Node:
    rank = len(index.shape)
    place = c.build.reshape(c.build.cast(index, DType.I64), (*index.shape, 1))
    return c.gather((weight, place), c.shape, c.dtype, (Lookup(1), Affine.of(rank)))


def _index_select(c: LoweringContext, x: Node, dim: int, index: Node) -> Node:
    """Elements of one dimension; unlike ``x[index]``, none is counted from the end."""
    rank = len(x.shape)
    if rank == 0:
        raise NotLowered
    forms: list[Affine | Lookup] = [Affine.of(d) for d in range(rank)]
    forms[dim % rank] = Lookup(1, OutOfRange.AXIS if dim % rank == 1 else OutOfRange.SELF)
    count = c.shape[dim % rank]
    place = c.build.reshape(
        c.build.cast(index, DType.I64), (count, *(1,) * (rank - 1 - dim % rank))
    )
    return c.gather((x, place), c.shape, c.dtype, tuple(forms))


def _gather(c: LoweringContext, x: Node, dim: int, index: Node, **_: Any) -> Node:
    rank = len(x.shape)
    if rank == 0:
        raise NotLowered
    forms: list[Affine | Lookup] = [Affine.of(d) for d in range(rank)]
    forms[dim % rank] = Lookup(1, OutOfRange.GATHER)
    return c.gather((x, c.build.cast(index, DType.I64)), c.shape, c.dtype, tuple(forms))


def _index(c: LoweringContext, x: Node, indices: Sequence[Node | None]) -> Node:
    given = [d for d, i in enumerate(indices) if i is not None]
    if any(i is not None and i.dtype in (DType.BOOL, DType.U8, None) for i in indices) or not given:
        raise NotLowered
    shape = broadcast([i.shape for i in indices if i is not None])
    adjacent = given == list(range(given[0], given[-1] + 1))
    start = given[0] if adjacent else 0
    after = len(c.shape) - start - len(shape)
    kept = [d for d in range(len(x.shape)) if d not in given]
    homes = iter([d for d in range(len(c.shape)) if not start <= d < start + len(shape)])
    forms: list[Affine | Lookup] = [Affine()] * len(x.shape)
    for d in kept:
        forms[d] = Affine.of(next(homes))
    nodes: list[Node] = []
    for d in given:
        index = indices[d]
        assert index is not None
        place = wrapped(c, index, x.shape[d])
        nodes.append(c.build.reshape(place, (*place.shape,) + (1,) * after))
        forms[d] = Lookup(len(nodes), OutOfRange.INDEX)
    return c.gather((x, *nodes), c.shape, c.dtype, tuple(forms))


TABLE: Final[Mapping[str, Lowering]] = {
    **{  # any value will do; their only use is the shape
        f"aten.{n}.{o}": _empty
        for n in ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
        for o in ("default", "memory_format")
    },
    "aten.full.default": _full,
    **dict.fromkeys(
        ("aten.arange.default", "aten.arange.start", "aten.arange.start_step"), _arange
    ),
    "aten.linspace.default": _linspace_forms,
    "aten.embedding.default": _embedding,
    "aten.index_select.default": _index_select,
    "aten.gather.default": _gather,
    **dict.fromkeys(("aten.index.Tensor", "aten._unsafe_index.Tensor"), _index),
}
