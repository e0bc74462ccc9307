"""sizes.expressions: integers that are not known yet, and what can be computed of them.

``Expr`` is an integer polynomial over atoms: symbols, and floor divisions, remainders, minima and
maxima of expressions. It is immutable, hashable and canonical: sums and products of the same things
are equal however they were written. ``SizeInt`` is an ``int`` (its value: a sample) that carries an
expression. In: ints and expressions. Out: expressions, their values and their bounds.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from typing_extensions import override

from argand.support.dataclass import dataclass


@final
@dataclass(frozen=True, slots=True)
class Symbol:
    """An unknown integer, between its bounds (None: no upper one)."""

    name: str
    minimum: int = 2
    maximum: int | None = None

    @override
    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Apply:
    """``left // right``, ``left % right``, ``min`` or ``max`` of two expressions."""

    name: str
    left: Expr
    right: Expr

    @override
    def __str__(self) -> str:
        if self.name in {"min", "max"}:
            return f"{self.name}({self.left}, {self.right})"
        sides = [str(s) if s.is_simple else f"({s})" for s in (self.left, self.right)]
        return f"({sides[0]} {self.name} {sides[1]})"


INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
Atom = Symbol | Apply
Monomial = tuple[Atom, ...]  # sorted by text, repeated for powers; empty: one
_FOLD: Final[dict[str, Callable[[int, int], int]]] = {
    "//": int.__floordiv__,
    "%": int.__mod__,
    "min": min,
    "max": max,
}


@final
class Expr:
    """A sum of integers times products of atoms."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        kept = [(product, factor) for product, factor in terms.items() if factor]
        # Degree first: with it leading terms multiply, and long division works.
        self.terms = tuple(sorted(kept, key=_order, reverse=True))
        self._hash = hash(self.terms)

    @staticmethod
    def of(value: int | Atom | Expr) -> Expr:
        """An expression of a constant or an atom; a ``SizeInt`` gives the one it carries."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, SizeInt):
            return value.expr
        return _whole(int(value)) if isinstance(value, int) else Expr({(value,): 1})

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.terms == other.terms

    @override
    def __hash__(self) -> int:
        return self._hash

    @property
    def constant(self) -> int | None:
        """The value of an expression without atoms."""
        if not self.terms:
            return 0
        return self.terms[0][1] if not self.terms[0][0] else None

    @property
    def is_simple(self) -> bool:
        """Whether it reads well inside of another one without parentheses."""
        return len(self.terms) < 2 and (not self.terms or len(self.terms[0][0]) <= 1)

    @property
    def symbols(self) -> frozenset[Symbol]:
        """All symbols in it, also those inside of atoms."""
        found: set[Symbol] = set()
        for product, _ in self.terms:
            for atom in product:
                if isinstance(atom, Symbol):
                    found.add(atom)
                else:
                    found |= atom.left.symbols | atom.right.symbols
        return frozenset(found)

    def __add__(self, other: int | Expr) -> Expr:
        return _sum(self, Expr.of(other))

    def __sub__(self, other: int | Expr) -> Expr:
        return self + Expr.of(other) * -1

    def __mul__(self, other: int | Expr) -> Expr:
        return _product(self, Expr.of(other))

    def __floordiv__(self, other: int | Expr) -> Expr:
        other = Expr.of(other)
        exact, rest = _divide(self, other)
        if rest.terms and other.constant is not None:
            shift = _remainder_bounds(rest, other.constant)
            if shift is not None:
                return exact + shift
        if rest.terms and exact.terms and other.constant is None:
            exact, rest = Expr({}), self  # a partial quotient helps only by constants
        return exact if not rest.terms else exact + _apply("//", rest, other)

    def __mod__(self, other: int | Expr) -> Expr:
        other = Expr.of(other)
        rest = _divide(self, other)[1]
        if rest.terms and other.constant is None:
            rest = self
        elif rest.terms and other.constant is not None:
            shift = _remainder_bounds(rest, other.constant)
            if shift is not None:
                return rest - shift * other.constant
        return rest if not rest.terms else _apply("%", rest, other)

    def smaller(self, other: int | Expr) -> Expr:
        """The minimum of both."""
        return _extreme("min", self, Expr.of(other))

    def larger(self, other: int | Expr) -> Expr:
        """The maximum of both."""
        return _extreme("max", self, Expr.of(other))

    def evaluate(self, values: Mapping[Symbol, int]) -> int:
        """The integer it is when symbols have these values."""
        total = 0
        for product, factor in self.terms:
            for atom in product:
                if isinstance(atom, Symbol):
                    factor *= values[atom]
                else:
                    pair = atom.left.evaluate(values), atom.right.evaluate(values)
                    factor *= _FOLD[atom.name](*pair)
            total += factor
        return total

    def build(self, leaf: Callable[[Symbol], Any], join: Callable[[str, Any, Any], Any]) -> Any:
        """Write it with other means: ``join("*", ...)``, ``+``, and what atoms are called, of leaves."""
        total: Any = None
        for product, factor in self.terms:
            term: Any = factor if factor != 1 or not product else None
            for atom in product:
                if isinstance(atom, Symbol):
                    made = leaf(atom)
                else:
                    sides = atom.left.build(leaf, join), atom.right.build(leaf, join)
                    made = join(atom.name, *sides)
                term = made if term is None else join("*", made, term)
            total = term if total is None else join("+", total, term)
        return 0 if total is None else total

    def replace(self, values: Mapping[Symbol, Expr]) -> Expr:
        """The same with expressions in the place of symbols."""

        def leaf(symbol: Symbol) -> Expr:
            return values.get(symbol, Expr.of(symbol))

        return Expr.of(self.build(leaf, apply))

    def bounds(self) -> tuple[float, float]:
        """Between which integers it lies, by the bounds of its symbols; infinite where unknown."""
        return _lowest(self), -_lowest(self * -1)

    @override
    def __str__(self) -> str:
        text = ""
        for product, factor in self.terms:
            minus, plus = (" - ", " + ") if text else ("-", "")
            sign = minus if factor < 0 else plus
            parts = [str(abs(factor))] if abs(factor) != 1 or not product else []
            text += sign + "*".join(parts + [str(atom) for atom in product])
        return text or "0"

    __repr__ = __str__


