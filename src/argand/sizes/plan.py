"""sizes.plan: which sizes of a frame are open, and what its attempts learn about them.

In: the user's choice (`dynamic=`, marks), the places whose size varied, and what stopped an attempt.
Out: for each place a symbol, an expression of other symbols, or the size of this call, with the
reason. A plan outlives the attempts on one frame: each restart of the trace knows more.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, NamedTuple, final

from argand.sizes.expressions import INT64_MAX, Expr, Symbol
from argand.sizes.facts import Fact
from argand.sizes.floats import LARGEST
from argand.sizes.refusals import FixSizes, NeedFacts, OtherSamples, Refusal
from argand.support import events
from argand.support.dataclass import dataclass
from argand.support.errors import Break, CaptureBreak, CaptureError, Location, UserError

_MANY: Final = 24  # restarts after which nothing stays open
_DIVISORS: Final = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 48, 56, 64)


@final
class SizePlace(NamedTuple):
    """Where a size or a number is read: `x.shape[0]`, `self.length`."""

    name: str
    source: Any  # where the tracer finds it; nothing here looks inside
    real: Any  # an int, or a float
    minimum: int = 2
    maximum: int | None = None
    divisor: int = 1  # this is what is found there over a number that divides it

    def part(self, by: int) -> SizePlace:
        """A place of its own for this size over a number that divides it."""
        low = max(-(-self.minimum // by), 2)
        high = None if self.maximum is None else self.maximum // by
        name = f"({self.name} // {by})"
        return SizePlace(name, self.source, self.real // by, low, high, self.divisor * by)


@final
@dataclass(slots=True)
class SizePlan:
    """The state of the sizes of one frame, over all attempts to trace it."""

    dynamic: bool | None
    varied: frozenset[str] = frozenset()  # places that had another size in an earlier call
    fixed: frozenset[str] = frozenset()  # places an earlier trace could not leave open
    pinned: dict[str, tuple[str, Location | None]] = field(default_factory=dict)
    given: dict[str, tuple[Expr, Location | None]] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    places: dict[Symbol, SizePlace] = field(default_factory=dict)
    wishes: list[Fact] = field(default_factory=list)  # of the samples only
    required: set[str] = field(default_factory=set)
    only_now: set[str] = field(default_factory=set)  # pinned places that other values leave open
    restarts: int = 0

    def symbol(self, place: SizePlace) -> Symbol:
        """The symbol of a place, the same in each attempt."""
        for symbol, known in self.places.items():
            if known.name == place.name:
                return symbol
        letter = "s" if type(place.real) is int else "f"
        made = Symbol(f"{letter}{len(self.places)}", place.minimum, place.maximum)
        self.places[made] = place
        return made

    @property
    def opens_nothing(self) -> bool:
        """Whether no place gets a symbol, marks aside."""
        return self.dynamic is False or not (self.dynamic or self.varied)

    def opens_number(self, name: str, raw: float, is_argument: bool) -> bool:
        """Whether an int or a float of the outside gets a symbol."""
        # guards and kernels compute with 64 bits
        fits = 2 <= raw <= INT64_MAX if type(raw) is int else abs(raw) < LARGEST[1]
        if not fits or name in self.fixed or name in self.pinned:
            return False
        return name in self.varied or (bool(self.dynamic) and is_argument)

    def learn(self, refusal: Refusal) -> None:
        """What stopped an attempt changes the next one. UserError for sizes that must stay open."""
        self.restarts += 1
        match refusal:
            case NeedFacts(facts):
                for fact in facts:
                    if not self.accept(fact) or self.restarts > _MANY:
                        self.close(f"the program needs {fact}")
            case OtherSamples(fact, is_wish):
                if is_wish:
                    self.wishes.append(fact)
                elif self.restarts >= _MANY or not self.accept(fact):
                    self._fix(FixSizes(fact.symbols, f"needs {fact}", fact.where))
            case FixSizes():
                self._fix(refusal)

    def _fix(self, refusal: FixSizes) -> None:
        if refusal.symbols and not refusal.symbols & self.places.keys():
            raise CaptureError(CaptureBreak(Break.B017, refusal.where, what=refusal.reason))
        symbols = refusal.symbols if self.restarts < _MANY else self.places.keys()
        for symbol in symbols & self.places.keys() or self.places.keys():
            self.pin(self.places[symbol].name, refusal.reason, refusal.where)
            if refusal.only_now:
                self.only_now.add(self.places[symbol].name)

    @property
    def open_places(self) -> list[str]:
        """The names of the places that have a symbol, or are given by one."""
        return [place.name for place in self.places.values() if place.name not in self.pinned]

    @property
    def never_open(self) -> set[str]:
        """The places that no other call need try to leave open."""
        return self.pinned.keys() - self.only_now

    def close(self, reason: str) -> None:
        """Leave nothing open."""
        for name in self.open_places:
            self.pin(name, reason, None)

    def accept(self, fact: Fact) -> bool:
        """Let the samples of the next attempt satisfy a fact; whether that makes a difference."""
        if fact.operator == "==" and fact.symbols <= self.places.keys():
            for symbol in sorted(fact.symbols, key=lambda s: -int(s.name[1:])):
                solved = _solve(fact.left - fact.right, symbol)
                if solved is not None:
                    self._give(symbol, solved, fact.where)
                    return True
            if self._divide(fact):
                return True
        if fact in self.facts:
            return False
        self.facts.append(fact)
        return True

    def _divide(self, fact: Fact) -> bool:
        """Where a size must be a multiple of a number, that many times a symbol takes its place.

        Such facts look like `s == 2 * (s // 2)`.
        """
        symbol, *others = fact.symbols
        place = self.places[symbol]
        for by in () if others else _DIVISORS:
            multiple = fact.replace({symbol: Expr.of(symbol) * by})
            if place.real % by or place.real < 2 * by or multiple.left != multiple.right:
                continue
            part = place.part(by)
            if place.name in self.required:
                self.required.add(part.name)
            self._give(symbol, Expr.of(self.symbol(part)) * by, fact.where)
            return True
        return False

    def _give(self, symbol: Symbol, value: Expr, where: Location | None) -> None:
        name = self.places[symbol].name
        if value.constant is not None:
            self.pin(name, f"the program needs {name} == {value}", where)
            return
        swap = {symbol: value}
        self.given = {n: (e.replace(swap), w) for n, (e, w) in self.given.items()}
        self.given[name] = value, where
        self._swap(swap)

    def _swap(self, values: dict[Symbol, Expr]) -> None:
        """Facts and wishes with expressions in the place of symbols; what is proven is dropped."""
        for facts in self.facts, self.wishes:
            changed = [fact.replace(values) for fact in facts]
            facts[:] = [fact for fact in changed if fact.symbols and fact.is_proven is None]

    def pin(self, name: str, reason: str, where: Location | None) -> None:
        """Take the size of a place for good."""
        if name in self.required:
            raise UserError(
                f"{name} is marked dynamic, but the program fixes its size: {reason}",
                where=where,
                hint="remove the mark, or what depends on the size; "
                "argand.maybe_mark_dynamic lets the size be fixed",
            )
        self.pinned[name] = reason, where
        place = next(p for p in self.places.values() if p.name == name)
        constant = Expr.of(int(place.real))
        swap = {symbol: constant for symbol, known in self.places.items() if known.name == name}
        # what was given by it is given by a number now, and so is fixed as well
        self.given = {n: (e.replace(swap), w) for n, (e, w) in self.given.items()}
        for given in [n for n, (e, _) in self.given.items() if e.constant is not None]:
            self.pinned.setdefault(given, (reason, where))
        self._swap(swap)
        events.count("dynamic.fixed", detail=name)
        events.artifact("dynamic", lambda: note(name, place.real, reason, where))


def note(name: str, real: float, reason: str, where: Location | None) -> str:
    """One line about a size that did not stay open."""
    return f"{name} is fixed at {real}: {reason}" + (f" [{where}]" if where else "")


def _solve(difference: Expr, symbol: Symbol) -> Expr | None:
    """What a symbol must be for the difference to be zero, where it stands alone in it."""
    factor = dict(difference.terms).get((symbol,), 0)
    rest = difference - Expr.of(symbol) * factor
    if not factor or symbol in rest.symbols or any(times % factor for _, times in rest.terms):
        return None
    return Expr({product: -times // factor for product, times in rest.terms})
