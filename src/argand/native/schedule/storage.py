"""native.schedule.storage: which values get memory.

In: Fusion. Out: Storage: the same groups and the set of computed nodes that are stored. A value that only its
own kernel reads, at its own place, never touches memory; one read from elsewhere is stored, or computed again
in every kernel that reads it where that is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple, final

from argand.native.ir.affine import NotAffine
from argand.native.ir.strides import source_of
from argand.native.ir.tensor import OPS, Node, NodeKind
from argand.native.ir.types import numel
from argand.native.schedule.demand import COMPUTED, Demand
from argand.native.schedule.groups import Fusion, Group
from argand.native.schedule.mapping import Coordinates, reads, through_views
from argand.support.dataclass import dataclass

CHEAP = 6  # cost up to which a value is computed again instead of stored


@final
@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Groups, and which of their members are in memory."""

    fusion: Fusion
    in_memory: frozenset[Node]
    # what must run before, besides its reads
    waits: Mapping[Group, tuple[Group, ...]] = field(default_factory=dict)


def choose_memory(fusion: Fusion) -> Storage:
    """Users first: a value read from outside its group is stored, or computed again if cheap."""
    demand = fusion.demand
    marks = _Marks(set(), set())
    stored: set[Node] = set()
    for node in reversed(demand.nodes):
        if node.kind not in COMPUTED:
            continue
        kept = node in demand.required or node in marks.pinned
        if not kept and node in marks.outside:
            kept = not _computed_again(demand, node)
        if kept:
            stored.add(node)
        _mark_reads(fusion, node, node in marks.outside and not kept, marks)
    return Storage(fusion, frozenset(stored))


class _Marks(NamedTuple):
    outside: set[Node]  # read by a kernel other than their own, or at another place than their own
    pinned: set[Node]  # must be in memory: read through a reshape of no affine form


def _mark_reads(fusion: Fusion, node: Node, again: bool, marks: _Marks) -> None:
    group = fusion.group_of[node]
    for value, at in reads(fusion.demand, node, group.members[node], group.operands.get(node)):
        source = source_of(value)
        if source.kind not in COMPUTED:
            continue
        place: Coordinates | None = None
        try:
            place = through_views(value, at, fusion.extents)[1]
        except NotAffine:
            marks.pinned.add(source)
        if again and _reshaped(value):
            marks.pinned.add(source)  # other kernels may read it where the loops do not split
        if again or fusion.group_of[source] is not group or place != group.members[source]:
            marks.outside.add(source)


def _reshaped(node: Node) -> bool:
    while node.kind is NodeKind.VIEW:
        if node.op == "reshape":
            return True
        node = node.inputs[0]
    return False


def _computed_again(demand: Demand, node: Node) -> bool:
    """Cheap enough to compute in every kernel that reads it."""
    if node.kind is not NodeKind.POINTWISE:
        return False
    cost, wide = 0, 0
    stack, seen = [node], set()
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.kind is not NodeKind.POINTWISE or current in demand.required:
            memory = current.op not in ("constant", "iota", "size")
            wide += memory and numel(current.shape) * 2 > numel(node.shape)
            continue
        cost += OPS[current.op].cost
        if cost > CHEAP:
            return False
        stack.extend(source_of(i) for i in demand.inputs(current))
    return wide <= 1
