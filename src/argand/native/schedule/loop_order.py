"""native.schedule.loop_order: order, merge and nest the loops of a kernel, and pick its vector loop.

In: statements by place (row or loop, with their depth). Out: Kernel. Memory that a store or load walks
with stride one should lie under the innermost loop; neighbours that are one long run become one loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine, Var
from argand.native.ir.types import DType, at_least, divides
from argand.native.schedule.groups import Group, Variables
from argand.native.target import Limits
from argand.sizes.expressions import SizeInt
from argand.support.dataclass import replace

RowSite: TypeAlias = tuple[int, ir.Block]
LoopSite: TypeAlias = tuple[int, Variables, ir.Block]
UNITS: Final = 8  # pieces of work that must be left for the threads
FEW_ROWS: Final = 16  # up to so many, sums in registers are better
Scratch: TypeAlias = tuple[tuple[DType, int], ...]


def arrange(
    buffers: tuple[DType, ...],
    group: Group,
    extents: Mapping[Var, int],
    rows: Sequence[RowSite],
    sites: Sequence[LoopSite],
    scratch: Scratch,
    limits: Limits,
) -> ir.Kernel:
    """The kernel of these statements."""
    sizes = dict(extents)
    if group.outer is None and sites:
        return _pointwise(buffers, sizes, sites[0], limits.strip)
    outer = _ordered(group.outer or frozenset(), [*_blocks(rows), *_blocks(sites)])
    blocks = [*_blocks(rows), *_blocks(sites)]
    vector = _outer_vector(outer, sites, sizes)
    if vector is not None:
        outer = [*(v for v in outer if v != vector), vector]
    outer, dropped = coalesce(outer, blocks, sizes, keep=vector)
    rows = [(depth, _drop(block, dropped)) for depth, block in rows]
    sites = [(depth, inner, _drop(block, dropped)) for depth, inner, block in sites]
    if (
        vector is not None
        and not scratch
        and _sums_rows(vector, outer, sites, sizes, limits.panel_bytes)
    ):
        return _column_sums(buffers, vector, outer, rows, sites[0], sizes)
    depths = sorted({depth for depth, *_ in (*rows, *sites)})
    body: list[ir.Statement] = []
    for depth in depths:
        for at, block in rows:
            if at == depth:
                body.extend(block)
        for at, inner, block in sites:
            if at == depth:
                body.extend(_loops(inner, block, sizes, vectorize=vector is None))
    return ir.Kernel(buffers, tuple((v, sizes[v]) for v in outer), tuple(body), vector, scratch)


def _sums_rows(
    vector: Var,
    outer: Sequence[Var],
    sites: Sequence[LoopSite],
    sizes: Mapping[Var, int],
    panel_bytes: int,
) -> bool:
    """Whether the kernel is plain sums of many rows, in pieces that keep the threads busy.

    What it stores besides lies along the columns as what it reads: down a column each row would be a page of its own.
    """
    if len(sites) != 1 or type(sizes[vector]) is not int:
        return False
    _, inner, block = sites[0]
    found = [s for s in block if isinstance(s, ir.Accumulate)]
    plain = all(s.op == "sum" and s.dtype.is_float for s in found)
    stores = [s for s in block if isinstance(s, ir.Store)]
    if not found or not plain or any(s.index.coefficient(vector) != 1 for s in stores):
        return False
    rows, units = (math.prod(sizes[v] for v in part) for part in (inner, outer))
    fits = sizes[vector] * 8 * len(found) <= panel_bytes
    return fits and at_least(rows, FEW_ROWS) and at_least(units // sizes[vector], UNITS)


def _column_sums(
    buffers: tuple[DType, ...],
    vector: Var,
    outer: Sequence[Var],
    rows: Sequence[RowSite],
    site: LoopSite,
    sizes: Mapping[Var, int],
) -> ir.Kernel:
    """Read row after row, with the sums of all columns on the stack."""
    column = Affine.of(vector)
    before, after = (
        tuple(s for at, block in rows if bool(at) == late for s in block) for late in (False, True)
    )
    fresh = 1 + max(
        s.result for s in (*site[2], *before, *after) if not isinstance(s, ir.Store | ir.Loop)
    )
    start: list[ir.Statement] = []
    inside: list[ir.Statement] = list(before)
    # What a column needs before its rows and after them is computed twice, under two names.
    again, names, fresh = _renumbered(before, fresh)
    end: list[ir.Statement] = list(again)
    scratch: list[tuple[DType, int]] = []
    for statement in site[2]:
        if not isinstance(statement, ir.Accumulate):
            inside.append(statement)
            continue
        dtype = DType.F32 if statement.dtype.is_half else statement.dtype
        scratch.append((dtype, sizes[vector]))
        place, zero, old, new = -len(scratch), fresh, fresh + 1, fresh + 2
        fresh += 3
        start += [ir.Literal(zero, dtype, 0.0), ir.Store(dtype, place, column, zero)]
        inside += [ir.Load(old, dtype, place, column)]
        inside += [ir.Compute(new, dtype, "add", (old, statement.value), dtype)]
        inside += [ir.Store(dtype, place, column, new)]
        end.append(ir.Load(statement.result, dtype, place, column))
    inner = _ordered(site[1], [tuple(inside)])
    body = (
        *_nest([vector], tuple(start), sizes, vectorize=True),
        *_nest([*inner, vector], tuple(inside), sizes, vectorize=True),
        *_nest([vector], (*end, *(ir.renamed(s, names) for s in after)), sizes, vectorize=True),
    )
    places = tuple((v, sizes[v]) for v in outer if v != vector)
    return ir.Kernel(buffers, places, body, None, tuple(scratch))


def _renumbered(block: ir.Block, fresh: int) -> tuple[ir.Block, dict[ir.ValueId, ir.ValueId], int]:
    """The block with new names for its values, what they are called now, and the next free name."""
    results = [s.result for s in block if not isinstance(s, ir.Store | ir.Loop)]
    names = {old: fresh + k for k, old in enumerate(results)}
    return tuple(ir.renamed(s, names) for s in block), names, fresh + len(names)


def _pointwise(
    buffers: tuple[DType, ...], sizes: dict[Var, int], site: LoopSite, strip: int
) -> ir.Kernel:
    """All loops are free: the contiguous one runs inside, the others are the rows."""
    _, variables, block = site
    order, dropped = coalesce(_ordered(variables, [block]), [block], sizes)
    block = _drop(block, dropped)
    best = _most_contiguous(order, [block])
    order = [*(v for v in order if v != best), best]
    whole = strip > 0 and (divides(strip, sizes[best]) or isinstance(sizes[best], SizeInt))
    if whole and _crosses(best, order, block) and sizes[best] > strip:
        return _tiled(buffers, order, block, sizes, strip)
    body = _nest([best], block, sizes, vectorize=True)
    return ir.Kernel(buffers, tuple((v, sizes[v]) for v in order[:-1]), body)


def _crosses(best: Var, order: Sequence[Var], block: ir.Block) -> bool:
    """Whether some memory is walked across its contiguous direction: a transpose."""
    return any(
        abs(index.coefficient(best)) > 1 and any(index.coefficient(v) == 1 for v in order)
        for index, _ in _memory([block])
    )


def _tiled(
    buffers: tuple[DType, ...],
    order: list[Var],
    block: ir.Block,
    sizes: dict[Var, int],
    length: int,
) -> ir.Kernel:
    """Run over strips of few elements, so that the cache lines of a strip serve the next rows."""
    *rest, best = order
    strip = max(sizes) + 1
    values = {best: Affine.of(strip).scale(length) + Affine.of(best)}
    cut = ir.with_indices(block, functools.partial(Affine.substitute, values=values))
    outer = [*rest[:-1], strip, *rest[-1:]]
    size = sizes[best]
    sizes = {**sizes, strip: -(-size // length), best: length}
    body = _nest([best], cut, sizes, vectorize=True)
    if not divides(length, size) and isinstance(body[-1], ir.Loop):
        left = Affine.of(strip).scale(-length).shift(size)
        body = (*body[:-1], replace(body[-1], limit=left))
    return ir.Kernel(buffers, tuple((v, sizes[v]) for v in outer), body)


def _blocks(places: Iterable[RowSite | LoopSite]) -> list[ir.Block]:
    return [place[-1] for place in places]


def _memory(blocks: Iterable[ir.Block]) -> list[tuple[Affine, int]]:
    """Indices into memory with a weight: stores count double, scattered reads nothing."""
    found: list[tuple[Affine, int]] = []
    for block in blocks:
        for statement in block:
            if isinstance(statement, ir.Store):
                found.append((statement.index, 2))
            elif isinstance(statement, ir.Load) and not statement.indirect:
                found.append((statement.index, 1))
    return found


def _ordered(variables: Variables, blocks: Sequence[ir.Block]) -> list[Var]:
    """Largest strides first, judged by the stores, then by the loads."""
    indices = sorted(_memory(blocks), key=lambda item: -item[1])

    def steps(var: Var) -> tuple[int, ...]:
        return tuple(-abs(index.coefficient(var)) for index, _ in indices)

    return sorted(sorted(variables), key=steps)


def _score(var: Var, memory: Sequence[tuple[Affine, int]]) -> int:
    return sum(weight for index, weight in memory if abs(index.coefficient(var)) == 1)


def _most_contiguous(order: Sequence[Var], blocks: Sequence[ir.Block]) -> Var:
    memory = _memory(blocks)
    return max(order, key=lambda var: (_score(var, memory), order.index(var)))


def _outer_vector(
    outer: Sequence[Var], sites: Sequence[LoopSite], sizes: Mapping[Var, int]
) -> Var | None:
    """An outer variable to vectorize over, when memory runs along it and not along the rows."""
    if not outer or not sites:
        return None
    blocks = _blocks(sites)
    memory = _memory(blocks)
    best = _most_contiguous(outer, blocks)
    inner = {v for _, variables, _ in sites for v in variables}
    along_rows = max((_score(v, memory) for v in inner), default=0)
    return best if _score(best, memory) > along_rows and sizes[best] >= 4 else None


def coalesce(
    order: list[Var], blocks: Sequence[ir.Block], sizes: dict[Var, int], keep: Var | None = None
) -> tuple[list[Var], frozenset[Var]]:
    """Merge neighbouring loops that every index walks as one; gives the order and what vanished."""
    forms = [form for block in blocks for s in block for form in ir.indices_of(s)]
    result: list[Var] = []
    dropped: set[Var] = set()
    for var in reversed(order):
        inside = result[0] if result else None
        if (
            inside is not None
            and inside != keep
            and all(f.coefficient(var) == f.coefficient(inside) * sizes[inside] for f in forms)
        ):
            sizes[inside] *= sizes[var]
            dropped.add(var)
        else:
            result.insert(0, var)
    return result, frozenset(dropped)


def _drop(block: ir.Block, dropped: frozenset[Var]) -> ir.Block:
    def clean(form: Affine) -> Affine:
        return Affine(form.constant, tuple(t for t in form.terms if t[0] not in dropped))

    return ir.with_indices(block, clean) if dropped else block


def _loops(inner: Variables, block: ir.Block, sizes: dict[Var, int], vectorize: bool) -> ir.Block:
    order = _ordered(inner, [block])
    local = dict(sizes)
    order, dropped = coalesce(order, [block], local)
    block = _drop(block, dropped)
    if vectorize:
        best = _most_contiguous(order, [block])
        order = [*(v for v in order if v != best), best]
    return _nest(order, block, local, vectorize)


def _nest(
    order: Sequence[Var], block: ir.Block, sizes: Mapping[Var, int], vectorize: bool
) -> ir.Block:
    """Nested loops; a statement goes to the outermost loop that has all it depends on."""
    level_of: dict[int, int] = {}
    levels: list[list[ir.Statement]] = [[] for _ in range(len(order) + 1)]
    position = {var: k + 1 for k, var in enumerate(order)}
    for statement in block:
        level = max(
            (position.get(v, 0) for form in ir.indices_of(statement) for v, _ in form.terms),
            default=0,
        )
        level = max([level, *(level_of.get(v, 0) for v in ir.uses_of(statement))])
        if isinstance(statement, ir.Store | ir.Accumulate):
            level = len(order)
        else:
            level_of[statement.result] = level  # type: ignore[union-attr]
        levels[level].append(statement)
    body: ir.Block = tuple(levels[-1])
    for k in range(len(order) - 1, -1, -1):
        vector = vectorize and k == len(order) - 1
        loop = ir.Loop(order[k], sizes[order[k]], body, vector)
        body = (*levels[k], loop)
    return body
