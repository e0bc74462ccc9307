"""native.schedule.order: in which order the kernels and calls of a graph run.

In: Storage. Out: Schedule, all that the loops and the plan are made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import final

from argand.native.ir.affine import Var
from argand.native.ir.tensor import Node, topological
from argand.native.ir.types import DType
from argand.native.schedule.demand import Demand
from argand.native.schedule.groups import Group
from argand.native.schedule.storage import Storage
from argand.support.dataclass import dataclass


@final
@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Groups in running order; externs and assembled values are groups without members."""

    demand: Demand
    extents: Mapping[Var, int]
    group_of: Mapping[Node, Group]
    order: tuple[Group, ...]
    in_memory: frozenset[Node]
    decisions: tuple[str, ...]
    flag: Node = field(default_factory=lambda: Node("flag", (), (), DType.I64))


def order_groups(storage: Storage) -> Schedule:
    """Groups so that each runs after what it reads and waits for; ties in program order."""
    fusion = storage.fusion
    needs = fusion.needs()
    for group, earlier in storage.waits.items():
        needs[group].extend(earlier)
    groups = (fusion.group_of[node] for node in fusion.demand.nodes if node in fusion.group_of)
    order = topological(groups, needs.__getitem__)
    return Schedule(
        demand=fusion.demand,
        extents=fusion.extents,
        group_of=fusion.group_of,
        order=order,
        in_memory=storage.in_memory,
        decisions=fusion.decisions,
    )
