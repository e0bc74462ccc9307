"""capture.size_plan: which sizes of a frame are open, and what its attempts learn about them.

In: the user's choice (`dynamic=`, marks), the places whose size varied, and what stopped an attempt. Out: for each
place a symbol, an expression of other symbols, or the size of this call, with the reason. A plan outlives the
attempts on one frame: each restart of the trace knows more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, final

import torch

from argand.ops.sizes import Fact, Specialise, Unfit
from argand.runtime.guards import SIZE_MARKS, DictAttr, Item, Quotient, SizeOf, Source
from argand.support import events
from argand.support.errors import Break, CaptureBreak, CaptureError, Location, UserError
from argand.support.symbols import Expr, Symbol, compare

_STATE: Final = frozenset({"_parameters", "_buffers"})
LARGEST: Final = (65504.0, 3e38)  # float16 has none above the first, float32 and bfloat16 few above the second
_MANY: Final = 24  # restarts after which nothing stays open
_DIVISORS: Final = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 48, 56, 64)


@final
class SizeMark(NamedTuple):
    """What a user said about one dimension of a tensor."""

    kind: str  # dynamic, maybe, static
    minimum: int | None = None  # None: the size of the first call where that is 0 or 1, else 2
    maximum: int | None = None


@final
class Place(NamedTuple):
    """Where a size or a number is read: `x.shape[0]`, `self.length`."""

    name: str
    source: Source
    real: Any  # an int, or a float
    minimum: int = 2
    maximum: int | None = None


@final
@dataclass(slots=True)
class Plan:
    """The state of the sizes of one frame, over all attempts to trace it."""

    dynamic: bool | None
    varied: frozenset[str] = frozenset()  # places that had another size in an earlier call
    fixed: frozenset[str] = frozenset()  # places an earlier trace could not leave open
    pinned: dict[str, tuple[str, Location | None]] = field(default_factory=dict)
    given: dict[str, tuple[Expr, Location | None]] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    places: dict[Symbol, Place] = field(default_factory=dict)
    wishes: list[Fact] = field(default_factory=list)  # of the samples only
    required: set[str] = field(default_factory=set)
    restarts: int = 0

    def symbol(self, place: Place) -> Symbol:
        """The symbol of a place, the same in each attempt."""
        for symbol, known in self.places.items():
            if known.name == place.name:
                return symbol
        letter = "s" if type(place.real) is int else "f"
        made = Symbol(f"{letter}{len(self.places)}", place.minimum, place.maximum)
        self.places[made] = place
        return made

    def open_dimensions(self, source: Source, raw: torch.Tensor) -> list[tuple[int, Place]]:
        """The dimensions of a tensor whose size is not taken for good."""
        marks: dict[int, SizeMark] | None = getattr(raw, SIZE_MARKS, None)
        if self.dynamic is False or (not self.dynamic and not self.varied and not marks):
            return []
        state = type(raw) is torch.nn.Parameter or _is_state(source)
        if (state and not marks) or raw.is_conj() or raw.is_neg():
            return []
        found = []
        for dim, real in enumerate(raw.shape):
            mark = marks.get(dim) if marks else None
            name = f"{source}.shape[{dim}]"
            asked = mark is not None and mark.kind == "dynamic"
            wanted = mark.kind != "static" if mark else self.dynamic or name in self.varied
            low, high = (mark.minimum, mark.maximum) if mark else (None, None)
            low = (min(real, 2) if asked else 2) if low is None else low
            if asked and real >= low:
                self.required.add(name)
            if wanted and real >= low and (asked or name not in self.fixed):
                found.append((dim, Place(name, SizeOf(source, dim), real, low, high)))
        return found

    def opens_number(self, source: Source, raw: float, is_argument: bool) -> bool:
        """Whether an int or a float of the outside gets a symbol."""
        fits = raw >= 2 if type(raw) is int else abs(raw) < LARGEST[1]
        if not fits or self.dynamic is False or not (self.dynamic or self.varied):
            return False
        name = str(source)
        return (name in self.varied or (bool(self.dynamic) and is_argument)) and (
            name not in self.fixed and name not in self.pinned
        )

    def learn(self, cause: Specialise) -> None:
        """What stopped an attempt changes the next one. Raises UserError for sizes that must stay open."""
        self.restarts += 1
        if isinstance(cause, Unfit) and cause.wish:
            self.wishes.append(cause.fact)
            return
        if isinstance(cause, Unfit) and self.restarts < _MANY and self.accept(cause.fact):
            return
        if cause.symbols and not cause.symbols & self.places.keys():
            raise CaptureError(CaptureBreak(Break.B017, cause.where, what=cause.reason))
        symbols = cause.symbols if self.restarts < _MANY else self.places.keys()
        for symbol in symbols & self.places.keys() or self.places.keys():
            self.pin(self.places[symbol].name, cause.reason, cause.where)

    def need(self, facts: list[Fact]) -> None:
        """A call works only where these hold."""
        self.restarts += 1
        for fact in facts:
            if not self.accept(fact) or self.restarts > _MANY:
                self.close(f"the program needs {fact}")

    def close(self, reason: str) -> bool:
        """Leave nothing open; whether anything was."""
        found = [place.name for place in self.places.values() if place.name not in self.pinned]
        for name in found:
            self.pin(name, reason, None)
        return bool(found)

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
        """Where a size must be a multiple of a number (`s == 2 * (s // 2)`), that many times a symbol takes its place."""
        symbol, *others = fact.symbols
        place = self.places[symbol]
        for by in () if others else _DIVISORS:
            multiple = {symbol: Expr.of(symbol) * by}
            if place.real % by or place.real < 2 * by or fact.left.replace(multiple) != fact.right.replace(multiple):
                continue
            source, low, high = Quotient(place.source, by), -(-place.minimum // by), place.maximum
            part = Place(str(source), source, place.real // by, max(low, 2), high and high // by)
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
        """Facts and wishes with other expressions in the place of symbols, without those that go without saying."""
        for facts in self.facts, self.wishes:
            changed = [Fact(f.operator, f.left.replace(values), f.right.replace(values), f.where) for f in facts]
            facts[:] = [f for f in changed if f.symbols and compare(f.operator, f.left, f.right) is None]

    def pin(self, name: str, reason: str, where: Location | None) -> None:
        """Take the size of a place for good."""
        if name in self.required:
            raise UserError(
                f"{name} is marked dynamic, but the program fixes its size: {reason}",
                where=where,
                hint="remove the mark, or what depends on the size; argand.maybe_mark_dynamic lets the size be fixed",
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


def _is_state(source: Source) -> bool:
    """Whether a tensor is a parameter or buffer of a module."""
    base: Any = source
    while isinstance(base, Item | DictAttr):
        if isinstance(base, DictAttr) and base.name in _STATE:
            return True
        base = base.base
    return False


def _solve(difference: Expr, symbol: Symbol) -> Expr | None:
    """What a symbol must be for the difference to be zero, where it stands alone in it."""
    factor = dict(difference.terms).get((symbol,), 0)
    rest = difference - Expr.of(symbol) * factor
    if not factor or symbol in rest.symbols or any(times % factor for _, times in rest.terms):
        return None
    return Expr({product: -times // factor for product, times in rest.terms})


def marks_of(tensor: torch.Tensor, dims: int | Iterable[int] | None) -> list[int]:
    """The dimensions a user named, checked."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"sizes of tensors can be marked, got {type(tensor).__name__}")
    named = range(tensor.dim()) if dims is None else [dims] if isinstance(dims, int) else [*dims]
    for dim in named:
        if not -tensor.dim() <= dim < tensor.dim():
            raise IndexError(f"dimension {dim} of a tensor with {tensor.dim()} dimensions")
    return [dim % tensor.dim() for dim in named]


def _mark(tensor: torch.Tensor, dims: int | Iterable[int] | None, mark: SizeMark) -> None:
    found = {**getattr(tensor, SIZE_MARKS, {}), **dict.fromkeys(marks_of(tensor, dims), mark)}
    setattr(tensor, SIZE_MARKS, found)


def mark_dynamic(
    tensor: torch.Tensor, dim: int | Iterable[int], min: int | None = None, max: int | None = None
) -> None:
    """Compile for any size of these dimensions; an error if the program fixes one.

    Sizes below ``min`` are compiled on their own. It is 2 unless given, or the size here if that is 0 or 1.
    """
    if max is not None and max < (min or 2):
        raise ValueError(f"no size lies between {min or 2} and {max}")
    _mark(tensor, dim, SizeMark("dynamic", min, max))


def maybe_mark_dynamic(tensor: torch.Tensor, dim: int | Iterable[int]) -> None:
    """Compile for any size of these dimensions unless the program fixes one."""
    _mark(tensor, dim, SizeMark("maybe"))


def mark_static(tensor: torch.Tensor, dim: int | Iterable[int] | None = None) -> None:
    """Compile for each size of these dimensions (all: None) on its own."""
    _mark(tensor, dim, SizeMark("static"))
