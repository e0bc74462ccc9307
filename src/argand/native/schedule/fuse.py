"""native.schedule.fuse: which nodes share a kernel, and which values get memory.

In: Demand. Out: Schedule: groups in running order, the set of nodes in memory, and the decisions with
their reasons. One node per group is always legal, so this never fails.

Nodes are visited producers first; each starts a group of its own and then tries to pull the groups of
what it reads into it. Two groups merge when the loops match one to one through the views between
them, when rows stay rows, and when no path leaves the new group and comes back.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import final

from argand.native.ir.affine import Affine, NotAffine
from argand.native.ir.tensor import OPS, Kind, Node, topological
from argand.native.ir.types import DType, numel
from argand.native.schedule.demand import COMPUTED, Demand
from argand.native.schedule.groups import Extents, Group, unify, variables_of
from argand.native.schedule.mapping import Coordinates, broadcast_coordinates, through_views
from argand.native.schedule.strides import source_of, strided
from argand.support.options import Options

SMALL_OUTER = 16  # rows below which a row kernel cannot keep the threads busy
LARGE_INNER = 32768  # elements from which a row is worth its own parallel kernel
NEAR = 4  # groups that only one of two kernels side by side may wait for: more would keep memory alive
READING = 30  # cost up to which kernels side by side gain from reading once: dearer ones wait for themselves
CHEAP = 6  # cost up to which a value is computed again instead of stored


@final
@dataclass(slots=True, eq=False)
class Schedule:
    """Groups in running order; externs and regions are groups without members."""

    demand: Demand
    extents: Extents = field(default_factory=Extents)
    group_of: dict[Node, Group] = field(default_factory=dict)
    order: tuple[Group, ...] = ()
    in_memory: set[Node] = field(default_factory=set)
    flag: Node = field(default_factory=lambda: Node("flag", (), (), DType.I64))
    decisions: list[str] = field(default_factory=list)


def reads(
    demand: Demand, node: Node, coordinates: Coordinates, operand: Coordinates | None
) -> list[tuple[Node, Coordinates]]:
    """The inputs a computed node pulls from, each with the place it is read at."""
    inputs = demand.inputs(node)
    if node.kind is Kind.REDUCE:
        assert operand is not None
        return [(inputs[0], operand)]
    listed = inputs[1:] if node.kind is Kind.GATHER else inputs
    return [(i, broadcast_coordinates(coordinates, i.shape)) for i in listed]


def fuse(demand: Demand, options: Options) -> Schedule:
    """Group the computed nodes into kernels."""
    fuser = _Fuser(demand, options)
    for node in demand.nodes:
        fuser.visit(node)
    if options.fusion:
        fuser.fuse_beside()
    fuser.choose_memory()
    fuser.settle_writes()
    fuser.schedule.order = fuser.running_order()
    return fuser.schedule


def _reshaped(node: Node) -> bool:
    while node.kind is Kind.VIEW:
        if node.op == "reshape":
            return True
        node = node.inputs[0]
    return False


@final
class _Fuser:
    def __init__(self, demand: Demand, options: Options) -> None:
        self.demand, self.options = demand, options
        self.schedule = Schedule(demand)
        self.extents = self.schedule.extents
        self.group_of = self.schedule.group_of
        self.groups: list[Group] = []
        self.waits: dict[Group, list[Group]] = {}  # what must run before a group for another reason than its reads
        self.made = 0  # groups ever made: each has a bit of its own
        self.pinned: set[Node] = set()  # must be in memory: read through a reshape of no affine form

    def sources(self, node: Node) -> list[Node]:
        """What must be computed before a node, views looked through."""
        return [source_of(need) for need in self.demand.needs(node)]

    def visit(self, node: Node) -> None:
        if node.kind in (Kind.LEAF, Kind.VIEW):
            return
        if node.op == "item":
            self.group_of[node] = self.group_of[node.inputs[0]]
            return
        group = Group(1 << self.made)
        self.made += 1
        self.groups.append(group)
        self.group_of[node] = group
        for source in self.sources(node):
            if source in self.group_of:
                earlier = self.group_of[source]
                group.before |= earlier.bit | earlier.before
        if node.kind in COMPUTED:
            self._start(group, node)
            self._split_for_reshapes(group, node)
            if self.options.fusion:
                self._absorb(group, node)

    def _start(self, group: Group, node: Node) -> None:
        shape = node.inputs[0].shape if node.kind is Kind.REDUCE else node.shape
        forms = tuple(Affine() if size == 1 else Affine.of(self.extents.fresh(size)) for size in shape)
        group.variables = variables_of(forms)
        group.cost = OPS[node.op].cost
        if node.kind is Kind.REDUCE:
            dims: tuple[int, ...] = node.attribute  # type: ignore[assignment]
            kept = tuple(form for d, form in enumerate(forms) if d not in dims)
            group.members[node] = kept
            group.operands[node] = forms
            group.outer = variables_of(kept)
        else:
            group.members[node] = forms

    def _split_for_reshapes(self, group: Group, node: Node) -> None:
        """Cut loops so that reshapes of values without a strided form can be looked through."""
        for value, _ in reads(self.demand, node, group.members[node], group.operands.get(node)):
            if strided(value, self.demand.strides) is None:
                self._use(group, node, value)

    def _absorb(self, group: Group, node: Node) -> None:
        tried: set[Group] = set()
        listed = reads(self.demand, node, group.members[node], group.operands.get(node))
        for value, _ in sorted(listed, key=lambda item: -numel(item[0].shape)):
            source = source_of(value)
            producer = self.group_of.get(source)
            if source.kind not in COMPUTED or producer is None or producer is group:
                continue
            if producer in tried:
                continue
            tried.add(producer)
            reason = self._merge(group, node, producer, source, value)
            if reason:
                self.schedule.decisions.append(f"keep {source.op} apart from {node.op}: {reason}")

    def _merge(self, group: Group, node: Node, producer: Group, source: Node, value: Node) -> str:
        """Pull a producer's group into ``group``; the reason when that cannot be."""
        if len(group.members) + len(producer.members) > self.options.max_fusion:
            return "the kernel would pass max_fusion ops"
        if self._would_loop(group, producer):
            return "another kernel between them would have to run in the middle"
        user, other = group.copy(), producer.copy()
        use = self._use(user, node, value)
        if use is None:
            return "a reshape between them does not split the loops evenly"
        matched = unify(other, source, user, use, self.extents)
        if matched is None:
            return "the loops do not match one to one"
        binding, _ = matched
        reason = self._join_rows(user, other, binding)
        if reason:
            return reason
        self._name_alike(user, other, binding)
        user.take(other, binding)
        if not self._consistent(user, group, producer):
            return "another use reads it at a different place"
        self._commit(group, producer, user)
        self.schedule.decisions.append(f"fuse {source.op} into {node.op}")
        return ""

    def fuse_beside(self) -> None:
        """Let kernels that read the same elements, and not each other's results, share their loops."""
        readers: dict[Node, list[Node]] = {}
        for node in self.demand.nodes:
            if node.kind in COMPUTED:
                for source in self.sources(node):
                    readers.setdefault(source, []).append(node)
        for source, nodes in readers.items():
            groups = list(dict.fromkeys(self.group_of[node] for node in nodes)) if len(nodes) > 1 else []
            for position, group in enumerate(groups):
                for other in groups[max(0, position - NEAR) : position]:
                    if other in self.groups and source not in (*group.members, *other.members):
                        self._merge_beside(group, other, source)

    def _merge_beside(self, group: Group, other: Group, source: Node) -> None:
        different = (group.before ^ other.before) & ~(group.bit | other.bit)
        if other.before & group.bit or group.before & other.bit or different.bit_count() > NEAR:
            return
        if len(group.members) + len(other.members) > self.options.max_fusion:
            return
        if group.cost + other.cost > READING:
            return
        one, two = group.copy(), other.copy()
        here, there = self._place(one, source), self._place(two, source)
        if here is None or there is None or (one.outer is None) != (two.outer is None):
            return
        two.members[source] = there
        matched = unify(two, source, one, here, self.extents)
        del two.members[source]
        if matched is None or self._join_rows(one, two, matched[0]):
            return
        self._name_alike(one, two, matched[0])
        one.take(two, matched[0])
        ops = (next(reversed(g.members)).op for g in (other, group))
        self.schedule.decisions.append(f"fuse {' beside '.join(ops)}: both read {source.op} of {source.shape}")
        self._commit(group, other, one)

    def _place(self, group: Group, source: Node) -> Coordinates | None:
        """Where a group first reads a value."""
        for node in group.members:
            for value, at in reads(self.demand, node, group.members[node], group.operands.get(node)):
                if source_of(value) is source:
                    with contextlib.suppress(NotAffine):
                        return through_views(value, at, self.extents)[1]
        return None

    def _use(self, user: Group, node: Node, value: Node) -> Coordinates | None:
        for _ in range(16):
            listed = reads(self.demand, node, user.members[node], user.operands.get(node))
            at = next(c for v, c in listed if v is value)
            try:
                return through_views(value, at, self.extents)[1]
            except NotAffine as split:
                if split.var < 0 or split.var not in user.variables:
                    return None
                user.split(split.var, split.inner, self.extents)
        return None

    def _join_rows(self, user: Group, other: Group, binding: dict[int, int]) -> str:
        """Decide the rows of the merged group, or say why there are none."""
        bound = frozenset(binding.values())
        needed = other.variables if other.outer is None else other.outer
        if not needed <= binding.keys():
            return "part of the producer's loops is not read"
        if other.outer is None and user.outer is None:
            return "" if bound == user.variables else "the producer is smaller: computed again or stored"
        if other.outer is None:
            assert user.outer is not None
            inner = bound - user.outer
            if not user.outer <= bound or (inner and inner not in user.inner_sets()):
                return "the producer does not run over whole rows"
            return ""
        rows = frozenset(binding[v] for v in other.outer)
        if user.outer is None:
            if self._too_few_rows(rows, user.variables):
                return "too few rows to run the consumer in parallel"
            user.outer = rows
            return ""
        return "" if rows == user.outer else "their rows differ"

    def _name_alike(self, user: Group, other: Group, binding: dict[int, int]) -> None:
        """Give loops over rows of one shape the same variables, so that one loop may serve both groups."""
        if user.outer is None or other.outer is None:
            return
        rows = user.outer
        sets = sorted(sorted(s) for s in {v - rows for v in (*user.inner_sets(), user.variables)})
        for mine in sorted(sorted(inner) for inner in other.inner_sets()):
            if not mine or binding.keys() & set(mine):
                continue
            sizes = [self.extents[v] for v in mine]
            same = [s for s in sets if [self.extents[v] for v in s] == sizes and not set(s) & set(binding.values())]
            if same:
                binding.update(zip(mine, same[0], strict=True))

    def _too_few_rows(self, rows: frozenset[int], variables: frozenset[int]) -> bool:
        outer, whole = (math.prod(self.extents[var] for var in part) for part in (variables & rows, variables))
        return outer < SMALL_OUTER and whole >= LARGE_INNER

    def _would_loop(self, group: Group, producer: Group) -> bool:
        """Whether some path leaves the two groups and comes back: it could run neither way."""
        if any(self.demand.after.get(member) in producer.members for member in group.members):
            return True
        both = group.bit | producer.bit
        for member in (*group.members, *producer.members):
            for source in self.sources(member):
                other = self.group_of.get(source)
                if other is None or other is group or other is producer:
                    continue
                if other.before & both:
                    return True
        return False

    def _consistent(self, merged: Group, group: Group, producer: Group) -> bool:
        for member in merged.members:
            gathers = member.kind is Kind.GATHER  # looks up memory that must be complete
            if gathers and source_of(self.demand.inputs(member)[0]) in merged.members:
                return False
        for member in group.members:
            listed = reads(self.demand, member, merged.members[member], merged.operands.get(member))
            for value, at in listed:
                if source_of(value) not in producer.members:
                    continue
                try:
                    source, place = through_views(value, at, self.extents)
                except NotAffine:
                    return False
                if place != merged.members[source]:
                    return False
        return True

    def _commit(self, group: Group, producer: Group, merged: Group) -> None:
        group.members, group.operands = merged.members, merged.operands
        group.outer, group.variables = merged.outer, merged.variables
        group.cost += producer.cost
        group.before = (group.before | producer.before) & ~(group.bit | producer.bit)
        for node, owner in list(self.group_of.items()):
            if owner is producer:
                self.group_of[node] = group
        both = group.bit | producer.bit
        for other in self.groups:
            if other.before & both and other is not group:
                other.before |= group.bit | group.before
        self.groups.remove(producer)

    def choose_memory(self) -> None:
        """Users first: a value read from outside its group is stored, or computed again if cheap."""
        schedule, demand = self.schedule, self.demand
        outside: set[Node] = set()  # read by a kernel other than their own
        for node in reversed(demand.nodes):
            if node.kind not in COMPUTED:
                continue
            stored = node in demand.required or node in self.pinned
            if not stored and node in outside:
                stored = not self._computed_again(node)
            if stored:
                schedule.in_memory.add(node)
            self._mark_reads(node, node in outside and not stored, outside)

    def _mark_reads(self, node: Node, again: bool, outside: set[Node]) -> None:
        group = self.group_of[node]
        listed = reads(self.demand, node, group.members[node], group.operands.get(node))
        for value, at in listed:
            source = source_of(value)
            if source.kind not in COMPUTED:
                continue
            place: Coordinates | None = None
            try:
                place = through_views(value, at, self.extents)[1]
            except NotAffine:
                self.pinned.add(source)
            if again and _reshaped(value):
                self.pinned.add(source)  # other kernels may read it where the loops do not split
            if again or self.group_of[source] is not group or place != group.members[source]:
                outside.add(source)

    def _computed_again(self, node: Node) -> bool:
        """Cheap enough to compute in every kernel that reads it."""
        if node.kind is not Kind.POINTWISE:
            return False
        cost, wide = 0, 0
        stack, seen = [node], set()
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            if current.kind is not Kind.POINTWISE or current in self.demand.required:
                memory = current.op not in ("constant", "iota", "size")
                wide += memory and numel(current.shape) * 2 > numel(node.shape)
                continue
            cost += OPS[current.op].cost
            if cost > CHEAP:
                return False
            stack.extend(source_of(i) for i in self.demand.inputs(current))
        return wide <= 1

    def settle_writes(self) -> None:
        """Let kernels write into inputs where nothing reads the old value, or may fail, later on."""
        demand, decisions = self.demand, self.schedule.decisions
        users: dict[Node, list[Node]] = {}
        for node in self.group_of:
            for source in self.sources(node):
                users.setdefault(source, []).append(node)
        calls = {group for node, group in self.group_of.items() if node.op == "extern"}
        kept = set(demand.writes.values())
        returned = {source_of(r) for k, r in enumerate(demand.outputs) if isinstance(r, Node) and k not in kept}
        for copy in list(demand.writes):
            target = demand.regions[copy].owner
            first = self._readers(target, users) | calls
            first.discard(self.group_of[copy])
            reason = "a result is its old value" if target in returned else self._wait(self.group_of[copy], first)
            if reason:
                decisions.append(demand.write_aside(copy, reason))
            else:
                decisions.append(f"write input {target.attribute} in place")

    def _readers(self, target: Node, users: dict[Node, list[Node]]) -> set[Group]:
        """The groups that read an input, also where they compute again what another group reads it for."""
        found: set[Group] = set()
        seen, stack = set(), [target]
        while stack:
            for user in users.get(stack.pop(), ()):
                found.add(self.group_of[user])
                if user.kind in COMPUTED and user not in self.schedule.in_memory and user not in seen:
                    seen.add(user)
                    stack.append(user)
        return found

    def _wait(self, group: Group, first: set[Group]) -> str:
        """Make a group run after others; the reason when that cannot be."""
        if any(other.before & group.bit for other in first):
            return "a later kernel reads the old value, or calls torch and may fail"
        for other in first:
            group.before |= other.bit | other.before
        for other in self.groups:
            if other.before & group.bit:
                other.before |= group.before
        self.waits.setdefault(group, []).extend(sorted(first, key=lambda other: other.bit))
        return ""

    def running_order(self) -> tuple[Group, ...]:
        """Groups so that each runs after what it reads; ties in program order."""
        needs: dict[Group, list[Group]] = {group: [] for group in self.groups}
        for node in self.demand.nodes:
            group = self.group_of.get(node)
            if group is None:
                continue
            for source in self.sources(node):
                other = self.group_of.get(source)
                if other is not None and other is not group:
                    needs[group].append(other)
        for group, earlier in self.waits.items():
            needs[group].extend(earlier)
        groups = (self.group_of[node] for node in self.demand.nodes if node in self.group_of)
        return topological(groups, needs.__getitem__)
