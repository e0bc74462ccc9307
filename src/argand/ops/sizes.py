"""ops.sizes: which symbolic size an integer in a fake's shape stands for (decision 0010).

Fakes have integer sizes. A dynamic dimension has a prime as its size in every fake, so that an integer met
in a shape, a stride or an aten argument can be looked up: a known value, or a product of known values and
a constant. In: symbols with their real sizes. Out: expressions of integers, and the facts relied upon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from typing_extensions import override

from argand.support.errors import Location
from argand.support.symbols import Expr, SizeInt, Symbol

# Small, so that fakes with four symbolic dimensions still fit the address space the system grants;
# not near the sizes programs have. Then smaller ones and larger ones, for sizes with bounds.
_FIRST: Final = 101
_HOLDS: Final = {
    "==": int.__eq__,
    "!=": int.__ne__,
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
}


def _primes(low: int, high: int) -> list[int]:
    return [n for n in range(low, high) if all(n % k for k in range(2, int(n**0.5) + 1))]


_CANDIDATES: Final = (
    *_primes(_FIRST, 400),
    *reversed(_primes(11, _FIRST)),
    *_primes(400, 5000),
)


class Specialise(BaseException):
    """These symbols cannot stay open: compile again with their sizes fixed. Raised by any stage.

    No ``Exception``: whoever falls back on an error must not swallow it.
    """

    def __init__(
        self, symbols: Iterable[Symbol], reason: str, where: Location | None = None
    ) -> None:
        self.symbols, self.reason, self.where = frozenset(symbols), reason, where
        super().__init__(f"{', '.join(sorted(s.name for s in self.symbols))}: {reason}")


@final
@dataclass(frozen=True, slots=True)
class Fact:
    """``left <operator> right``: true for the sizes of this call, and relied upon."""

    operator: str
    left: Expr
    right: Expr
    where: Location | None = field(default=None, compare=False)

    def holds(self, values: Mapping[Symbol, int]) -> bool:
        """Whether it is true for these sizes."""
        sides = self.left.evaluate(values), self.right.evaluate(values)
        return bool(_HOLDS[self.operator](*sides))

    @override
    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


class Unfit(Specialise):
    """A fact holds for the real sizes and not for the samples: choose other samples."""

    def __init__(self, fact: Fact) -> None:
        super().__init__(fact.left.symbols | fact.right.symbols, f"needs {fact}", fact.where)
        self.fact = fact


@final
class SizeTable:
    """The symbols of one graph, their samples in the fakes, and their sizes in the real call."""

    def __init__(self, avoid: Iterable[int] = (), facts: Iterable[Fact] = ()) -> None:
        self.samples: dict[Symbol, int] = {}  # the primes
        self.reals: dict[Symbol, int] = {}
        self.facts: list[Fact] = list(facts)
        self._avoid = frozenset(abs(n) for n in avoid if abs(n) > 10)
        self._known: dict[int, Expr] = {}  # values that are no products: sums, quotients
        self._least = 0  # integers below it need no look-up

    def symbol(self, name: str, real: int, minimum: int = 2, maximum: int | None = None) -> SizeInt:
        """A new symbol; its sample satisfies the facts known of it. Raises Unfit when none does."""
        made = Symbol(name, minimum, maximum)
        about = [f for f in self.facts if made in f.left.symbols | f.right.symbols]
        sample = self._sample(made, about)
        if sample is None:
            if about:
                raise Unfit(about[-1])
            raise Specialise([made], "no sample is left for it")
        self.samples[made], self.reals[made] = sample, real
        self._least = min(self._least or sample, sample)
        return SizeInt(sample, Expr.of(made))

    def _sample(self, symbol: Symbol, about: list[Fact]) -> int | None:
        taken = set(self.samples.values())
        for n in _CANDIDATES:
            if n in taken or n < symbol.minimum or (symbol.maximum or n) < n:
                continue
            if any(other % n == 0 for other in self._avoid):
                continue
            values = {**self.samples, symbol: n}
            if all(
                f.holds(values) for f in about if f.left.symbols | f.right.symbols <= values.keys()
            ):
                return n
        return None

    def size(self, value: int | Expr) -> int:
        """An expression as an int of the fakes; plain when constant."""
        expr = Expr.of(value)
        known = expr.constant
        return known if known is not None else SizeInt(expr.evaluate(self.samples), expr)

    def real(self, value: int | Expr) -> int:
        """What it is in the real call."""
        if type(value) is int:
            return value
        return Expr.of(value).evaluate(self.reals)

    def at(self, value: int | Expr) -> int:
        """What it is in the fakes of this table, as a plain int."""
        return Expr.of(value).evaluate(self.samples)

    def learn(self, value: int) -> int:
        """Remember a value that may be met again in a shape. Gives it back."""
        if isinstance(value, SizeInt):
            number, expr = (int(value), value.expr) if value >= 0 else (-int(value), (-value).expr)
            if len(expr.terms) > 1 or any(not isinstance(a, Symbol) for a in expr.terms[0][0]):
                self._known.setdefault(number, expr)
                if number > 1:
                    self._least = min(self._least, number)
        return value

    def express(self, number: int) -> int:
        """The integer with its expression, when it is a product of known values and a constant."""
        if number < self._least:
            return -self.express(-number) if -number >= self._least > 0 else number
        if isinstance(number, SizeInt) or not self._least:
            return number
        number = int(number)
        known = self._known.get(number)
        if known is not None:
            return SizeInt(number, known)
        expr, rest = Expr.of(1), number
        for symbol, prime in self.samples.items():
            while rest % prime == 0:
                expr, rest = expr * Expr.of(symbol), rest // prime
        for value in sorted(self._known, reverse=True):
            while value >= 11 and rest >= value and rest % value == 0:
                expr, rest = expr * self._known[value], rest // value
        return number if rest == number else SizeInt(number, expr * rest)

    def expressed(self, value: Any) -> Any:
        """The same for the integers in an argument, lists of them included."""
        if type(value) is int:
            return self.express(value)
        if isinstance(value, list | tuple):
            return type(value)([self.expressed(item) for item in value])
        return value

    def constrain(
        self, operator: str, left: int, right: int, where: Location | None = None
    ) -> None:
        """Rely on a fact about sizes, which becomes a guard. Raises Unfit when the samples refute it."""
        fact = Fact(operator, Expr.of(left), Expr.of(right), where)
        if not fact.left.symbols | fact.right.symbols or fact in self.facts:
            return
        if not fact.holds(self.reals):
            raise Specialise(fact.left.symbols | fact.right.symbols, f"{fact} is false now", where)
        if not fact.holds(self.samples):
            raise Unfit(fact)
        self.facts.append(fact)

    def twin(self) -> SizeTable:
        """The same symbols and known expressions with other samples, for a second, checking trace."""
        made = SizeTable((*self._avoid, *self.samples.values()), self.facts)
        for symbol, real in self.reals.items():
            made.symbol(symbol.name, real, symbol.minimum, symbol.maximum)
        for expr in self._known.values():
            made.learn(made.size(expr))
        return made
