"""native.schedule.verify: the rules of what the scheduler makes (D, F, M, S and N of docs/ir.md).

In: Demand, Fusion, Storage, Schedule or LoopNests. Out: the first broken rule, or None.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine, NotAffine, Var, span
from argand.native.ir.faults import Fault
from argand.native.ir.strides import source_of, strided
from argand.native.ir.tensor import Node, NodeKind, in_running_order
from argand.native.ir.types import Shape
from argand.native.ir.verify_loops import verify_kernel
from argand.native.schedule.demand import COMPUTED, Demand
from argand.native.schedule.groups import Fusion, Group, variables_of
from argand.native.schedule.mapping import Coordinates, reads, through_views
from argand.native.schedule.nest import LoopNest, LoopNests
from argand.native.schedule.order import Schedule
from argand.native.schedule.storage import Storage


def _first(checks: Iterable[Callable[[], Fault | None]]) -> Fault | None:
    return next((fault for check in checks if (fault := check()) is not None), None)


def _outside(forms: Sequence[Affine], shape: Shape, extents: Mapping[Var, int]) -> str:
    """What is wrong with forms that should count inside of a shape, one per dimension; empty: nothing."""
    if len(forms) != len(shape):
        return f"{len(forms)} forms for {len(shape)} dimensions"
    if any(v not in extents for form in forms for v in form.variables()):
        return f"{[*map(str, forms)]} uses a loop that is not there"
    if 0 in shape or 0 in extents.values():
        return ""
    for form, size in zip(forms, shape, strict=True):
        low, high = span(form, extents)
        if low < 0 or high >= size:
            return f"{form} leaves a dimension of {size}"
    return ""


# --- what must be in memory ------------------------------------------------------------------


def verify_demand(demand: Demand) -> Fault | None:
    """The first broken rule of a demand."""
    seen: set[Node] = set()
    for number, node in enumerate(demand.nodes):
        fault = _demand_fault(demand, node, seen)
        if fault is not None:
            return Fault(fault.rule, f"%{number} {node.op}: {fault.what}", number)
        seen.add(node)
    for number, output in enumerate(demand.outputs):
        if isinstance(output, Node) and not _readable(demand, output):
            return Fault("D3", f"result {number} is in no memory", len(demand.nodes))
    for copy, position in demand.writes.items():
        target = demand.destinations[copy].owner if copy in demand.destinations else None
        if target is None or target.op != "input" or demand.outputs[position] is not target:
            return Fault(
                "D5", f"result {position} is not the input it is written into", len(demand.nodes)
            )
    for earlier, later in itertools.pairwise(in_running_order(demand.graph.effects)):
        if demand.after.get(later) is not earlier:
            return Fault(
                "D6", "an effect does not wait for the one before it", demand.nodes.index(later)
            )
    return None


def _demand_fault(demand: Demand, node: Node, seen: set[Node]) -> Fault | None:
    if any(need not in seen for need in demand.needs(node)):
        return Fault("D1", "used before it is defined")
    layout = demand.layouts.get(node)
    if layout is not None and len(layout) != len(node.shape):
        return Fault("D2", f"strides {layout} for {node.shape}")
    wanted: tuple[Node, ...] = ()
    if node.op == "extern":
        wanted = demand.inputs(node)
    elif node.op == "gather":
        wanted = demand.inputs(node)[:1]
    for value in wanted:
        if not _readable(demand, value):
            return Fault("D3", f"reads {value.op} of {value.shape}, which is in no memory")
    if node in demand.destinations:
        destination = demand.destinations[node]
        if what := _outside(
            destination.forms, destination.owner.shape, dict(enumerate(node.shape))
        ):
            return Fault("D4", what)
    return None


def _readable(demand: Demand, node: Node) -> bool:
    """Whether a value is a strided piece of memory that somebody fills."""
    place = strided(node, demand.strides)
    return place is not None and (place.leaf.kind not in COMPUTED or place.leaf in demand.required)


# --- groups ----------------------------------------------------------------------------------


def verify_fusion(fusion: Fusion) -> Fault | None:
    """The first broken rule of a fusion."""
    demand, known = fusion.demand, set(fusion.groups)
    for number, node in enumerate(demand.nodes):
        group = fusion.group_of.get(node)
        if node.kind in (NodeKind.LEAF, NodeKind.VIEW):
            continue
        if (
            group is None
            or group not in known
            or (node.kind in COMPUTED) != (node in group.members)
        ):
            return Fault("F1", f"%{number} {node.op} is not in its group")
    for number, group in enumerate(fusion.groups):
        for node in group.members:
            if fusion.group_of.get(node) is not group:
                return Fault("F1", f"group {number} has a member of another group, {node.op}")
            fault = _member_fault(fusion, group, node)
            if fault is not None:
                return Fault(fault.rule, f"group {number}, {node.op} of {node.shape}: {fault.what}")
    return _cycle_fault(fusion.needs(), fusion.groups)


def _member_fault(fusion: Fusion, group: Group, node: Node) -> Fault | None:
    extents = {v: fusion.extents[v] for v in group.variables}
    at = group.members[node]
    if what := _outside(at, node.shape, extents):
        return Fault("F2", what)
    if node.kind is NodeKind.REDUCE:
        operand = group.operands.get(node)
        below = fusion.demand.inputs(node)[0].shape
        if operand is None or (what := _outside(operand, below, extents)):
            return Fault(
                "F2", "the reduction has no place it reads at" if operand is None else what
            )
    if group.outer is None and (
        node.kind is NodeKind.REDUCE or variables_of(at) != group.variables
    ):
        return Fault("F3", "it does not run over all loops, and there are no rows")
    if group.outer is not None:
        if not group.outer <= group.variables:
            return Fault("F3", "a row is no loop of the group")
        if node.kind is NodeKind.REDUCE and not variables_of(at) <= group.outer:
            return Fault("F3", "a reduction gives one value per row")
    if node.kind is NodeKind.GATHER and source_of(fusion.demand.inputs(node)[0]) in group.members:
        return Fault("F4", "its source is computed in the same loops")
    return None


def _cycle_fault(needs: Mapping[Group, Sequence[Group]], groups: Sequence[Group]) -> Fault | None:
    """Take away groups that wait for nothing until none is left."""
    left = {group: set(needs[group]) for group in groups}
    while left:
        ready = [group for group, earlier in left.items() if not earlier & left.keys()]
        if not ready:
            stuck = ", ".join(str(groups.index(group)) for group in left)
            return Fault("F5", f"groups {stuck} wait for each other")
        for group in ready:
            del left[group]
    return None


# --- memory and order ------------------------------------------------------------------------


def verify_storage(storage: Storage) -> Fault | None:
    """The first broken rule of what is stored."""
    fusion = storage.fusion
    for number, node in enumerate(fusion.demand.nodes):
        if node in fusion.demand.required and node not in storage.in_memory:
            return Fault("M1", f"%{number} {node.op} must be in memory and is not")
        if node in storage.in_memory and node.kind not in COMPUTED:
            return Fault("M1", f"%{number} {node.op} is not computed by a kernel")
        if node.kind not in COMPUTED:
            continue
        group = fusion.group_of[node]
        for source, at in _sources_at(fusion, group, node):
            own = fusion.group_of[source] is group and at == group.members[source]
            if (
                not own
                and source not in storage.in_memory
                and source.kind is not NodeKind.POINTWISE
            ):
                return Fault(
                    "M2",
                    f"%{number} {node.op} reads a {source.op} that is neither stored nor cheap",
                )
    fault = verify_fusion(fusion)
    needs: dict[Group, list[Group]] = fusion.needs()
    for group, earlier in storage.waits.items():
        needs[group].extend(earlier)
    return fault or _cycle_fault(needs, fusion.groups)


def _sources_at(
    fusion: Fusion, group: Group, node: Node
) -> Iterator[tuple[Node, Coordinates | None]]:
    """The computed values a member reads, with the place (None: no affine form)."""
    for value, at in reads(fusion.demand, node, group.members[node], group.operands.get(node)):
        source = source_of(value)
        if source.kind in COMPUTED:
            try:
                yield source, through_views(value, at, fusion.extents)[1]
            except NotAffine:
                yield source, None


def verify_schedule(schedule: Schedule) -> Fault | None:
    """The first broken rule of an order."""
    demand, group_of = schedule.demand, schedule.group_of
    if len(set(schedule.order)) != len(schedule.order) or set(schedule.order) != set(
        group_of.values()
    ):
        return Fault("S1", "a group runs twice, or never")
    position = {group: k for k, group in enumerate(schedule.order)}
    for number, node in enumerate(demand.nodes):
        if node not in group_of:
            continue
        for need in map(source_of, demand.needs(node)):
            if need in group_of and position[group_of[need]] > position[group_of[node]]:
                return Fault("S2", f"%{number} {node.op} runs before what it reads")
    for copy in demand.writes:
        target, written = demand.destinations[copy].owner, position[group_of[copy]]
        for node, group in group_of.items():
            if position[group] <= written:
                continue
            if node.op == "extern" or target in map(source_of, demand.inputs(node)):
                return Fault("S3", f"{node.op} runs after input {target.attribute} is overwritten")
    return None


# --- loop nests ------------------------------------------------------------------------------


def verify_nests(nests: LoopNests) -> Fault | None:
    """The first broken rule of the loops: those of each kernel, and that memory is not left."""
    line = 0
    for item in nests.work:
        if not isinstance(item, LoopNest):
            line += 1
            continue
        fault = verify_kernel(item.kernel) or _owners_fault(nests.schedule, item)
        if fault is not None:
            return fault._replace(line=-1 if fault.line < 0 else line + 1 + fault.line)
        line += (
            2 + sum(1 for _ in ir.walk(item.kernel.body)) + isinstance(item.kernel, ir.Contraction)
        )
    return None


def _owners_fault(schedule: Schedule, nest: LoopNest) -> Fault | None:
    if len(nest.owners) != len(nest.kernel.buffers):
        return Fault("N1", f"{len(nest.owners)} owners for {len(nest.kernel.buffers)} buffers")
    for owner, dtype in zip(nest.owners, nest.kernel.buffers, strict=True):
        if owner.dtype is not dtype:
            return Fault("N1", f"a buffer of {dtype.value} for {owner.op} of {owner.dtype}")
        if owner.kind in COMPUTED and owner not in schedule.in_memory:
            return Fault("N1", f"{owner.op} is read or written, and not stored")
    if isinstance(nest.kernel, ir.Contraction):
        return _contraction_fault(schedule, nest, nest.kernel)
    return _bounds_fault(schedule, nest, nest.kernel.body, dict(nest.kernel.outer))


def _contraction_fault(schedule: Schedule, nest: LoopNest, product: ir.Contraction) -> Fault | None:
    """Its operands stay inside of their memory, and so do its statements."""
    sizes = dict(enumerate((*product.batch, product.rows, product.columns, product.inner)))
    for factor, across in ((product.left, ir.ROW), (product.right, ir.COLUMN)):
        steps = (
            (0, factor.batch[0]),
            (1, factor.batch[1]),
            (across, factor.across),
            (4, factor.inner),
        )
        index = Affine(factor.offset, tuple((var, step) for var, step in steps if step))
        bits = 8 if factor.quantized is None else factor.quantized.bits
        inner = sizes if bits == 8 else {**sizes, 4: product.inner * bits // 8}
        load = ir.Load(-1, factor.dtype, factor.buffer, index)
        if (
            0 not in sizes.values()
            and (fault := _access_fault(schedule, nest, load, inner)) is not None
        ):
            return fault
    for table in ir.tables_of(product.right):
        groups = {ir.COLUMN: product.columns, 4: product.inner // product.right.quantized.group}  # type: ignore[union-attr]
        terms = tuple(
            (var, step) for var, step in ((ir.COLUMN, table.across), (4, table.along)) if step
        )
        load = ir.Load(-1, table.dtype, table.buffer, Affine(table.offset, terms))
        if (fault := _access_fault(schedule, nest, load, groups)) is not None:
            return fault
    return _bounds_fault(schedule, nest, product.body, sizes)


def _bounds_fault(
    schedule: Schedule, nest: LoopNest, block: ir.Block, extents: dict[Var, int]
) -> Fault | None:
    for statement in block:
        fault = None
        if isinstance(statement, ir.Loop):
            if statement.limit is None:  # a strip ends where a row does: its own limit bounds it
                fault = _bounds_fault(
                    schedule, nest, statement.body, {**extents, statement.var: statement.extent}
                )
        elif isinstance(statement, ir.Load | ir.Store) and 0 not in extents.values():
            fault = _access_fault(schedule, nest, statement, extents)
        if fault is not None:
            return fault
    return None


def _access_fault(
    schedule: Schedule, nest: LoopNest, access: ir.Load | ir.Store, extents: Mapping[Var, int]
) -> Fault | None:
    low, high = span(access.index, extents)
    if access.buffer < 0 and isinstance(nest.kernel, ir.Kernel):
        length = nest.kernel.scratch[-1 - access.buffer][1]
    else:
        owner: Any = nest.owners[access.buffer]
        if owner.op in ("flag", "seed"):
            return None
        strides = schedule.demand.strides(owner) or ()
        length = 1 + sum(
            (size - 1) * abs(stride) for size, stride in zip(owner.shape, strides, strict=True)
        )
    if isinstance(access, ir.Load):
        for _, stride, bound in access.indirect:
            # An index is kept inside of its dimension; without a bound it is a digit of a linear index.
            high += stride * max(bound - 1, 0)
    if low < 0 or high >= length:
        return Fault(
            "N2", f"b{access.buffer}[{access.index}] reaches {low}..{high} of {length} elements"
        )
    return None
