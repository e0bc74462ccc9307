"""capture.sizes: sizes as values of the traced program.

In: reads of shapes and integers that a `Plan` leaves open. Out: `Size`, which computes like an int, decides
comparisons by the real size with a fact that becomes a guard, and fixes its size when its number itself is
needed. It is no subclass of int: no C code can read it past its methods.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, final

import torch

from argand.capture.floats import Float
from argand.capture.size_plan import LARGEST, Place, Plan, note
from argand.ops.fakes import FakeMode
from argand.ops.layout import new
from argand.ops.size_formulas import learn_slice
from argand.ops.sizes import Fact, SizeTable, Specialise
from argand.runtime.guards import Guard, GuardKind, Relation, Source, derived_strides, inner_first
from argand.support import events
from argand.support.errors import Location
from argand.support.symbols import Apply, Expr, SizeInt, Symbol

_COMPARED: Final = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
_COMPUTED: Final = ("add", "sub", "mul", "floordiv", "mod")
_SAME: Final = ("pos", "floor", "ceil", "trunc")
_NUMBER: Final = (
    "index int float hash str repr format round truediv rtruediv and rand or ror xor rxor invert rpow rlshift rrshift"
)


@final
class Size:
    """An integer of the program that is known at run time only."""

    __slots__ = ("expr", "owner")
    _argand_native = True

    def __init__(self, expr: Expr, owner: Sizes) -> None:
        self.expr, self.owner = expr, owner

    __class__ = property(lambda self: int)  # for `isinstance`

    def __getattr__(self, name: str) -> Any:
        """Methods of int that need the number."""
        return getattr(self.owner.fix(self.expr, f".{name}"), name)

    def __bool__(self) -> bool:
        return self.owner.decide("!=", self, 0)

    def __neg__(self) -> Any:
        return self.owner.value(self.expr * -1)

    def __abs__(self) -> Any:
        return self if self.owner.decide(">=", self, 0) else -self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __pow__(self, power: Any) -> Any:
        if type(power) is not int or not 0 <= power < 9:
            return self.owner.fix(self.expr, "**") ** power
        result: Any = 1
        for _ in range(power):
            result = self * result
        return result

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other if type(other) is int else self.owner.fix(self.expr, "<<") << other

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other if type(other) is int else self.owner.fix(self.expr, ">>") >> other


def expression(value: Any) -> Expr:
    """What an integer of the program stands for."""
    return value.expr if type(value) is Size else Expr.of(int(value))


def _computed(name: str, reflected: bool) -> Callable[..., Any]:
    function = getattr(operator, name)

    def method(self: Size, other: Any) -> Any:
        if isinstance(other, float):
            number = self.owner.fix(self.expr, f"a float ({name})")
            return function(other, number) if reflected else function(number, other)
        if not isinstance(other, int):
            return NotImplemented
        right = expression(other)
        pair = (right, self.expr) if reflected else (self.expr, right)
        return self.owner.value(function(*pair))

    return method


def _compared(name: str, symbol: str) -> Callable[..., Any]:
    def method(self: Size, other: Any) -> Any:
        if isinstance(other, float):
            return getattr(float(self.owner.fix(self.expr, "a comparison with a float")), name)(other)
        return self.owner.decide(symbol, self, other) if isinstance(other, int) else NotImplemented

    return method


def _needs_number(name: str) -> Callable[..., Any]:
    return lambda self, *args: getattr(self.owner.fix(self.expr, name), f"__{name}__")(*args)


for _name in _COMPUTED:
    setattr(Size, f"__{_name}__", _computed(_name, False))
    setattr(Size, f"__r{_name}__", _computed(_name, True))
for _name, _symbol in _COMPARED.items():
    setattr(Size, f"__{_name}__", _compared(f"__{_name}__", _symbol))
for _name in _SAME:
    setattr(Size, f"__{_name}__", lambda self: self)
for _name in _NUMBER.split():
    setattr(Size, f"__{_name}__", _needs_number(_name))


@final
class Claim:
    """A comparison of sizes that depend on data: true or false when the graph runs."""

    _argand_native = True

    def __init__(self, fact: Fact, node: Any) -> None:
        self.fact, self.node = fact, node

    __class__ = property(lambda self: bool)  # for `isinstance`

    def __bool__(self) -> bool:
        raise Specialise(self.fact.symbols, f"whether {self.fact}", self.fact.where)


@final
class Shape(tuple[Any, ...]):
    """A `torch.Size` that holds sizes."""

    _argand_native = True

    __class__ = property(lambda self: torch.Size)  # for `isinstance`

    def numel(self) -> Any:
        """The product."""
        total: Any = 1
        for size in self:
            total = size * total
        return total


@final
class Sizes:
    """The open sizes of one attempt to trace a frame."""

    def __init__(self, plan: Plan, place: Callable[[], Location | None]) -> None:
        self.plan, self._place = plan, place
        self.table = SizeTable((), plan.facts, place, plan.wishes)
        self.active = False
        self.sources: dict[Symbol, Source] = {}
        self.guards: list[Guard] = []
        self.mode: FakeMode | None = None
        self.reads_data = False  # sizes may depend on data: under `fullgraph`
        self.fresh: list[Symbol] = []  # symbols of sizes that depend on data, not seen by the recorder yet
        self._opened: dict[str, int] = {}

    # -- places ----------------------------------------------------------------------------------

    def open(self, place: Place) -> int:
        """The size at a place as an int of the fakes; plain when it is fixed."""
        found = self._opened.get(place.name)
        if found is None:
            found = self._opened[place.name] = self._open(place)
        return found

    def _open(self, place: Place) -> int:
        plan, source = self.plan, place.source
        symbol = plan.symbol(place)
        given = plan.given.get(place.name)
        if given is not None and place.name not in plan.pinned:
            for other in given[0].symbols - self.sources.keys():
                self.open(plan.places[other])
            size = self.table.size(given[0])
            if self.table.real(given[0]) == place.real and type(size) is not int:
                self.sources[symbol] = source
                self._relate(Fact("==", Expr.of(symbol), given[0], given[1]))
                return size
        if place.name in plan.pinned or given is not None:
            reason = plan.pinned.get(place.name, ("", given[1] if given else None))
            self.guards.append(Guard(GuardKind.EQUALS, source, place.real, reason[1]))
            return place.real
        self._activate()
        self.sources[symbol] = source
        self._relate(Fact(">=", Expr.of(symbol), Expr.of(symbol.minimum)))
        if symbol.maximum is not None:
            self._relate(Fact("<=", Expr.of(symbol), Expr.of(symbol.maximum)))
        return self.table.symbol(symbol.name, place.real, symbol.minimum, symbol.maximum)

    def open_float(self, place: Place) -> Float:
        """The float at a place."""
        self._activate()
        made = Float(place.source, place.real, frozenset([self.plan.symbol(place)]), self.guards, self._place)
        for bound in LARGEST:  # the types of elements that can hold it: others raise
            operator.lt(made, bound), operator.gt(made, -bound)
        return made

    def _activate(self) -> None:
        self.active = True
        if self.mode is not None:
            self.mode.sizes = self.table

    def depends_on_data(self, limit: int | None) -> int:
        """A size of a result that nobody knows before the graph runs."""
        self._activate()
        size = self.table.depends_on_data(limit)
        self.fresh += size.expr.symbols
        return size

    def fake(self, source: Source, raw: torch.Tensor) -> tuple[torch.Tensor, frozenset[int]] | None:
        """A fake of a tensor with open dimensions, and which these are; None: there are none."""
        wanted = self.plan.open_dimensions(source, raw)
        if not wanted:
            return None
        shape = list(raw.shape)
        for dim, place in wanted:
            shape[dim] = self.open(place)
        if all(type(n) is int for n in shape):
            free = frozenset(dim for dim, place in wanted if place.name in self.plan.pinned)
            fake = torch.empty_strided(raw.shape, raw.stride(), dtype=raw.dtype)
            return fake, free
        inner, strides = derived_strides(raw), list(raw.stride())
        for i in inner_first(raw):
            j = inner[i]
            if j is not None:
                strides[i] = strides[j] * (shape[j] or 1)
        fake = self.allocate(shape, strides, raw.dtype)
        return fake, frozenset(dim for dim, _ in wanted)

    def allocate(self, shape: Iterable[int], strides: Iterable[int], dtype: torch.dtype) -> torch.Tensor:
        """A fake; sizes that make it too large for the address space are fixed."""
        sizes, steps = [int(n) for n in shape], [int(n) for n in strides]
        try:
            return new(sizes, steps, dtype=dtype)
        except RuntimeError:
            raise Specialise(self.table.samples, f"a tensor of sizes {sizes} is too large") from None

    # -- values ----------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Any:
        """What the program sees of an expression."""
        known = expr.constant
        return Size(expr, self) if known is None else known

    def wrap(self, value: Any) -> Any:
        """What the program sees of integers read from fakes."""
        if type(value) is int or isinstance(value, SizeInt):
            found = self.table.express(value)
            return self.value(found.expr) if isinstance(found, SizeInt) else found
        if isinstance(value, tuple | list) and type(value) in (torch.Size, tuple, list):
            items = [self.wrap(item) for item in value]
            if any(type(item) is Size for item in items):
                return Shape(items) if type(value) is torch.Size else type(value)(items)
        return value

    def lower(self, value: Any) -> Any:
        """Arguments as torch takes them on fakes."""
        kind = type(value)
        if kind is Size:
            return int(self.table.learn(self.table.size(value.expr)))
        if kind is Float:
            return value.real
        if kind is Shape:
            return torch.Size([self.lower(item) for item in value])
        if kind is tuple or kind is list:
            return kind([self.lower(item) for item in value])
        if kind is dict:
            return {key: self.lower(item) for key, item in value.items()}
        if kind is slice:
            return slice(*map(self.lower, (value.start, value.stop, value.step)))
        return value

    def slice(self, tensor: torch.Tensor, index: Any) -> None:
        """Learn from an index where slices end: torch drops those that take everything."""
        items = list(index) if isinstance(index, tuple) else [index]
        taken = [item.dim() if isinstance(item, torch.Tensor) and item.dtype is torch.bool
                 else item is not None and item is not ... for item in items]  # fmt: skip
        dim = 0
        for item, count in zip(items, taken, strict=True):
            if isinstance(item, slice):
                first, last = map(self.table.expressed, (item.start, item.stop))
                step = 1 if item.step is None else item.step
                learn_slice(self.table, self.table.express(tensor.shape[dim]), first, last, step)
            dim += tensor.dim() - sum(taken) if item is ... else count

    def decide(self, symbol: str, left: Any, right: Any) -> bool:
        """A comparison: true or false by the real sizes, which becomes a guard."""
        return self.table.decide(symbol, *[self._number(side) for side in (left, right)])

    def _number(self, value: Any) -> int:
        return self.table.size(value.expr) if type(value) is Size else int(value)

    def fix(self, expr: Expr, what: str) -> int:
        """The number itself is needed: a guard holds that of a quotient; else trace again with the size of this call."""
        if any(isinstance(atom, Apply) for product, _ in expr.terms for atom in product):
            self.table.decide("==", self.table.size(expr), self.table.real(expr))
            return self.table.real(expr)
        raise Specialise(expr.symbols, f"{expr} is needed as a number ({what})", self._place())

    def fix_all(self, tensors: Iterable[torch.Tensor], what: str) -> None:
        """An answer about several tensors depends on all their sizes."""
        found = [self.table.express(n) for tensor in tensors for n in tensor.shape]
        symbols = {s for n in found if isinstance(n, SizeInt) for s in n.expr.symbols}
        if symbols:
            raise Specialise(symbols, f"{what} compares sizes", self._place())

    # -- shapes that only fit for the real sizes -----------------------------------------------------

    def mend(self, run: Callable[..., Any], args: Any, kwargs: Any, error: Exception) -> None:
        """A call failed on fakes: if it works for the real sizes, trace again with what it needs.

        If it fails for them in other words, these name sizes: trace again with the real ones.
        """
        tensors = list(tensors_in((args, kwargs)))
        shapes = [[self.table.express(n) for n in tensor.shape] for tensor in tensors]
        numbers = [self.table.express(n) for n in _integers((args, kwargs))]
        everything = [*numbers, *itertools.chain(*shapes)]
        symbols = {s for n in everything if type(n) is not int
                   for s in Expr.of(n).symbols}  # fmt: skip
        if not symbols:
            return
        name = getattr(run, "__name__", str(run))
        if symbols & self.table.unbacked:
            raise Specialise(symbols & self.table.unbacked, f"whether {name} fits", self._place())
        failure = self._failure(run, args, kwargs, self.table.reals)
        if failure is None:
            for facts in self._guesses(shapes, numbers, symbols):
                values = self._samples(facts)
                if values is not None and self._failure(run, args, kwargs, values) is None:
                    raise Again(facts)
            raise Specialise(symbols, f"{name} works for some sizes only", self._place())
        if str(failure) != str(error):
            raise Specialise(symbols, f"{name} raises {failure}", self._place())

    def _guesses(self, shapes: list[list[int]], numbers: list[int], symbols: set[Symbol]) -> Iterator[list[Fact]]:
        """What may have to hold, likely things first: equal sizes side by side, then any, then factors."""
        aligned = [pair for i, first in enumerate(shapes) for second in shapes[i + 1 :]
                   for pair in zip(first[::-1], second[::-1], strict=False)]  # fmt: skip
        everything = [*dict.fromkeys((*itertools.chain(*shapes), *numbers))]
        pairs = [(a, b) for i, a in enumerate(everything) for b in everything[i + 1 :]]
        beside, equal = self._equalities(aligned), self._equalities(pairs)
        constant = [f for f in equal[::-1] if f.left.constant is not f.right.constant]
        place = self._place()
        few: list[list[Fact]] = []
        several: list[list[Fact]] = []
        for times in (2, 3, 4, 5, 6, 7, 8, 16, 32, 64):
            fitting = [s for s in symbols if self.table.reals[s] % times == 0]
            facts = [Fact("==", Expr.of(s) % times, Expr.of(0), place) for s in fitting]
            few += [[fact] for fact in facts]
            several += [[*pair] for pair in itertools.combinations(facts, 2)]
        singles = [[fact] for fact in (*beside, *equal)]
        mixed = [[fact, *rest] for fact in constant for rest in few]
        yield from (g for g in (beside, *singles, *few, *mixed, *several, equal) if g)

    def _equalities(self, pairs: Iterable[tuple[int, int]]) -> list[Fact]:
        place, real = self._place(), self.table.real
        facts = [Fact("==", Expr.of(a), Expr.of(b), place) for a, b in pairs
                 if int(a) != int(b) and real(a) == real(b)]  # fmt: skip
        return [fact for fact in dict.fromkeys(facts) if fact.symbols]

    def _samples(self, facts: list[Fact]) -> dict[Symbol, int] | None:
        """Samples for which facts hold, for a trial; None when it is not seen at once how."""
        plan = Plan(True, facts=list(self.plan.facts), given=dict(self.plan.given))
        plan.places = {**self.plan.places}
        for fact in facts:
            plan.accept(fact)
        table = SizeTable((), plan.facts)
        by_name = {place.name: symbol for symbol, place in plan.places.items()}
        given = {by_name[name]: expr for name, (expr, _) in plan.given.items()}
        try:
            for symbol, place in plan.places.items():
                if symbol not in given and place.name not in plan.pinned:
                    table.symbol(symbol.name, place.real, symbol.minimum, symbol.maximum)
        except Specialise:
            return None
        values = {**{symbol: self.table.samples[symbol] for symbol in self.table.unbacked}, **table.samples}
        for symbol, place in plan.places.items():
            if place.name in plan.pinned:
                values[symbol] = place.real
        for symbol, expr in given.items():
            values[symbol] = expr.evaluate(values)
        return values

    def _failure(
        self, run: Callable[..., Any], args: Any, kwargs: Any, values: Mapping[Symbol, int]
    ) -> Exception | None:
        """What a call raises on fakes of other sizes."""
        mode = self.mode
        assert mode is not None
        mode.sizes, unbacked = None, mode.unbacked
        mode.unbacked = None if unbacked is None else lambda _: 2
        try:
            other = self.moved((args, kwargs), values)
            with torch.no_grad():
                run(*other[0], **other[1])
        except Exception as error:
            return error
        finally:
            mode.sizes, mode.unbacked = self.table, unbacked
        return None

    def moved(self, value: Any, values: Mapping[Symbol, int]) -> Any:
        """Arguments with fakes and integers as they are for other sizes."""
        if isinstance(value, torch.Tensor):
            steps = [self.moved(n, values) for n in value.stride()]
            sizes = [self.moved(n, values) for n in value.shape]
            return self.allocate(sizes, steps, value.dtype)
        if type(value) is int:
            return Expr.of(self.table.express(value)).evaluate(values)
        if isinstance(value, tuple | list):
            return type(value)([self.moved(item, values) for item in value])
        if type(value) is dict:
            return {key: self.moved(item, values) for key, item in value.items()}
        if type(value) is slice:
            return slice(*[self.moved(v, values) for v in (value.start, value.stop, value.step)])
        return value

    # -- guards ------------------------------------------------------------------------------------

    def _relate(self, fact: Fact) -> None:
        source = self.sources[min(fact.symbols, key=lambda s: s.name)]
        sides = [self._side(side) for side in (fact.left, fact.right)]
        names = {s: Expr.of(Symbol(str(self.sources[s]), s.minimum, s.maximum)) for s in fact.symbols}
        text = f"{fact.left.replace(names)} {fact.operator} {fact.right.replace(names)}"
        relation = Relation(fact.operator, sides[0], sides[1], text)
        self.guards.append(Guard(GuardKind.RELATION, source, relation, fact.where))

    def _side(self, expr: Expr) -> Any:
        return tuple((times, tuple(map(self._factor, product))) for product, times in expr.terms)

    def _factor(self, atom: Symbol | Apply) -> Any:
        if isinstance(atom, Symbol):
            return self.sources[atom]
        return atom.name, self._side(atom.left), self._side(atom.right)

    def notes(self) -> tuple[str, ...]:
        """For people: the symbols with their places, and the places that did not stay open."""
        plan, table = self.plan, self.table
        lines = [f"{symbol} = {self.sources[symbol]}, now {table.reals[symbol]}" for symbol in table.reals
                 if symbol in self.sources]  # fmt: skip
        for symbol, place in plan.places.items():
            if type(place.real) is float and place.name not in plan.pinned:
                lines.append(f"{symbol} = {place.name}, now {place.real}")
            if place.name in plan.pinned:
                lines.append(note(place.name, place.real, *plan.pinned[place.name]))
        if lines:
            events.artifact("dynamic", lambda: "\n".join(lines))
        return tuple(lines)

    def all_guards(self) -> list[Guard]:
        """Guards of the places, and of every fact the compiled code relies on."""
        known, self.guards = list(self.guards), []
        for fact in dict.fromkeys((*self.plan.facts, *self.table.facts)):
            if fact.symbols <= self.table.samples.keys() - self.table.unbacked:
                self._relate(fact)
        known, self.guards = known + self.guards, known
        return known


class Again(BaseException):
    """A call needs these facts: trace again."""

    def __init__(self, facts: list[Fact]) -> None:
        super().__init__(facts)
        self.facts = facts


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among arguments or results, those in containers included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple) and value:
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())


def _integers(value: Any) -> Iterator[int]:
    if type(value) is int:
        yield value
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _integers(item)
    elif type(value) is slice:
        yield from _integers((value.start, value.stop, value.step))
