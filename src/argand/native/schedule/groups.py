"""native.schedule.groups: a set of nodes computed in one loop nest, with the coordinates of each.

All members of a group are expressed over the same loop variables. ``outer`` None means that every
member runs over all variables (pointwise so far) and any of them may become the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from argand.native.ir.affine import Affine, Var
from argand.native.ir.tensor import Node
from argand.native.ir.types import divides
from argand.native.schedule.mapping import Coordinates, factors

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
@dataclass(slots=True, eq=False)
class Group:
    """Members with coordinates; ``operands``: coordinates of what a reduction reads."""

    bit: int
    members: dict[Node, Coordinates] = field(default_factory=dict)
    operands: dict[Node, Coordinates] = field(default_factory=dict)
    outer: Variables | None = None
    variables: Variables = frozenset()
    before: int = 0  # bits of the groups that must run earlier
    cost: int = 0

    def copy(self) -> Group:
        """A group to try things on."""
        return Group(
            self.bit, dict(self.members), dict(self.operands), self.outer, self.variables, self.before, self.cost
        )

    def substitute(self, values: dict[Var, Affine]) -> None:
        """Replace variables by forms of others, everywhere."""
        for table in (self.members, self.operands):
            for node, coordinates in table.items():
                table[node] = tuple(c.substitute(values) for c in coordinates)
        self.variables = _renamed(self.variables, values)
        self.outer = None if self.outer is None else _renamed(self.outer, values)

    def split(self, var: Var, inner: int, extents: Extents) -> dict[Var, Affine]:
        """Cut a variable in two: ``var = outer * inner + inner variable``."""
        high, low = extents.fresh(extents[var] // inner), extents.fresh(inner)
        values = {var: Affine.of(high).scale(inner) + Affine.of(low)}
        self.substitute(values)
        return values

    def take(self, other: Group, binding: dict[Var, Var]) -> None:
        """Add the members of another group, its variables renamed."""
        other.substitute({theirs: Affine.of(ours) for theirs, ours in binding.items()})
        self.members.update(other.members)
        self.operands.update(other.operands)
        self.variables |= other.variables

    def inner_sets(self) -> set[Variables]:
        """The sets of inner variables some member or operand runs over."""
        outer = self.outer or frozenset()
        return {
            variables_of(coordinates) - outer
            for table in (self.members, self.operands)
            for coordinates in table.values()
        }


def variables_of(coordinates: Coordinates) -> Variables:
    """All variables of some forms."""
    return frozenset(v for form in coordinates for v, _ in form.terms)


def _renamed(variables: Variables, values: dict[Var, Affine]) -> Variables:
    result: set[Var] = set()
    for var in variables:
        result.update(values[var].variables() if var in values else (var,))
    return frozenset(result)


def unify(
    producer: Group, node: Node, user: Group, use: Coordinates, extents: Extents
) -> tuple[dict[Var, Var], Coordinates] | None:
    """Match a member's coordinates with the place a user reads it at.

    Splits variables on both sides where a reshape lies between. Gives the producer's variables in
    terms of the user's, and the use after splitting; None when they do not match one to one.
    """
    for _ in range(16):  # every round splits a variable; shapes have few factors
        binding: dict[Var, Var] = {}
        split = False
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
                    producer.split(p, b, extents)
                elif b > a and divides(a, b):
                    values = user.split(u, a, extents)
                    use = tuple(c.substitute(values) for c in use)
                else:
                    return None
                split = True
                break
            if split:
                break
        if not split:
            return (binding, use) if len(set(binding.values())) == len(binding) else None
    return None
