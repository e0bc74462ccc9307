"""sizes.table: which symbolic size an integer in a fake's shape stands for.

Fakes have integer sizes. An open dimension has a prime as its size in every fake, so that an integer
met in a shape, a stride or an aten argument can be looked up: a known value, or a product of known
values and a constant. In: symbols with their real sizes. Out: expressions of integers, and the facts
relied upon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, final

from argand.sizes.expressions import INT64_MAX, INT64_MIN, Expr, SizeInt, Symbol
from argand.sizes.facts import HOLDS, OPPOSITE, Fact, compare, surplus
from argand.sizes.refusals import FixSizes, OtherSamples, Stop, fixing
from argand.sizes.samples import find_sample, has_large_sample
from argand.support.errors import Location

_SMALL: Final = 10  # numbers up to it are never taken for sizes
_LARGE: Final = 1 << 48  # nor are those above it: 2 ** 63 - 1 has small prime factors


@final
class SizeTable:
    """The symbols of one graph, their samples in the fakes, and their sizes in the real call."""

    def __init__(
        self,
        avoid: Iterable[int] = (),
        facts: Iterable[Fact] = (),
        place: Callable[[], Location | None] = lambda: None,
        wishes: Iterable[Fact] | None = None,
    ) -> None:
        self.samples: dict[Symbol, int] = {}
        self.reals: dict[Symbol, int] = {}
        self.facts: list[Fact] = []  # relied upon by the graph
        self.branches: list[Fact] = []  # by the program alone: the samples need not satisfy them
        self.constants: set[int] = set()  # integers that only look like sizes
        self.ambiguous: set[int] = set()  # integers that two different sizes are
        self.unbacked: set[Symbol] = set()  # they depend on data: unknown before the graph runs
        self.assumed: list[Fact] = []  # what is so for them, or checked when the graph runs
        self.place = place  # the user's line, while one is traced
        self._wanted = tuple(facts)  # samples have to satisfy them too
        # And these where possible; None: none are raised.
        self._wishes = None if wishes is None else tuple(wishes)
        self._fixed: set[int] = set()  # sizes of inputs that are not open
        self._avoid = frozenset(abs(n) for n in avoid if abs(n) > 10)
        # sample == prime * times: sizes that must be divisible have more than a prime
        self._primes: dict[Symbol, tuple[int, int]] = {}
        self._known: dict[int, Expr] = {}  # values that are no products: sums, quotients
        self._values: dict[Expr, int] = {}  # the same the other way, small ones too
        self._least = 0  # integers below it need no look-up

    def symbol(self, name: str, real: int, minimum: int = 2, maximum: int | None = None) -> SizeInt:
        """A new symbol; its sample satisfies the facts known of it. Stops when none does."""
        made = self.try_symbol(name, real, minimum, maximum)
        if made is None:
            symbol = Symbol(name, minimum, maximum)
            about = [fact for fact in self._wanted if symbol in fact.symbols]
            raise fixing([symbol], f"no sample fits {about[-1] if about else symbol}")
        return made

    def expect(self, fact: Fact) -> None:
        """Samples of symbols to come have to satisfy this fact too."""
        self._wanted = (*self._wanted, fact)

    def try_symbol(
        self, name: str, real: int, minimum: int = 2, maximum: int | None = None
    ) -> SizeInt | None:
        """The same; None when no sample fits."""
        made = Symbol(name, minimum, maximum)
        about = [fact for fact in self._wanted if made in fact.symbols]
        wishes = [fact for fact in self._wishes or () if made in fact.symbols]
        found = self._sample(made, real, about + wishes) if wishes else None
        if found is None:
            found = self._sample(made, real, about)
        if found is None:
            return None
        prime, times = found
        self._primes[made] = prime, times
        self.samples[made], self.reals[made] = prime * times, real
        self._least = min(self._least or prime, prime)
        return SizeInt(prime * times, Expr.of(made))

    def _sample(self, symbol: Symbol, real: int, about: list[Fact]) -> tuple[int, int] | None:
        taken = {prime for prime, _ in self._primes.values()}
        known = {real, *self._known}
        divided = (*self._avoid, *self._fixed)
        return find_sample(symbol, about, self.samples, taken, known, divided)

    def depends_on_data(self, limit: int | None) -> SizeInt:
        """A new symbol for a size between 0 and a limit (None: none; negative: for any integer)."""
        low, high = (INT64_MIN, None) if limit is not None and limit < 0 else (0, limit)
        made, before = Symbol(f"u{len(self.unbacked)}", low), self._wanted
        facts = () if high is None else (Fact("<=", Expr.of(made), Expr.of(self.express(high))),)
        self._wanted = (*before, *facts)
        size = self.try_symbol(made.name, 0, low)
        if size is not None:
            self.assumed += facts
        else:  # no sample is that small: then the limit is not known
            self._wanted = before
            size = self.symbol(made.name, 0, low)
        self.unbacked.add(made)
        self.reals[made] = size + 1  # of examples only: nothing is decided by it
        return size

    def assume(self, fact: Fact) -> None:
        """The graph checks this when it runs. Stops when the samples refute it."""
        if not fact.holds(self.samples):
            raise Stop(OtherSamples(fact))
        self.assumed.append(fact)

    def proven(self, operator: str, left: int | Expr, right: int | Expr) -> bool | None:
        """Whether a comparison holds for all sizes, or for none; None: unknown."""
        found = compare(operator, left, right)
        if found is not None or not self.assumed:
            return found
        if operator in ("==", "!="):
            apart = self.proven("<", left, right) or self.proven(">", left, right)
            return operator == "!=" if apart else None
        known = [
            surplus(fact.operator, fact.left, fact.right)
            for fact in self.assumed
            if fact.operator not in ("==", "!=")
        ]
        for name in (operator, OPPOSITE[operator]):
            goal = surplus(name, Expr.of(left), Expr.of(right))
            if any((goal - more).bounds()[0] >= 0 for more in known):
                return name == operator
        return None

    def size(self, value: int | Expr) -> int:
        """An expression as an int of the fakes; plain when constant."""
        expr = Expr.of(value)
        known = expr.constant
        return known if known is not None else SizeInt(expr.evaluate(self.samples), expr)

    def real(self, value: int | Expr) -> int:
        """What it is in the real call."""
        return value if type(value) is int else Expr.of(value).evaluate(self.reals)

    def at(self, value: int | Expr) -> int:
        """What it is in the fakes of this table, as a plain int."""
        return value if type(value) is int else Expr.of(value).evaluate(self.samples)

    def learn(self, value: int) -> int:
        """Remember a value that may be met again in a shape. Gives it back."""
        if isinstance(value, SizeInt):
            positive = value if value >= 0 else -value
            self._learn(int(positive), positive.expr)
        return value

    def _learn(self, number: int, expr: Expr) -> None:
        if len(expr.terms) == 1 and all(type(a) is Symbol for a in expr.terms[0][0]):
            return  # products of symbols are found by their primes
        other = self._look_alike(number)
        if other is not None and other != expr:
            self._wish(Fact("!=", expr, other))
            self.ambiguous.add(number)
        elif number <= _SMALL and self._wishes is not None and self.real(expr) in (0, 1):
            # sizes 0 and 1 are compiled on their own
            self.constrain("==", self.size(expr), self.real(expr))
        elif number not in self._known:
            self._values[expr] = number
            if number > _SMALL:
                self._known[number] = expr
                self._least = min(self._least, number)
                for fixed in self._fixed:
                    self._tell_apart(fixed, expr, number)
            elif self.real(expr) > 1:
                self._wish(Fact(">", expr, Expr.of(_SMALL)))

    def _look_alike(self, number: int) -> Expr | None:
        """What a number would be taken for: a known value, or symbols times a constant below all samples."""
        found = self.express(number)
        if number in self._known or not isinstance(found, SizeInt):
            return self._known.get(number)
        terms = found.expr.terms
        return found.expr if len(terms) == 1 and terms[0][1] < self._least else None

    def learn_strides(self, shape: Iterable[int]) -> None:
        """Products of sizes as a shape makes them: 22 * 21 is not to be taken for 42 * 11."""
        product = 1
        for number in reversed(tuple(shape)):
            product = self.learn(self.express(number) * product)

    def meet(self, tensor_sizes: Iterable[int]) -> None:
        """Sizes of an input that are not open: known values should not look like them."""
        for number in tensor_sizes:
            if number > 1 and number not in self._fixed:
                self._fixed.add(number)
                for value, expr in self._known.items():
                    self._tell_apart(number, expr, value)

    def _tell_apart(self, fixed: int, expr: Expr, value: int) -> None:
        if fixed % value == 0:
            self._wish(Fact("!=", Expr.of(fixed) % expr, Expr.of(0)))

    def _wish(self, fact: Fact) -> None:
        if self._wishes is not None and fact not in self._wishes:
            raise Stop(OtherSamples(fact, is_wish=True))

    def express(self, number: int) -> int:
        """The integer with its expression, when it is a product of known values and a constant."""
        if number < self._least:
            return -self.express(-number) if -number >= self._least > 0 else number
        if isinstance(number, SizeInt) or not self._least:
            return number
        if number in self.constants or number > _LARGE:
            return number
        number = int(number)
        known = self._known.get(number)
        if known is not None:
            return SizeInt(number, known)
        expr, rest, over = Expr.of(1), number, 1
        for symbol, (prime, times) in self._primes.items():
            while rest % prime == 0:
                expr, rest, over = expr * Expr.of(symbol), rest // prime, over * times
        for value in sorted(self._known, reverse=True):
            while rest >= value and rest % value == 0:
                expr, rest = expr * self._known[value], rest // value
        return number if rest == number else SizeInt(number, expr * rest // over)

    def expressed(self, value: Any) -> Any:
        """The same for the integers in an argument, lists of them included."""
        if type(value) is int:
            return self.express(value)
        if isinstance(value, list | tuple):
            return [self.expressed(item) for item in value]
        return value

    def decide(self, operator: str, left: int, right: int, is_branch: bool = False) -> bool:
        """Whether ``left <operator> right`` in the real call; relied upon unless it always is so.

        `is_branch`: the program asks, for itself.
        """
        proven = self.proven(operator, left, right)
        if proven is not None:
            return proven
        truth = bool(HOLDS[operator](self.real(left), self.real(right)))
        self.constrain(operator if truth else OPPOSITE[operator], left, right, is_branch=is_branch)
        return truth

    def constrain(self, operator: str, left: int, right: int, is_branch: bool = False) -> None:
        """Rely on a fact about sizes, which becomes a guard. Stops when the samples refute it.

        Not so for a branch of the program that only small samples would satisfy: operators do not
        know of it, and what depends on it all the same is found out by the runs for other sizes.
        Small samples look like constants of the program.
        """
        fact = Fact(operator, Expr.of(left), Expr.of(right), self.place())
        if not fact.symbols or fact in self.facts or fact in self.branches:
            return
        if fact.symbols & self.unbacked:
            if self.proven(operator, left, right):
                return
            raise fixing(fact.symbols & self.unbacked, f"whether {fact}", fact.where)
        if not fact.holds(self.reals):
            raise fixing(fact.symbols, f"{fact} is false now", fact.where)
        for side in (fact.left, fact.right):  # guards compute with 64 bits
            self._need_64_bits(side)
        if not fact.holds(self.samples):
            # a size that equals a number is fixed: better code is made for it then
            if is_branch and operator != "==" and not has_large_sample(fact, self.samples):
                self.branches.append(fact)
                return
            raise Stop(OtherSamples(fact))
        self.facts.append(fact)

    def _need_64_bits(self, expr: Expr) -> None:
        if not INT64_MIN <= self.real(expr) <= INT64_MAX:
            reason = f"{expr} needs more than 64 bits"
            raise Stop(FixSizes(expr.symbols, reason, self.place(), only_now=True))

    def fit(self, expr: Expr) -> None:
        """Rely on an expression to fit 64 bits, with which graphs compute. Stops when it does not."""
        self._need_64_bits(expr)
        for operator, limit in (("<=", INT64_MAX), (">=", INT64_MIN)):
            if self.proven(operator, expr, limit) is None:
                self.constrain(operator, self.size(expr), limit)

    @property
    def relied(self) -> list[Fact]:
        """The facts about its symbols that hold in each call."""
        facts = dict.fromkeys((*self._wanted, *self.facts, *self.branches))
        return [fact for fact in facts if fact.symbols <= self.samples.keys()]

    def state(self) -> tuple[Any, ...]:
        """All that another process needs to read integers as this table does, for ``restored``."""
        symbols = [(symbol, real, *self._primes[symbol]) for symbol, real in self.reals.items()]
        facts = [(fact.operator, fact.left, fact.right) for fact in self.relied]
        return symbols, [*self._values.items()], [*self.constants], [*self.ambiguous], facts

    @classmethod
    def restored(
        cls, symbols: Any, values: Any, constants: Any, ambiguous: Any, facts: Any
    ) -> SizeTable:
        """The table of a state; ValueError for one that would not end when integers are looked up."""
        numbers = [n for row in symbols for n in row[1:]] + [number for _, number in values]
        if any(type(n) is not int for n in numbers):
            raise ValueError("samples that are no sizes")
        if any(real < 0 or prime < 2 for _, real, prime, _ in symbols):
            raise ValueError("samples that are no sizes")
        made = cls(facts=[Fact(*row) for row in facts])
        for symbol, real, prime, times in symbols:
            made.samples[symbol], made.reals[symbol] = prime * times, real
            made._primes[symbol] = prime, times
        for expr, number in values:
            made._values[expr] = number
            if number > _SMALL:
                made._known.setdefault(number, expr)
        made.constants, made.ambiguous = set(constants), set(ambiguous)
        made._least = min((*(row[2] for row in symbols), *made._known), default=0)
        return made

    def copied(self) -> SizeTable:
        """The same table for somebody else, who may learn more; it does not know the user's line."""
        made = SizeTable(self._avoid, self._wanted, wishes=self._wishes)
        made.samples, made.reals = dict(self.samples), dict(self.reals)
        made.facts, made.branches = list(self.facts), list(self.branches)
        made.constants, made.ambiguous = set(self.constants), set(self.ambiguous)
        made.unbacked, made.assumed = set(self.unbacked), list(self.assumed)
        made._fixed, made._primes = set(self._fixed), dict(self._primes)
        made._known, made._values = dict(self._known), dict(self._values)
        made._least = self._least
        return made

    def small(self, size: int) -> SizeTable | None:
        """All symbols that may be 0 or 1 at this size; None where that cannot be."""
        made = SizeTable.at_values(
            {
                symbol: sample if symbol.minimum > 1 else max(size, symbol.minimum)
                for symbol, sample in self.samples.items()
            }
        )
        possible = all(fact.holds(made.samples) for fact in (*self.facts, *self.assumed))
        return made if possible and made.samples != self.samples else None

    def lowest(self) -> dict[Symbol, int] | None:
        """The smallest sizes for which the facts hold; None when they are not found at once.

        In another order than the samples, so that the smaller of two sizes is the other one.
        """
        facts = (*self._wanted, *self.facts, *self.assumed)
        values: dict[Symbol, int] = {}
        last = 0
        for symbol in sorted(self.samples, key=lambda symbol: -self.samples[symbol]):
            start = max(symbol.minimum, 2, min(last + 1, self.samples[symbol]))
            about = [fact for fact in facts if symbol in fact.symbols]
            for size in range(start, self.samples[symbol] + 1):
                known = {**values, symbol: size}
                if all(fact.holds(known) for fact in about if fact.symbols <= known.keys()):
                    values[symbol] = last = size
                    break
            else:
                return None
        return values if values != self.samples else None

    @staticmethod
    def at_values(values: Mapping[Symbol, int]) -> SizeTable:
        """A table that only tells what expressions are for these sizes."""
        made = SizeTable()
        made.samples = dict(values)
        return made

    def twin(self) -> SizeTable:
        """The same symbols and known expressions with other samples, for a second, checking trace."""
        primes = [prime for prime, _ in self._primes.values()]
        # a size that is the same number in both would pass for a constant
        known = [*self._values.items(), *((Expr.of(s), n) for s, n in self.samples.items())]
        differ = [Fact("!=", expr, Expr.of(number)) for expr, number in known]
        # far away, so that quotients which no formula explains differ as well
        far = [Fact(">", Expr.of(symbol), Expr.of(2 * n)) for symbol, n in self.samples.items()]
        facts = (*self._wanted, *self.facts, *self.assumed, *differ)
        wishes = (*(self._wishes or ()), *far)
        made = SizeTable((*self._avoid, *primes), facts, self.place, wishes)
        for symbol, real in self.reals.items():
            made.symbol(symbol.name, real, symbol.minimum, symbol.maximum)
        made._wishes, made.unbacked, made.assumed = None, self.unbacked, self.assumed
        for expr in self._known.values():
            made.learn(made.size(expr))
        return made
