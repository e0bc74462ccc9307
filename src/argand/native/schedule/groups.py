"""native.schedule.groups: a set of nodes computed in one loop nest, with the coordinates of each.

All members of a group are expressed over the same loop variables. ``outer`` None means that every
member runs over all variables (pointwise so far) and any of them may become the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, final

from argand.native.ir.affine import Affine, Var
from argand.native.ir.strides import source_of
from argand.native.ir.tensor import Node
from argand.native.ir.types import divides
from argand.native.schedule.demand import Demand
from argand.native.schedule.mapping import Coordinates, factors
from argand.support.dataclass import dataclass, replace

Variables = frozenset[Var]


@final
class Extents(dict[Var, int]):
    """Extents of all loop variables of a schedule; makes new ones."""

    def fresh(self, extent: int) -> Var:
        """A new variable."""
        var = len(self)
        self[var] = extent
        return var


@final
@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Members with coordinates; ``operands``: coordinates of what a reduction reads."""

    members: Mapping[Node, Coordinates]
    operands: Mapping[Node, Coordinates]
    outer: Variables | None = None
    variables: Variables = frozenset()
    cost: int = 0

    def substitute(self, values: Mapping[Var, Affine]) -> Group:
        """Replace variables by forms of others, everywhere."""
        return replace(
            self,
            members=_substituted(self.members, values),
            operands=_substituted(self.operands, values),
            variables=_renamed(self.variables, values),
            outer=None if self.outer is None else _renamed(self.outer, values),
        )

    def joined(self, other: Group, binding: Mapping[Var, Var]) -> Group:
        """Together with the members of another group, its variables renamed."""
        renamed = other.substitute({theirs: Affine.of(ours) for theirs, ours in binding.items()})
        return replace(
            self,
            members={**self.members, **renamed.members},
            operands={**self.operands, **renamed.operands},
            variables=self.variables | renamed.variables,
            cost=self.cost + other.cost,
        )

    def inner_sets(self) -> set[Variables]:
        """The sets of inner variables some member or operand runs over."""
        outer = self.outer or frozenset()
        listed = (*self.members.values(), *self.operands.values())
        return {variables_of(coordinates) - outer for coordinates in listed}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """Groups in the order they were made; externs and assembled values are groups without members."""

    demand: Demand
    extents: Mapping[Var, int]
    groups: tuple[Group, ...]
    group_of: Mapping[Node, Group]
    decisions: tuple[str, ...]  # what was fused or kept apart, and why

    def sources(self, node: Node) -> list[Node]:
        """What must be computed before a node, views looked through."""
        return [source_of(need) for need in self.demand.needs(node)]

    def needs(self) -> dict[Group, list[Group]]:
        """The groups whose results each group reads, in program order, maybe more than once."""
        found: dict[Group, list[Group]] = {group: [] for group in self.groups}
        for node in self.demand.nodes:
            group = self.group_of.get(node)
            if group is None:
                continue
            for source in self.sources(node):
                other = self.group_of.get(source)
                if other is not None and other is not group:
                    found[group].append(other)
        return found


def split(group: Group, var: Var, inner: int, extents: Extents) -> tuple[Group, dict[Var, Affine]]:
    """Cut a variable in two, ``var = outer * inner + inner variable``: the group, and what ``var`` is now."""
    high, low = extents.fresh(extents[var] // inner), extents.fresh(inner)
    values = {var: Affine.of(high).scale(inner) + Affine.of(low)}
    return group.substitute(values), values


def _substituted(
    table: Mapping[Node, Coordinates], values: Mapping[Var, Affine]
) -> dict[Node, Coordinates]:
    return {
        node: tuple(c.substitute(values) for c in coordinates)
        for node, coordinates in table.items()
    }


def variables_of(coordinates: Coordinates) -> Variables:
    """All variables of some forms."""
    return frozenset(v for form in coordinates for v, _ in form.terms)


def _renamed(variables: Variables, values: Mapping[Var, Affine]) -> Variables:
    result: set[Var] = set()
    for var in variables:
        result.update(values[var].variables() if var in values else (var,))
    return frozenset(result)


class Match(NamedTuple):
    """Two groups after splitting, and the producer's variables in terms of the user's."""

    producer: Group
    user: Group
    binding: dict[Var, Var]


def unify(
    producer: Group, node: Node, user: Group, use: Coordinates, extents: Extents
) -> Match | None:
    """Match a member's coordinates with the place a user reads it at.

    Splits variables on both sides where a reshape lies between; None when they do not match one to one.
    """
    for _ in range(16):  # every round splits a variable; shapes have few factors
        binding: dict[Var, Var] = {}
        cut = False
        for form, wanted, size in zip(producer.members[node], use, node.shape, strict=True):
            mine, yours = factors(form, size, extents), factors(wanted, size, extents)
            if mine is None or yours is None:
                return None
            for p, u in zip(mine, yours, strict=True):
                a, b = extents[p], extents[u]
                if a == b:
                    if binding.setdefault(p, u) != u:
                        return None
                    continue
                if a > b and divides(b, a):
                    producer, _ = split(producer, p, b, extents)
                elif b > a and divides(a, b):
                    user, values = split(user, u, a, extents)
                    use = tuple(c.substitute(values) for c in use)
                else:
                    return None
                cut = True
                break
            if cut:
                break
        if not cut:
            one_to_one = len(set(binding.values())) == len(binding)
            return Match(producer, user, binding) if one_to_one else None
    return None
