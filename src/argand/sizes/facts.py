"""sizes.facts: comparisons of expressions: what is proven, and what is relied upon.

In: two expressions and an operator. Out: whether it holds for all values or for none, or a `Fact`:
it holds for the sizes of this call, compiled code relies on it, and a guard checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, final

from typing_extensions import override

from argand.sizes.expressions import Expr, Symbol
from argand.support.dataclass import dataclass
from argand.support.errors import Location

HOLDS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "==": int.__eq__,
    "!=": int.__ne__,
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
}
OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@final
@dataclass(frozen=True, slots=True)
class Fact:
    """``left <operator> right``: true for the sizes of this call, and relied upon."""

    operator: str
    left: Expr
    right: Expr
    where: Location | None = field(default=None, compare=False)

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The symbols it is about."""
        return self.left.symbols | self.right.symbols

    def holds(self, values: Mapping[Symbol, int]) -> bool:
        """Whether it is true for these sizes."""
        try:
            sides = self.left.evaluate(values), self.right.evaluate(values)
        except ZeroDivisionError:
            return False
        return bool(HOLDS[self.operator](*sides))

    def replace(self, values: Mapping[Symbol, Expr]) -> Fact:
        """The same with expressions in the place of symbols."""
        left, right = self.left.replace(values), self.right.replace(values)
        return Fact(self.operator, left, right, self.where)

    @property
    def is_proven(self) -> bool | None:
        """Whether it holds for all values, or for none; None: for some, or unknown."""
        return compare(self.operator, self.left, self.right)

    @override
    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


def compare(operator: str, left: int | Expr, right: int | Expr) -> bool | None:
    """Whether ``left <operator> right`` for all, or for no values; None: for some, or unknown."""
    match operator:
        case "==":
            return _equal(Expr.of(left) - right)
        case "!=":
            return _negated(_equal(Expr.of(left) - right))
        case "<":
            return _negative(Expr.of(left) - right)
        case ">=":
            return _negated(_negative(Expr.of(left) - right))
        case ">":
            return compare("<", right, left)
        case _:
            return compare(">=", right, left)


def _negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _equal(difference: Expr) -> bool | None:
    if not difference.terms:
        return True
    low, high = difference.bounds()
    if low > 0 or high < 0:
        return False
    return True if low == high == 0 else None


def _negative(difference: Expr) -> bool | None:
    low, high = difference.bounds()
    if high < 0:
        return True
    return False if low >= 0 else None


def surplus(operator: str, left: Expr, right: Expr) -> Expr:
    """What is at least 0 exactly where the comparison (`<`, `<=`, `>`, `>=`) holds."""
    wide = right - left if operator in ("<", "<=") else left - right
    return wide - 1 if operator in ("<", ">") else wide
