"""native.schedule.origins: which lines of the user a kernel computes.

In: a loop nest and the schedule it is of. Out: the lines, as capture wrote them, in program order.
"""

from __future__ import annotations

from argand.native.ir.loops import Store, walk
from argand.native.ir.tensor import Node
from argand.native.schedule.nest import LoopNest
from argand.native.schedule.order import Schedule


def origins_of(schedule: Schedule, nest: LoopNest, *more: Node) -> tuple[str, ...]:
    """The lines of all that one nest computes; ``more``: calls it takes in, such as a convolution."""
    stored = {s.buffer for s in walk(nest.kernel.body) if isinstance(s, Store) and s.buffer >= 0}
    found: dict[str, None] = dict.fromkeys(node.trace for node in more)
    for number in sorted(stored):
        owner = nest.owners[number]
        group = schedule.group_of.get(owner)
        members = (*group.members, owner) if group is not None and group.members else (owner,)
        for member in members:
            found.update(dict.fromkeys(node.trace for node in _products(member, nest)))
            found[member.trace] = None
    return tuple(origin for origin in found if origin)


def _products(node: Node, nest: LoopNest) -> list[Node]:
    """Calls whose results a nest has not from memory: products that it computes itself."""
    return [
        each.inputs[0]
        for each in (node, *node.inputs)
        if each.op == "item" and each not in nest.owners[1:]
    ]
