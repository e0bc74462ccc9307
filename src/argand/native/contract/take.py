"""native.contract.take: matrix products become loop nests of our own, with what follows them.

In: LoopNests with calls of torch between the nests. Out: the same, where products that we compute ourselves are nests
of a ``Contraction``, and pointwise nests that only they feed run on their elements.

Before:  %4 = extern[aten.addmm.default](%2, %0, %1);  kernel: gelu of every element of %4
After:   contraction: the sum over inner, + %2, gelu, stored once
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch

from argand.native.choice import Choices
from argand.native.codegen.llvm.contraction import reads_integers
from argand.native.codegen.target import Target
from argand.native.contract.casts import pull_casts
from argand.native.contract.model import OURS, ProductShape, choose_product
from argand.native.contract.runs import product_ways
from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine, Var
from argand.native.ir.strides import source_of, strided
from argand.native.ir.tensor import ExternCall, Node, TensorArgument
from argand.native.ir.types import DType, at_least
from argand.native.schedule.nest import LoopNest, LoopNests
from argand.native.schedule.order import Schedule
from argand.support.dataclass import replace

aten = torch.ops.aten
_INTEGERS: Final = aten._int_mm.default
_PLAIN: Final = (aten.mm.default, aten.bmm.default, _INTEGERS)
_BIASED: Final = (aten.addmm.default, aten.baddbmm.default)


class _Matrix(NamedTuple):
    """An operand in memory: strides of two batch dimensions, rows and columns."""

    leaf: Node
    dtype: DType
    batch: tuple[int, int]
    strides: tuple[int, int]
    offset: int


def take_products(
    nests: LoopNests, target: Target, choices: Choices, fusion: bool = True
) -> LoopNests:
    """Replace calls of torch by contractions where ours are chosen, then let them take what follows."""
    work: list[LoopNest | Node] = []
    for item in nests.work:
        ours = (
            _contraction(nests.schedule, item, target, choices) if isinstance(item, Node) else None
        )
        work.append(ours or item)
    decisions = list(nests.schedule.decisions)
    if fusion:
        work = pull_casts(nests.schedule, work, target)
        work = _with_followers(nests.schedule, work, decisions)
    schedule = replace(nests.schedule, decisions=tuple(decisions))
    return LoopNests(schedule, tuple(work))


# --- a call becomes a contraction ------------------------------------------------------------


def _contraction(
    schedule: Schedule, node: Node, target: Target, choices: Choices
) -> LoopNest | None:
    call: Any = node.attribute
    if not isinstance(call, ExternCall) or call.target not in (*_PLAIN, *_BIASED):
        return None
    inputs = schedule.demand.inputs(node)
    if not all(isinstance(argument, TensorArgument) for argument in call.args):
        return None
    operands = [inputs[argument.number] for argument in call.args]
    alpha, beta = call.kwargs.get("alpha", 1), call.kwargs.get("beta", 1)
    bias = operands.pop(0) if call.target in _BIASED else None
    items = [n for n in schedule.demand.nodes if n.op == "item" and n.inputs[0] is node]
    if len(items) != 1 or len(operands) != 2 or (bias is not None and beta == 0):
        return None
    batch = _batch((*operands, items[0]))
    found = [_matrix(schedule, operand, batch) for operand in (*operands, items[0])]
    if any(matrix is None for matrix in found):
        return None
    left, right, out = found
    assert left is not None and right is not None and out is not None
    rows, columns = items[0].shape[-2:]
    inner = operands[0].shape[-1]
    shape = ProductShape(
        batch=batch,
        rows=rows,
        columns=columns,
        inner=inner,
        left=left.dtype,
        right=right.dtype,
        left_strides=left.strides,
        right_strides=right.strides,
    )
    if call.target is _INTEGERS:
        nest = _nest(schedule, shape, (left, right, out), (None, 1.0, 1.0))
        able = (
            nest is not None
            and isinstance(nest.kernel, ir.Contraction)
            and reads_integers(nest.kernel, target)
        )
        return nest if able else None
    ways = functools.partial(product_ways, shape, target)
    if out.dtype is not left.dtype or choose_product(shape, target, choices, ways) != OURS:
        return None
    return _nest(schedule, shape, (left, right, out), (bias, float(alpha), float(beta)))


def _batch(operands: Sequence[Node]) -> tuple[int, int]:
    """The batch as two dimensions: those of the operand that has two, if one has."""
    longest = max((operand.shape[:-2] for operand in operands), key=len)
    return (longest[0], longest[1]) if len(longest) == 2 else ((*longest, 1)[0], 1)


def _matrix(schedule: Schedule, node: Node, batch: tuple[int, int]) -> _Matrix | None:
    place = strided(node, schedule.demand.strides)
    if place is None or place.leaf.dtype is None or len(node.shape) < 2:
        return None
    front = place.strides[:-2]
    steps = (0, 0)
    if len(front) == 2:
        steps = (front[0], front[1])
    elif front:
        steps = (front[0] * batch[1], front[0])
    row, column = place.strides[-2:]
    # A stride along which there is one element may be anything: 1 is the most useful.
    row = 1 if node.shape[-2] == 1 and column != 1 else row
    column = 1 if node.shape[-1] == 1 and row != 1 else column
    return _Matrix(place.leaf, place.leaf.dtype, steps, (row, column), place.offset)


def _nest(
    schedule: Schedule,
    shape: ProductShape,
    operands: tuple[_Matrix, _Matrix, _Matrix],
    bias: tuple[Node | None, float, float],
) -> LoopNest | None:
    left, right, out = operands
    owners: dict[Node, int] = {}

    def buffer(leaf: Node) -> int:
        return owners.setdefault(leaf, len(owners))

    factors = (
        ir.Factor(
            buffer(left.leaf), left.dtype, left.batch, left.strides[0], left.strides[1], left.offset
        ),
        ir.Factor(
            buffer(right.leaf),
            right.dtype,
            right.batch,
            right.strides[1],
            right.strides[0],
            right.offset,
        ),
    )
    body: list[ir.Statement] = []
    value, dtype = 0, out.dtype
    added, alpha, beta = bias
    if alpha != 1:
        body += [ir.Literal(1, dtype, alpha), ir.Compute(2, dtype, "mul", (value, 1), dtype)]
        value = 2
    if added is not None:
        index = _bias_index(schedule, added, shape)
        leaf = source_of(added)
        if index is None or leaf.dtype is not dtype:
            return None
        body.append(ir.Load(3, dtype, buffer(leaf), index))
        term = 3
        if beta != 1:
            body += [ir.Literal(4, dtype, beta), ir.Compute(5, dtype, "mul", (3, 4), dtype)]
            term = 5
        body.append(ir.Compute(6, dtype, "add", (value, term), dtype))
        value = 6
    at = Affine(out.offset)
    for var, stride in enumerate((*out.batch, *out.strides)):
        at = at + Affine.of(var).scale(stride)
    body.append(ir.Store(dtype, buffer(out.leaf), at, value))
    types = tuple(_known(leaf) for leaf in owners)
    kernel = ir.Contraction(
        types,
        shape.batch,
        shape.rows,
        shape.columns,
        shape.inner,
        *factors,
        result=0,
        dtype=dtype,
        body=tuple(body),
    )
    return LoopNest(kernel, tuple(owners))


def _known(leaf: Node) -> DType:
    assert leaf.dtype is not None
    return leaf.dtype


def _bias_index(schedule: Schedule, bias: Node, shape: ProductShape) -> Affine | None:
    """Where the bias of an element lies; None when it has no place in memory or broadcasts in another way."""
    place = strided(bias, schedule.demand.strides)
    full = (*shape.batch, shape.rows, shape.columns)
    if place is None or (len(bias.shape) > 2 and shape.batch[1] != 1):
        return None
    sizes = bias.shape if len(bias.shape) <= 2 else (bias.shape[0], 1, *bias.shape[1:])
    strides = place.strides if len(bias.shape) <= 2 else (place.strides[0], 0, *place.strides[1:])
    index, missing = Affine(place.offset), 4 - len(sizes)
    for dim, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if size == 1:
            continue
        if size != full[dim + missing]:
            return None
        index = index + Affine.of(dim + missing).scale(stride)
    return index


# --- what follows ----------------------------------------------------------------------------


def _with_followers(
    schedule: Schedule, work: list[LoopNest | Node], decisions: list[str]
) -> list[LoopNest | Node]:
    """Contractions take the pointwise nests that nobody but they feed, at the place of these."""
    result: list[LoopNest | Node | None] = list(work)
    for position, item in enumerate(work):
        current: Any = result[position]
        if not isinstance(item, LoopNest) or not isinstance(item.kernel, ir.Contraction):
            continue
        at = position
        while (after := _follower(schedule, result, at)) is not None:
            place, joined = after
            decisions.append("fuse what follows into a product")
            result[at], result[place] = None, joined
            current, at = joined, place
        result[at] = current
    return [item for item in result if item is not None]


def _follower(
    schedule: Schedule, work: Sequence[LoopNest | Node | None], position: int
) -> tuple[int, LoopNest] | None:
    """The nest that alone reads the result of a contraction, and both as one."""
    nest = work[position]
    if not isinstance(nest, LoopNest) or not isinstance(nest.kernel, ir.Contraction):
        return None
    stores = [s for s in nest.kernel.body if isinstance(s, ir.Store)]
    if len(stores) != 1 or nest.kernel.body[-1] is not stores[0] or nest.kernel.batch != (1, 1):
        return None
    result = nest.owners[stores[0].buffer]
    if any(isinstance(o, Node) and source_of(o) is result for o in schedule.demand.outputs):
        return None
    readers = [
        k
        for k, item in enumerate(work)
        if k != position and item is not None and _reads(schedule, item, result)
    ]
    if len(readers) != 1 or readers[0] < position:
        return None
    reader = work[readers[0]]
    if not isinstance(reader, LoopNest) or not isinstance(reader.kernel, ir.Kernel):
        return None
    if any(_overwrites(item, nest.owners) for item in work[position + 1 : readers[0] + 1]):
        return None
    joined = _joined(nest, reader, result)
    return None if joined is None else (readers[0], joined)


def _reads(schedule: Schedule, item: LoopNest | Node, value: Node) -> bool:
    if isinstance(item, LoopNest):
        return value in item.owners
    return any(source_of(source) is value for source in schedule.demand.inputs(item))


def _overwrites(item: LoopNest | Node | None, owners: Sequence[Node]) -> bool:
    """Whether a nest stores into what a contraction reads."""
    if not isinstance(item, LoopNest):
        return False
    stored = {
        item.owners[s.buffer]
        for s in ir.walk(item.kernel.body)
        if isinstance(s, ir.Store) and s.buffer >= 0
    }
    return any(owner in stored and owner.op == "input" for owner in owners)


def _joined(nest: LoopNest, reader: LoopNest, result: Node) -> LoopNest | None:
    """The statements of a pointwise nest on the elements of a contraction; None where they do not fit."""
    product, kernel = nest.kernel, reader.kernel
    assert isinstance(product, ir.Contraction) and isinstance(kernel, ir.Kernel)
    flat = _flat(kernel)
    store = product.body[-1]
    assert isinstance(store, ir.Store)
    contiguous = Affine.of(ir.ROW).scale(product.columns) + Affine.of(ir.COLUMN)
    if flat is None or store.index != contiguous:
        return None
    statements, extents = flat
    number = reader.owners.index(result)
    loads = [s for s in statements if isinstance(s, ir.Load) and s.buffer == number]
    if not loads or any(s.index != loads[0].index or s.indirect for s in loads):
        return None
    places = _places(loads[0].index, extents, product)
    if places is None:
        return None
    return _renamed(nest, reader, statements, places, result)


def _flat(kernel: ir.Kernel) -> tuple[ir.Block, dict[Var, int]] | None:
    """The statements of a pointwise kernel without its loops, and the extents of these."""
    if (
        kernel.vector is not None
        or kernel.scratch
        or not kernel.body
        or not isinstance(kernel.body[-1], ir.Loop)
    ):
        return None
    *before, loop = kernel.body
    assert isinstance(loop, ir.Loop)
    statements = (*before, *loop.body)
    if loop.limit is not None or any(isinstance(s, ir.Loop | ir.Accumulate) for s in statements):
        return None
    return statements, {**dict(kernel.outer), loop.var: loop.extent}


class _Places(NamedTuple):
    """Loop variables as parts of the row and of the column: each with its weight there."""

    rows: tuple[tuple[Var, int], ...]
    columns: tuple[tuple[Var, int], ...]


def _places(index: Affine, extents: Mapping[Var, int], product: ir.Contraction) -> _Places | None:
    """How loops that walk over all elements of a product once count its rows and columns."""
    steps = sorted(((step, var) for var, step in index.terms), reverse=True)
    if index.constant or {var for _, var in steps} != {v for v, n in extents.items() if n != 1}:
        return None
    weight, rows, columns = 1, list[tuple[Var, int]](), list[tuple[Var, int]]()
    for step, var in reversed(steps):
        if step != weight:
            return None
        weight = weight * extents[var]
        if at_least(step, product.columns):
            if step % product.columns != 0:
                return None
            rows.append((var, step // product.columns))
        elif weight == product.columns or at_least(product.columns, weight):
            columns.append((var, step))
        elif step == 1:  # one loop over all elements
            rows.append((var, 1))
            columns.append((var, 1))
        else:
            return None
    same = weight == product.rows * product.columns
    return _Places(tuple(rows), tuple(columns)) if same else None


def _moved(index: Affine, places: _Places, columns: int) -> Affine | None:
    """An index by row and column; None where it is no multiple of them."""
    if places.rows and places.rows == places.columns:
        ((var, _),) = places.rows
        step = index.coefficient(var)
        return (
            Affine(index.constant)
            + Affine.of(ir.ROW).scale(step * columns)
            + Affine.of(ir.COLUMN).scale(step)
        )
    form = Affine(index.constant)
    for target, parts in ((ir.ROW, places.rows), (ir.COLUMN, places.columns)):
        if not parts:
            continue
        var, weight = parts[0]
        step = index.coefficient(var)
        if weight != 1 or any(index.coefficient(v) != step * w for v, w in parts):
            return None
        form = form + Affine.of(target).scale(step)
    return form


def _renamed(
    nest: LoopNest, reader: LoopNest, statements: ir.Block, places: _Places, result: Node
) -> LoopNest | None:
    """One nest of both: values and buffers of the second are numbered after those of the first."""
    product = nest.kernel
    assert isinstance(product, ir.Contraction)
    store = product.body[-1]
    assert isinstance(store, ir.Store)
    owners = dict.fromkeys(
        (
            *(o for o in nest.owners if o is not result),
            *(o for o in reader.owners if o is not result),
        )
    )
    numbers = {owner: k for k, owner in enumerate(owners)}
    first = {k: numbers[o] for k, o in enumerate(nest.owners) if o is not result}
    second = {k: numbers[o] for k, o in enumerate(reader.owners) if o is not result}
    read = reader.owners.index(result)
    shift = 1 + max(
        (s.result for s in product.body if not isinstance(s, ir.Store | ir.Loop)), default=0
    )
    values = {
        s.result: store.value for s in statements if isinstance(s, ir.Load) and s.buffer == read
    }
    body: list[ir.Statement] = [ir.with_buffers(s, first) for s in product.body[:-1]]
    for statement in statements:
        if isinstance(statement, ir.Load) and statement.buffer == read:
            continue
        names = {
            v: values.get(v, v + shift) for v in (*ir.uses_of(statement), *ir.results_of(statement))
        }
        moved = [_moved(index, places, product.columns) for index in ir.indices_of(statement)]
        if None in moved:
            return None
        changed = ir.renamed(statement, names)
        if moved:
            (changed,) = ir.with_indices((changed,), lambda _, to=moved[0]: to)  # type: ignore[misc]
        body.append(ir.with_buffers(changed, second))
    kernel = replace(
        product,
        buffers=tuple(_known(owner) for owner in owners),
        left=ir.factor_with_buffers(product.left, first),
        right=ir.factor_with_buffers(product.right, first),
        body=tuple(body),
    )
    return LoopNest(kernel, tuple(owners))