def apply(name: str, left: int | Expr, right: int | Expr) -> Expr:
    """``+``, ``*``, ``//``, ``%``, ``min``, ``max`` by name, simplified."""
    return _APPLY[name](Expr.of(left), Expr.of(right))


_APPLY: Final[dict[str, Callable[[Expr, Expr], Expr]]] = {
    "+": Expr.__add__,
    "*": Expr.__mul__,
    "//": Expr.__floordiv__,
    "%": Expr.__mod__,
    "min": Expr.smaller,
    "max": Expr.larger,
}


def _order(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    return len(term[0]), tuple(map(str, term[0]))


def _apply(name: str, left: Expr, right: Expr) -> Expr:
    a, b = left.constant, right.constant
    if a is not None and b is not None and (b or name in {"min", "max"}):
        return Expr({(): _FOLD[name](a, b)})
    if name == "//" and b:
        shared = math.gcd(b, *[factor for _, factor in left.terms])
        left = Expr({product: factor // shared for product, factor in left.terms})
        right = Expr({(): b // shared})
        atom = left.terms[0][0][0] if left.is_simple and left.terms[0][1] == 1 else None
        if isinstance(atom, Apply) and atom.name == "//" and atom.right.bounds()[0] > 0 and b > 0:
            return atom.left // (atom.right * right)  # (x // a) // b == x // (a * b)
    return Expr.of(Apply(name, left, right))


def _extreme(name: str, left: Expr, right: Expr) -> Expr:
    ahead = right - left if name == "min" else left - right  # not negative where left wins
    low, high = ahead.bounds()
    if low >= 0:
        return left
    return right if high <= 0 else _apply(name, *sorted((left, right), key=str))


# A graph asks the same few things again and again.
_remembered: Final = functools.lru_cache(maxsize=1 << 12)


@_remembered
def _whole(value: int) -> Expr:
    return Expr({(): value})


@_remembered
def _sum(one: Expr, two: Expr) -> Expr:
    terms = dict(one.terms)
    for product, factor in two.terms:
        terms[product] = terms.get(product, 0) + factor
    return Expr(terms)


@_remembered
def _product(one: Expr, two: Expr) -> Expr:
    terms: dict[Monomial, int] = {}
    for left, factor in one.terms:
        for right, times in two.terms:
            product = tuple(sorted(left + right, key=str)) if left and right else left + right
            terms[product] = terms.get(product, 0) + factor * times
    return Expr(terms)


@_remembered
def _divide(number: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """A quotient and a rest with ``number == quotient * divisor + rest``, by long division."""
    if not divisor.terms:
        raise ZeroDivisionError("integer division or modulo by zero")
    head, by = divisor.terms[0]
    quotient, rest = Expr({}), Expr({})
    while number.terms:
        product, factor = number.terms[0]
        left = _without(product, head)
        step = Expr({}) if left is None else Expr({left: factor // by})
        if left is None or (factor % by and divisor.constant is None) or not step.terms:
            step = Expr({product: factor})
            number, rest = number - step, rest + step
            continue
        quotient, number = quotient + step, number - step * divisor
        if number.terms and number.terms[0][0] == product:  # what the integer quotient left over
            over = Expr({product: number.terms[0][1]})
            number, rest = number - over, rest + over
    return quotient, rest


def _without(product: Monomial, divisor: Monomial) -> Monomial | None:
    left = list(product)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _remainder_bounds(rest: Expr, divisor: int) -> int | None:
    """``rest // divisor`` when its bounds decide it."""
    low, high = rest.bounds()
    if math.isinf(low) or math.isinf(high) or low // divisor != high // divisor:
        return None
    return int(low // divisor)


@_remembered
def _lowest(expr: Expr, depth: int = 6) -> float:
    """A lower bound: atoms that stand alone are opened up, so that ``s - s // 2`` is bounded."""
    low = _sum_of_lows(expr)
    for product, factor in expr.terms if depth and len(expr.terms) > 1 else ():
        if len(product) != 1 or not isinstance(atom := product[0], Apply):
            continue
        rest = expr - Expr({product: factor})
        divisor = atom.right.constant
        if atom.name == "//" and divisor is not None and divisor > 0:
            # divisor * (left // divisor) lies between left - divisor + 1 and left
            slack = factor * (divisor - 1) if factor > 0 else 0
            opened = _lowest(rest * divisor + atom.left * factor - slack, depth - 1)
            return max(low, opened if math.isinf(opened) else -(-opened // divisor))
        if atom.name in {"min", "max"}:
            lows = [_lowest(rest + side * factor, depth - 1) for side in (atom.left, atom.right)]
            # a negative factor turns a minimum into a maximum
            opened = min(lows) if (atom.name == "min") == (factor > 0) else max(lows)
            return max(low, opened)
    if math.isinf(low) and len(expr.terms) > 1:
        # With each symbol counted from its minimum, products no longer hide what cancels.
        moved = {symbol: _from_minimum(symbol) for symbol in expr.symbols}
        low = _sum_of_lows(expr.replace(moved))
    return low


def _from_minimum(symbol: Symbol) -> Expr:
    high = None if symbol.maximum is None else symbol.maximum - symbol.minimum
    return Expr.of(Symbol(symbol.name, 0, high)) + symbol.minimum


def _sum_of_lows(expr: Expr) -> float:
    total: float = 0
    for product, factor in expr.terms:
        low: float = 1
        high: float = 1
        for atom in product:
            a, b = _atom_bounds(atom)
            ends = [_times(x, y) for x in (low, high) for y in (a, b)]
            low, high = min(ends), max(ends)
        total += _times(factor, low if factor > 0 else high)
    return total


def _times(a: float, b: float) -> float:
    return 0 if not a or not b else a * b  # zero times infinity is zero here


def _atom_bounds(atom: Atom) -> tuple[float, float]:
    if isinstance(atom, Symbol):
        return atom.minimum, math.inf if atom.maximum is None else atom.maximum
    (low, high), (by_low, by_high) = atom.left.bounds(), atom.right.bounds()
    if atom.name == "min":
        return min(low, by_low), min(high, by_high)
    if atom.name == "max":
        return max(low, by_low), max(high, by_high)
    if by_low <= 0:
        return -math.inf, math.inf
    if atom.name == "%":
        return 0, (min(high, by_high - 1) if low >= 0 else by_high - 1)
    ends = [_floor(x, y) for x in (low, high) for y in (by_low, by_high)]
    return min(ends), max(ends)


def _floor(a: float, b: float) -> float:
    if math.isinf(a):
        return a
    if math.isinf(b):
        return 0 if a >= 0 else -1
    return a // b


def _method(operation: Callable[[Any, Any], Any]) -> Any:
    """A method of ``SizeInt``: the same operation on values and on expressions."""

    def method(self: SizeInt, other: int) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return self.carry(operation(int(self), int(other)), operation(self.expr, Expr.of(other)))

    return method


def _reflected(operation: Callable[[Any, Any], Any]) -> Any:
    """The method for the right-hand side of an operation."""

    def swapped(left: Any, right: Any) -> Any:
        return operation(right, left)

    return _method(swapped)


class SizeInt(int):
    """An int that stands for an expression; its value is the expression at one sample."""

    expr: Expr

    def __new__(cls, value: int, expr: Expr) -> SizeInt:
        """A value with its expression."""
        made = super().__new__(cls, value)
        made.expr = expr
        return made

    @override
    def __getnewargs__(self) -> Any:
        """Copies keep the expression."""
        return int(self), self.expr

    def carry(self, value: int, expr: Expr) -> Any:
        """What an operation on this integer gives: a constant is a plain int."""
        return value if expr.constant is not None else type(self)(value, expr)

    __add__ = __radd__ = _method(operator.add)
    __mul__ = __rmul__ = _method(operator.mul)
    __sub__ = _method(operator.sub)
    __rsub__ = _reflected(operator.sub)
    __floordiv__ = _method(operator.floordiv)
    __rfloordiv__ = _reflected(operator.floordiv)
    __mod__ = _method(operator.mod)
    __rmod__ = _reflected(operator.mod)

    @override
    def __divmod__(self, other: int) -> Any:
        return self // other, self % other

    @override
    def __pow__(self, power: int, modulo: int | None = None) -> Any:
        if modulo is None and type(power) is int and power >= 0:
            return math.prod([self] * power)
        return int.__pow__(self, power, modulo)

    @override
    def __neg__(self) -> Any:
        return self * -1

    @override
    def __pos__(self) -> Any:
        return self

    @override
    def __abs__(self) -> Any:
        return largest(self, -self)

    @override
    def __repr__(self) -> str:
        return str(self.expr)

    __str__ = __repr__


def smallest(*values: int) -> int:
    """``min`` that knows expressions: Python's would choose by the sample."""
    return functools.reduce(functools.partial(_choose, "min"), values)


def largest(*values: int) -> int:
    """``max`` that knows expressions."""
    return functools.reduce(functools.partial(_choose, "max"), values)


def _choose(name: str, left: int, right: int) -> int:
    value = _FOLD[name](int(left), int(right))
    carrier = left if isinstance(left, SizeInt) else right
    if not isinstance(carrier, SizeInt):
        return value
    chosen: int = carrier.carry(value, apply(name, Expr.of(left), Expr.of(right)))
    return chosen
