"""native.schedule.fuse: which nodes share a kernel.

In: Demand. Out: Fusion: groups of nodes with their loop variables, and the decisions with their reasons.
One node per group is always legal, so this never fails.

Nodes are visited producers first; each starts a group of its own and then tries to pull the groups of
what it reads into it. Two groups merge when the loops match one to one through the views between
them, when rows stay rows, and when no path leaves the new group and comes back. A second round lets
groups share their loops that read the same elements, and not each other's results.
"""

from __future__ import annotations

import contextlib
import math
from typing import final

from argand.native.ir.affine import Affine, NotAffine
from argand.native.ir.strides import source_of, strided
from argand.native.ir.tensor import OPS, Node, NodeKind
from argand.native.ir.types import numel
from argand.native.schedule.demand import COMPUTED, Demand
from argand.native.schedule.groups import Extents, Fusion, Group, split, unify, variables_of
from argand.native.schedule.mapping import Coordinates, reads, through_views
from argand.support.dataclass import dataclass, replace
from argand.support.options import Options

SMALL_OUTER = 16  # rows below which a row kernel cannot keep the threads busy
LARGE_INNER = 32768  # elements from which a row is worth its own parallel kernel
# groups that only one of two kernels side by side may wait for: more would keep memory alive
NEAR = 4
READING = 30  # cost up to which kernels side by side gain from reading once: costlier ones are limited by their own arithmetic


def fuse(demand: Demand, options: Options) -> Fusion:
    """Group the computed nodes into kernels."""
    fuser = _Fuser(demand, options)
    for node in demand.nodes:
        fuser.visit(node)
    if options.fusion:
        fuser.fuse_beside()
    group_of = {node: cluster.group for node, cluster in fuser.cluster_of.items()}
    groups = tuple(cluster.group for cluster in fuser.clusters)
    return Fusion(demand, dict(fuser.extents), groups, group_of, tuple(fuser.decisions))


@final
@dataclass(slots=True, eq=False)
class _Cluster:
    """A group while it grows, and what must run earlier: each cluster ever made has a bit of its own."""

    group: Group
    bit: int
    before: int = 0  # bits of the clusters that must run earlier, those taken over included


