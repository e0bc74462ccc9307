"""native.schedule.writes: which new values of inputs are written straight into the inputs' memory.

In: Storage. Out: Storage, with writes that would come too early taken aside (the caller copies them), and for
the others the groups they must wait for: those that read the old value, and calls of torch, which may fail.
"""

from __future__ import annotations

from collections.abc import Mapping

from argand.native.ir.strides import source_of
from argand.native.ir.tensor import Node, topological
from argand.native.schedule.demand import COMPUTED
from argand.native.schedule.groups import Fusion, Group
from argand.native.schedule.storage import Storage
from argand.support.dataclass import replace


def settle_writes(storage: Storage) -> Storage:
    """Let kernels write into inputs where nothing reads the old value, or may fail, later on."""
    fusion = storage.fusion
    demand, group_of = fusion.demand, fusion.group_of
    if not demand.writes:
        return storage
    users = _users(fusion)
    before = _before(fusion)
    calls = {group for node, group in group_of.items() if node.op == "extern"}
    kept = set(demand.writes.values())
    returned = {
        source_of(r) for k, r in enumerate(demand.outputs) if isinstance(r, Node) and k not in kept
    }
    waits: dict[Group, tuple[Group, ...]] = {}
    decisions = list(fusion.decisions)
    settled = demand
    for copy in demand.writes:
        target, group = demand.destinations[copy].owner, group_of[copy]
        first = (_readers(target, users, storage) | calls) - {group}
        reason = "a result is its old value" if target in returned else ""
        if not reason and any(group in before[other] for other in first):
            reason = "a later kernel reads the old value, or calls torch and may fail"
        if reason:
            decisions.append(settled.aside(copy, reason))
            settled = settled.with_write_aside(copy)
            continue
        decisions.append(f"write input {target.attribute} in place")
        before = _with_edges(before, group, first)
        waits[group] = (
            *waits.get(group, ()),
            *(other for other in fusion.groups if other in first),
        )
    fusion = replace(fusion, demand=settled, decisions=tuple(decisions))
    return replace(storage, fusion=fusion, waits=waits)


def _users(fusion: Fusion) -> dict[Node, list[Node]]:
    users: dict[Node, list[Node]] = {}
    for node in fusion.group_of:
        for source in fusion.sources(node):
            users.setdefault(source, []).append(node)
    return users


def _readers(target: Node, users: Mapping[Node, list[Node]], storage: Storage) -> set[Group]:
    """The groups that read an input, also where they compute again what another group reads it for."""
    found: set[Group] = set()
    seen, stack = set(), [target]
    while stack:
        for user in users.get(stack.pop(), ()):
            found.add(storage.fusion.group_of[user])
            if user.kind in COMPUTED and user not in storage.in_memory and user not in seen:
                seen.add(user)
                stack.append(user)
    return found


def _before(fusion: Fusion) -> dict[Group, frozenset[Group]]:
    """All that must run before each group."""
    needs = fusion.needs()
    found: dict[Group, frozenset[Group]] = {}
    for group in topological(fusion.groups, needs.__getitem__):
        found[group] = frozenset().union(*({other} | found[other] for other in needs[group]))
    return found


def _with_edges(
    before: Mapping[Group, frozenset[Group]], group: Group, first: set[Group]
) -> dict[Group, frozenset[Group]]:
    """The same when a group waits for some more."""
    more = before[group].union(first, *(before[other] for other in first))
    return {g: more if g is group else b | more if group in b else b for g, b in before.items()}
