"""native.ir.affine: index expressions ``constant + sum(coefficient * variable)``.

Variables are small integers; who makes them knows their extents. Division and remainder are exact
rewrites or fail with ``NotAffine``, which names the variable to split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, final

from typing_extensions import override

from argand.native.ir.types import at_least, divides
from argand.support.dataclass import dataclass

Var: TypeAlias = int


@final
class NotAffine(Exception):
    """The quotient is no affine form; splitting ``var`` at ``inner`` may make it one."""

    def __init__(self, var: Var, inner: int) -> None:
        super().__init__(f"d{var} must be split at {inner}")
        self.var, self.inner = var, inner


@final
@dataclass(frozen=True, slots=True)
class Affine:
    """``constant + sum(coefficient * d<var>)``; terms sorted by variable, none zero."""

    constant: int = 0
    terms: tuple[tuple[Var, int], ...] = ()

    @staticmethod
    def of(var: Var) -> Affine:
        """The variable itself."""
        return Affine(0, ((var, 1),))

    def __add__(self, other: Affine) -> Affine:
        if not other.terms:
            return Affine(self.constant + other.constant, self.terms)
        if not self.terms:
            return Affine(self.constant + other.constant, other.terms)
        terms = dict(self.terms)
        for var, coefficient in other.terms:
            terms[var] = terms.get(var, 0) + coefficient
        kept = tuple(sorted((v, c) for v, c in terms.items() if c))
        return Affine(self.constant + other.constant, kept)

    def scale(self, factor: int) -> Affine:
        """Every coefficient and the constant times ``factor``."""
        if factor == 1:
            return self
        if factor == 0:
            return Affine()
        return Affine(self.constant * factor, tuple((v, c * factor) for v, c in self.terms))

    def shift(self, amount: int) -> Affine:
        """Plus a constant."""
        return Affine(self.constant + amount, self.terms) if amount else self

    def coefficient(self, var: Var) -> int:
        """Coefficient of a variable, 0 when absent."""
        for v, c in self.terms:
            if v == var:
                return c
        return 0

    def variables(self) -> tuple[Var, ...]:
        """The variables that occur."""
        return tuple(v for v, _ in self.terms)

    def substitute(self, values: Mapping[Var, Affine]) -> Affine:
        """Replace variables by affine forms; others stay."""
        if not any(v in values for v, _ in self.terms):
            return self
        result = Affine(self.constant)
        for var, coefficient in self.terms:
            result = result + values.get(var, Affine(0, ((var, 1),))).scale(coefficient)
        return result

    def divide(self, divisor: int, extents: Mapping[Var, int]) -> tuple[Affine, Affine]:
        """(quotient, remainder) by a positive divisor, or NotAffine."""
        quotient: list[tuple[Var, int]] = []
        rest: list[tuple[Var, int]] = []
        for var, coefficient in self.terms:
            (quotient if divides(divisor, coefficient) else rest).append((var, coefficient))
        constant = self.constant % divisor
        highest = constant + sum(c * (extents[v] - 1) for v, c in rest if c > 0)
        lowest = constant + sum(c * (extents[v] - 1) for v, c in rest if c < 0)
        if not at_least(lowest, 0) or not at_least(divisor - 1, highest):
            raise _split_for(rest, divisor, extents)
        whole = Affine(self.constant // divisor, tuple((v, c // divisor) for v, c in quotient))
        return whole, Affine(constant, tuple(rest))

    @override
    def __str__(self) -> str:
        parts = [f"d{v}" if c == 1 else f"{c}*d{v}" for v, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def linear(forms: Iterable[Affine], strides: Iterable[int], offset: int = 0) -> Affine:
    """The index of an element: ``offset + sum(form * stride)``."""
    index = Affine(offset)
    for form, stride in zip(forms, strides, strict=True):
        index = index + form.scale(stride)
    return index


def span(form: Affine, extents: Mapping[Var, int]) -> tuple[int, int]:
    """The lowest and the highest value of a form whose variables count from 0 below their extents."""
    low = form.constant + sum(c * (extents[v] - 1) for v, c in form.terms if c < 0)
    high = form.constant + sum(c * (extents[v] - 1) for v, c in form.terms if c > 0)
    return low, high


def _split_for(rest: list[tuple[Var, int]], divisor: int, extents: Mapping[Var, int]) -> NotAffine:
    for var, coefficient in sorted(rest, key=lambda term: -term[1]):
        whole = coefficient > 0 and divides(coefficient, divisor)
        inner = divisor // coefficient if whole else 0
        if 1 < inner < extents[var] and divides(inner, extents[var]):
            return NotAffine(var, inner)
    return NotAffine(-1, 0)