@final
class _Fuser:
    def __init__(self, demand: Demand, options: Options) -> None:
        self.demand, self.options = demand, options
        self.extents = Extents()
        self.cluster_of: dict[Node, _Cluster] = {}
        self.clusters: list[_Cluster] = []
        self.decisions: list[str] = []
        self.made = 0  # clusters ever made

    def sources(self, node: Node) -> list[Node]:
        """What must be computed before a node, views looked through."""
        return [source_of(need) for need in self.demand.needs(node)]

    def reads(self, group: Group, node: Node) -> list[tuple[Node, Coordinates]]:
        return reads(self.demand, node, group.members[node], group.operands.get(node))

    def visit(self, node: Node) -> None:
        if node.kind in (NodeKind.LEAF, NodeKind.VIEW):
            return
        if node.op == "item":
            self.cluster_of[node] = self.cluster_of[node.inputs[0]]
            return
        cluster = _Cluster(Group({}, {}), 1 << self.made)
        self.made += 1
        self.clusters.append(cluster)
        self.cluster_of[node] = cluster
        for source in self.sources(node):
            if source in self.cluster_of:
                earlier = self.cluster_of[source]
                cluster.before |= earlier.bit | earlier.before
        if node.kind in COMPUTED:
            cluster.group = self._split_for_reshapes(self._start(node), node)
            if self.options.fusion:
                self._absorb(cluster, node)

    def _start(self, node: Node) -> Group:
        """The group of one node: a loop for each of its dimensions."""
        shape = node.inputs[0].shape if node.kind is NodeKind.REDUCE else node.shape
        forms = tuple(
            Affine() if size == 1 else Affine.of(self.extents.fresh(size)) for size in shape
        )
        variables, cost = variables_of(forms), OPS[node.op].cost
        if node.kind is not NodeKind.REDUCE:
            return Group({node: forms}, {}, None, variables, cost)
        dims: tuple[int, ...] = node.attribute  # type: ignore[assignment]
        kept = tuple(form for d, form in enumerate(forms) if d not in dims)
        return Group({node: kept}, {node: forms}, variables_of(kept), variables, cost)

    def _split_for_reshapes(self, group: Group, node: Node) -> Group:
        """Cut loops so that reshapes of values without a strided form can be looked through."""
        for value, _ in self.reads(group, node):
            if strided(value, self.demand.strides) is None:
                group, _ = self._use(group, node, value)
        return group

    def _absorb(self, cluster: _Cluster, node: Node) -> None:
        tried: set[_Cluster] = set()
        listed = self.reads(cluster.group, node)
        for value, _ in sorted(listed, key=lambda item: -numel(item[0].shape)):
            source = source_of(value)
            producer = self.cluster_of.get(source)
            if source.kind not in COMPUTED or producer is None or producer is cluster:
                continue
            if producer in tried:
                continue
            tried.add(producer)
            reason = self._merge(cluster, node, producer, source, value)
            if reason:
                self.decisions.append(f"keep {source.op} apart from {node.op}: {reason}")

    def _merge(
        self, cluster: _Cluster, node: Node, producer: _Cluster, source: Node, value: Node
    ) -> str:
        """Pull a producer's group into another; the reason when that cannot be."""
        if len(cluster.group.members) + len(producer.group.members) > self.options.max_fusion:
            return "the kernel would pass max_fusion ops"
        if self._would_loop(cluster, producer):
            return "another kernel between them would have to run in the middle"
        user, use = self._use(cluster.group, node, value)
        if use is None:
            return "a reshape between them does not split the loops evenly"
        matched = unify(producer.group, source, user, use, self.extents)
        if matched is None:
            return "the loops do not match one to one"
        merged, reason = self._joined(matched.user, matched.producer, matched.binding)
        if merged is None:
            return reason
        if not self._consistent(merged, cluster.group, producer.group):
            return "another use reads it at a different place"
        self._commit(cluster, producer, merged)
        self.decisions.append(f"fuse {source.op} into {node.op}")
        return ""

    def fuse_beside(self) -> None:
        """Let kernels that read the same elements, and not each other's results, share their loops."""
        readers: dict[Node, list[Node]] = {}
        for node in self.demand.nodes:
            if node.kind in COMPUTED:
                for source in self.sources(node):
                    readers.setdefault(source, []).append(node)
        for source, nodes in readers.items():
            clusters = (
                list(dict.fromkeys(self.cluster_of[node] for node in nodes))
                if len(nodes) > 1
                else []
            )
            for position, cluster in enumerate(clusters):
                for other in clusters[max(0, position - NEAR) : position]:
                    computed = source in cluster.group.members or source in other.group.members
                    if other in self.clusters and not computed:
                        self._merge_beside(cluster, other, source)

    def _merge_beside(self, cluster: _Cluster, other: _Cluster, source: Node) -> None:
        one, two = cluster.group, other.group
        different = (cluster.before ^ other.before) & ~(cluster.bit | other.bit)
        if other.before & cluster.bit or cluster.before & other.bit or different.bit_count() > NEAR:
            return
        if (
            len(one.members) + len(two.members) > self.options.max_fusion
            or one.cost + two.cost > READING
        ):
            return
        here, there = self._place(one, source), self._place(two, source)
        if here is None or there is None or (one.outer is None) != (two.outer is None):
            return
        reading = replace(two, members={**two.members, source: there})
        matched = unify(reading, source, one, here, self.extents)
        if matched is None:
            return
        members = {node: at for node, at in matched.producer.members.items() if node is not source}
        beside = replace(matched.producer, members=members)
        merged, _ = self._joined(matched.user, beside, matched.binding)
        if merged is None:
            return
        ops = (next(reversed(list(group.members))).op for group in (two, one))
        self.decisions.append(
            f"fuse {' beside '.join(ops)}: both read {source.op} of {source.shape}"
        )
        self._commit(cluster, other, merged)

    def _place(self, group: Group, source: Node) -> Coordinates | None:
        """Where a group first reads a value."""
        for node in group.members:
            for value, at in self.reads(group, node):
                if source_of(value) is source:
                    with contextlib.suppress(NotAffine):
                        return through_views(value, at, self.extents)[1]
        return None

    def _use(self, user: Group, node: Node, value: Node) -> tuple[Group, Coordinates | None]:
        """Where a member reads a value, its loops cut as far as the views between them ask for it."""
        for _ in range(16):
            at = next(c for v, c in self.reads(user, node) if v is value)
            try:
                return user, through_views(value, at, self.extents)[1]
            except NotAffine as found:
                if found.var < 0 or found.var not in user.variables:
                    return user, None
                user, _ = split(user, found.var, found.inner, self.extents)
        return user, None

    def _joined(
        self, user: Group, other: Group, binding: dict[int, int]
    ) -> tuple[Group | None, str]:
        """Two groups as one, or the reason why their rows do not go together."""
        outer, reason = self._rows(user, other, binding)
        if reason:
            return None, reason
        user = replace(user, outer=outer)
        return user.joined(other, {**binding, **self._alike(user, other, binding)}), ""

    def _rows(
        self, user: Group, other: Group, binding: dict[int, int]
    ) -> tuple[frozenset[int] | None, str]:
        """The rows of the merged group, or why there are none."""
        bound = frozenset(binding.values())
        needed = other.variables if other.outer is None else other.outer
        if not needed <= binding.keys():
            return None, "part of the producer's loops is not read"
        if other.outer is None and user.outer is None:
            whole = bound == user.variables
            return None, "" if whole else "the producer is smaller: computed again or stored"
        if other.outer is None:
            assert user.outer is not None
            inner = bound - user.outer
            if not user.outer <= bound or (inner and inner not in user.inner_sets()):
                return None, "the producer does not run over whole rows"
            return user.outer, ""
        rows = frozenset(binding[v] for v in other.outer)
        if user.outer is None:
            few = self._too_few_rows(rows, user.variables)
            return rows, "too few rows to run the consumer in parallel" if few else ""
        return user.outer, "" if rows == user.outer else "their rows differ"

    def _alike(self, user: Group, other: Group, binding: dict[int, int]) -> dict[int, int]:
        """The same variables for loops over rows of one shape, so that one loop may serve both groups."""
        if user.outer is None or other.outer is None:
            return {}
        rows, found = user.outer, dict(binding)
        sets = sorted(sorted(s) for s in {v - rows for v in (*user.inner_sets(), user.variables)})
        for mine in sorted(sorted(inner) for inner in other.inner_sets()):
            if not mine or found.keys() & set(mine):
                continue
            sizes = [self.extents[v] for v in mine]
            same = [
                s
                for s in sets
                if [self.extents[v] for v in s] == sizes and not set(s) & set(found.values())
            ]
            if same:
                found.update(zip(mine, same[0], strict=True))
        return found

    def _too_few_rows(self, rows: frozenset[int], variables: frozenset[int]) -> bool:
        outer, whole = (
            math.prod(self.extents[var] for var in part) for part in (variables & rows, variables)
        )
        return outer < SMALL_OUTER and whole >= LARGE_INNER

    def _would_loop(self, cluster: _Cluster, producer: _Cluster) -> bool:
        """Whether some path leaves the two groups and comes back: it could run neither way."""
        one, two = cluster.group.members, producer.group.members
        if any(self.demand.after.get(member) in two for member in one):
            return True
        both = cluster.bit | producer.bit
        for member in (*one, *two):
            for source in self.sources(member):
                other = self.cluster_of.get(source)
                if other is None or other is cluster or other is producer:
                    continue
                if other.before & both:
                    return True
        return False

    def _consistent(self, merged: Group, group: Group, producer: Group) -> bool:
        for member in merged.members:
            gathers = member.kind is NodeKind.GATHER  # looks up memory that must be complete
            if gathers and source_of(self.demand.inputs(member)[0]) in merged.members:
                return False
        for member in group.members:
            for value, at in self.reads(merged, member):
                if source_of(value) not in producer.members:
                    continue
                try:
                    source, place = through_views(value, at, self.extents)
                except NotAffine:
                    return False
                if place != merged.members[source]:
                    return False
        return True

    def _commit(self, cluster: _Cluster, producer: _Cluster, merged: Group) -> None:
        cluster.group = merged
        cluster.before = (cluster.before | producer.before) & ~(cluster.bit | producer.bit)
        for node, owner in list(self.cluster_of.items()):
            if owner is producer:
                self.cluster_of[node] = cluster
        both = cluster.bit | producer.bit
        for other in self.clusters:
            if other.before & both and other is not cluster:
                other.before |= cluster.bit | cluster.before
        self.clusters.remove(producer)
