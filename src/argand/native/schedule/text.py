"""native.schedule.text: what the scheduler decided, as text (for logs, errors and text cases; it is not parsed).

Nodes have the numbers of their place in ``Demand.nodes``. A demand prints as a graph whose nodes say which memory
they need; a fusion prints its groups with the loop variables, and each member with its coordinates.

    group 0: d0:4 d1:8 rows d0
      %1 = exp(%0) : f32[4,8] at [d0, d1]
      %2 = sum[1](%1) : f32[4] at [d0] reads [d0, d1] stored
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from argand.native.ir.affine import Var
from argand.native.ir.loops_text import print_kernel
from argand.native.ir.tensor import Node
from argand.native.ir.tensor_text import print_attribute, print_type
from argand.native.schedule.demand import Demand
from argand.native.schedule.groups import Fusion, Group
from argand.native.schedule.nest import LoopNest, LoopNests
from argand.native.schedule.order import Schedule
from argand.native.schedule.storage import Storage


def names_of(demand: Demand) -> dict[Node, str]:
    """What nodes are called in all texts of a schedule."""
    return {node: f"%{k}" for k, node in enumerate(demand.nodes)}


def _node(demand: Demand, names: Mapping[Node, str], node: Node) -> str:
    arguments = ", ".join(names.get(i, "?") for i in demand.inputs(node))
    kind = print_type(node.shape, node.dtype)
    return f"{names[node]} = {node.op}{print_attribute(node)}({arguments}) : {kind}"


def _memory(demand: Demand, names: Mapping[Node, str], node: Node) -> str:
    """What is demanded of a node's memory."""
    words = ""
    if node in demand.destinations:
        destination = demand.destinations[node]
        words += (
            f" into {names.get(destination.owner, '?')}[{', '.join(map(str, destination.forms))}]"
        )
    elif node in demand.layouts and node.op not in ("input", "tensor"):
        words += f" strides [{','.join(map(str, demand.layouts[node]))}]"
    if node in demand.placed:
        words += f" in {names.get(demand.placed[node], 'an input')}"
    if node in demand.after:
        words += f" after {names[demand.after[node]]}"
    return words + (" required" if node in demand.required else "")


def print_demand(demand: Demand) -> str:
    """The graph with the memory each value must have."""
    names = names_of(demand)
    lines = [_node(demand, names, node) + _memory(demand, names, node) for node in demand.nodes]
    return "\n".join([*lines, _returned(demand, names)])


def _returned(demand: Demand, names: Mapping[Node, str]) -> str:
    results = (names.get(o, "?") if isinstance(o, Node) else repr(o) for o in demand.outputs)
    return f"return {', '.join(results)}"


def _group(number: int, group: Group, extents: Mapping[Var, int]) -> str:
    loops = "".join(f" d{v}:{extents[v]}" for v in sorted(group.variables))
    if group.outer is None:
        return f"group {number}:{loops}"
    return f"group {number}:{loops} rows{''.join(f' d{v}' for v in sorted(group.outer)) or ' none'}"


def _groups(
    demand: Demand,
    groups: Iterable[Group],
    extents: Mapping[Var, int],
    group_of: Mapping[Node, Group],
    stored: Collection[Node] = (),
) -> list[str]:
    names, lines = names_of(demand), list[str]()
    for number, group in enumerate(groups):
        if not group.members:
            alone = [n for n in demand.nodes if group_of.get(n) is group and n.op != "item"]
            lines += [f"alone {number}:", *(f"  {_node(demand, names, n)}" for n in alone)]
            continue
        lines.append(_group(number, group, extents))
        for node in sorted(group.members, key=demand.nodes.index):
            place = f" at [{', '.join(map(str, group.members[node]))}]"
            if node in group.operands:
                place += f" reads [{', '.join(map(str, group.operands[node]))}]"
            lines.append(
                f"  {_node(demand, names, node)}{place}{' stored' if node in stored else ''}"
            )
    return lines


def print_fusion(fusion: Fusion) -> str:
    """The groups in the order they were made, and why."""
    lines = _groups(fusion.demand, fusion.groups, fusion.extents, fusion.group_of)
    return "\n".join([*lines, *(f"# {decision}" for decision in fusion.decisions)])


def print_storage(storage: Storage) -> str:
    """The groups with what is stored, and what they wait for besides their reads."""
    fusion = storage.fusion
    lines = _groups(
        fusion.demand, fusion.groups, fusion.extents, fusion.group_of, storage.in_memory
    )
    for group, earlier in storage.waits.items():
        listed = ", ".join(str(fusion.groups.index(other)) for other in earlier) or "nothing"
        lines.append(f"group {fusion.groups.index(group)} waits for {listed}")
    lines.append(_returned(fusion.demand, names_of(fusion.demand)))
    return "\n".join([*lines, *(f"# {decision}" for decision in fusion.decisions)])


def print_schedule(schedule: Schedule) -> str:
    """The groups in running order."""
    lines = _groups(
        schedule.demand, schedule.order, schedule.extents, schedule.group_of, schedule.in_memory
    )
    return "\n".join([*lines, _returned(schedule.demand, names_of(schedule.demand))])


def print_nests(nests: LoopNests) -> str:
    """The kernels and calls in running order, each buffer with its node."""
    demand = nests.schedule.demand
    names, lines = names_of(demand), list[str]()
    for item in nests.work:
        if isinstance(item, LoopNest):
            owners = ", ".join(f"b{k} is {names.get(o, o.op)}" for k, o in enumerate(item.owners))
            lines += [f"# {owners}", print_kernel(item.kernel)]
        else:
            lines.append(_node(demand, names, item))
    return "\n".join(lines)
