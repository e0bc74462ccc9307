"""capture.sizes.frame_sizes: the open sizes of one attempt to trace a frame.

In: reads of shapes and integers that a `SizePlan` leaves open. Out: fakes with samples for sizes, `Size`
values of what the program reads of them, and the guards of everything that was relied upon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, final

import torch
from torch.utils import _pytree as pytree

from argand.capture.sizes.floats import Float
from argand.capture.sizes.places import open_dimensions, source_of, stride_places
from argand.capture.sizes.relations import relation
from argand.capture.sizes.values import OpenShape, OpenSize
from argand.ops.fakes import FakeMode, fake_at, fake_of
from argand.ops.layout import new
from argand.runtime.guards import Guard, GuardKind, Relation
from argand.runtime.levels import unwrapped
from argand.runtime.sources import Quotient, SizeOf, Source, StrideOf
from argand.runtime.strides import derived_strides, inner_first, next_inside
from argand.sizes.expressions import Apply, Expr, SizeInt, Symbol
from argand.sizes.facts import Fact
from argand.sizes.formulas import learn_slice
from argand.sizes.plan import SizePlace, SizePlan, note
from argand.sizes.refusals import FixSizes, Stop, fixing
from argand.sizes.table import SizeTable
from argand.support import events
from argand.support.errors import Location


@final
class OpenedTensor(NamedTuple):
    """A fake of a tensor with open sizes or strides, and which of them guards of their own check."""

    fake: torch.Tensor
    sizes: frozenset[int]
    strides: frozenset[int]


@final
class FrameSizes:
    """The open sizes of one attempt to trace a frame."""

    def __init__(self, plan: SizePlan, place: Callable[[], Location | None]) -> None:
        self.plan, self.place = plan, place
        self.table = SizeTable((), plan.facts, place, plan.wishes)
        self.active = False
        self.sources: dict[Symbol, Source] = {}
        self.guards: list[Guard] = []
        self.mode: FakeMode | None = None
        self.reads_data = False  # sizes may depend on data: under `fullgraph`
        self.fresh: list[
            Symbol
        ] = []  # symbols of sizes that depend on data, not seen by the recorder yet
        self._opened: dict[str, int] = {}

    # -- places ----------------------------------------------------------------------------------

    def open(self, place: SizePlace) -> int:
        """The size at a place as an int of the fakes; plain when it is fixed."""
        found = self._opened.get(place.name)
        if found is None:
            found = self._opened[place.name] = self._open(place)
        return found

    def _open(self, place: SizePlace) -> int:
        plan, source = self.plan, source_of(place)
        symbol = plan.symbol(place)
        given = plan.given.get(place.name)
        if given is not None and place.name not in plan.pinned:
            expr = self._known(given[0])
            size = self.table.size(expr)
            if self.table.real(expr) == place.real and type(size) is not int:
                self.sources[symbol] = source
                self._guard(Fact("==", Expr.of(symbol), expr, given[1]))
                return size
        if place.name in plan.pinned or given is not None:
            reason = plan.pinned.get(place.name, ("", given[1] if given else None))
            self.guards.append(Guard(GuardKind.EQUALS, source, place.real, reason[1]))
            return place.real
        self._activate()
        self.sources[symbol] = source
        self._guard(Fact(">=", Expr.of(symbol), Expr.of(symbol.minimum)))
        if symbol.maximum is not None:
            self._guard(Fact("<=", Expr.of(symbol), Expr.of(symbol.maximum)))
        return self.table.symbol(symbol.name, place.real, symbol.minimum, symbol.maximum)

    def _known(self, expr: Expr) -> Expr:
        """An expression in symbols that have a sample: others are fixed, or given by yet others."""
        sizes = {other: Expr.of(self.open(self.plan.places[other])) for other in expr.symbols}
        return expr.replace(sizes)

    def open_float(self, place: SizePlace) -> Float:
        """The float at a place."""
        self._activate()
        symbols = frozenset([self.plan.symbol(place)])
        made = Float(place.source, place.real, symbols, self.guards, self.place)
        made.guard_range()
        return made

    def _guard(self, fact: Fact) -> None:
        self.guards.append(relation(fact, self.sources))

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

    def fake(self, source: Source, raw: torch.Tensor) -> OpenedTensor | None:
        """A fake of a tensor with open sizes or strides; None: there are none."""
        wanted = open_dimensions(self.plan, source, raw)
        if not wanted and not self._has_open_strides(source, raw):
            return None
        shape = list(raw.shape)
        opened = {dim for dim, _ in wanted}
        self.table.meet(size for dim, size in enumerate(shape) if dim not in opened)
        for dim, place in wanted:
            shape[dim] = self.open(place)
        strides, guarded = self._strides(source, raw, shape)
        if all(type(n) is int for n in (*shape, *strides)):
            pinned = frozenset(dim for dim, place in wanted if place.name in self.plan.pinned)
            return OpenedTensor(fake_of(raw.detach()), pinned, guarded)
        fake = self.allocate(shape, strides, raw.dtype)
        if raw.storage_offset():
            fake = fake_at(raw.detach(), fake.shape, fake.stride())
        return OpenedTensor(fake, frozenset(opened), guarded)

    def _has_open_strides(self, source: Source, raw: torch.Tensor) -> bool:
        if self.plan.dynamic is False or not self.plan.varied or raw.is_conj() or raw.is_neg():
            return False
        places = stride_places(self.plan, source, raw).values()
        return any(place.name in self.plan.varied for place in places)

    def _strides(
        self, source: Source, raw: torch.Tensor, shape: Sequence[int]
    ) -> tuple[list[int], frozenset[int]]:
        """Strides for open sizes, and which of them have guards of their own.

        How dimensions lie in each other decides what operators do: whether memory is dense, in which order
        results lie. So strides that follow from no size stay larger than what lies inside of them.
        """
        strides, derived, inside = list(raw.stride()), derived_strides(raw), next_inside(raw)
        places = stride_places(self.plan, source, raw)
        guarded, before = set[int](), None
        for i in inner_first(raw):
            j, k = derived[i], inside[i]
            if j is not None:
                strides[i] = strides[j] * (shape[j] or 1)
            elif before is not None and raw.stride(i) == raw.stride(before):
                if type(strides[before]) is not int:
                    strides[i] = strides[before]
                    self.guards.append(_same_stride(source, i, before))
                    guarded.add(i)
            else:
                size = 1 if k is None else shape[k] or 1
                if i in places and (type(size) is not int or places[i].name in self.plan.varied):
                    strides[i] = self._open_stride(source, places[i], strides, size)
                    guarded.add(i)
                elif k is not None:
                    self.table.decide(">", strides[i], strides[k] * size)
                if before is not None:
                    self.table.decide(">", strides[i], strides[before])
            before = i
        return strides, frozenset(guarded)

    def _open_stride(
        self, source: Source, place: SizePlace, strides: Sequence[int], size: int
    ) -> int:
        """An open stride around a dimension of this size: there is room for more, or it overlaps itself."""
        if place.real > self.table.real(size):
            symbol = self.plan.symbol(place)
            self.table.expect(Fact(">", Expr.of(symbol), Expr.of(size), self.place()))
        count, inner = self.open(place), place.source.inner
        self.table.decide(">", count, size)
        if inner is None:
            return count
        self.guards.append(_whole_steps(source, place.source.dim, inner))
        return count * strides[inner]

    def allocate(
        self, shape: Iterable[int], strides: Iterable[int], dtype: torch.dtype
    ) -> torch.Tensor:
        """A fake; sizes that make it too large for the address space are fixed."""
        sizes, steps = [int(n) for n in shape], [int(n) for n in strides]
        try:
            return new(sizes, steps, dtype=dtype)
        except RuntimeError:
            reason = f"a tensor of sizes {sizes} is too large"
            raise fixing(self.table.samples, reason) from None

    # -- values ----------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Any:
        """What the program sees of an expression."""
        known = expr.constant
        return OpenSize(expr, self) if known is None else known

    def wrap(self, value: Any) -> Any:
        """What the program sees of integers read from fakes."""
        if type(value) is int or isinstance(value, SizeInt):
            found = self.table.express(value)
            return self.value(found.expr) if isinstance(found, SizeInt) else found
        if isinstance(value, tuple | list) and type(value) in (torch.Size, tuple, list):
            items = [self.wrap(item) for item in value]
            if any(type(item) is OpenSize for item in items):
                return OpenShape(items) if type(value) is torch.Size else type(value)(items)
        return value

    def lower(self, value: Any) -> Any:
        """Arguments as torch takes them on fakes."""
        kind = type(value)
        if kind is OpenSize:
            return int(self.table.learn(self.table.size(value.expr)))
        if kind is Float:
            return value.real
        if kind is OpenShape:
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
        taken = [_dimensions_taken(item) for item in items]
        dim = 0
        for item, count in zip(items, taken, strict=True):
            if isinstance(item, slice):
                size = self.table.express(tensor.shape[dim])
                first, last = map(self.table.expressed, (item.start, item.stop))
                step = 1 if item.step is None else item.step
                learn_slice(self.table, size, first, last, step)
            dim += tensor.dim() - sum(taken) if item is ... else count

    def decide(self, symbol: str, left: Any, right: Any) -> bool:
        """A comparison: true or false by the real sizes, which becomes a guard."""
        return self.table.decide(symbol, self._number(left), self._number(right), is_branch=True)

    def _number(self, value: Any) -> int:
        return self.table.size(value.expr) if type(value) is OpenSize else int(value)

    def fix(self, expr: Expr, what: str) -> int:
        """The number itself is needed: a guard holds that of a quotient.

        For anything else the frame is traced again with the size of this call.
        """
        if any(isinstance(atom, Apply) for product, _ in expr.terms for atom in product):
            self.table.decide("==", self.table.size(expr), self.table.real(expr))
            return self.table.real(expr)
        raise fixing(expr.symbols, f"{expr} is needed as a number ({what})", self.place())

    def fit(self, expr: Expr) -> None:
        """An expression goes into the graph: rely on it to fit 64 bits, as kernels compute with.

        Sizes of tensors and their products need no guard: memory is not that large, and a plan whose
        sizes overflow all the same says so. Integers of the program can be anything.
        """
        if any(_is_number(self.sources.get(symbol)) for symbol in expr.symbols):
            self.table.fit(expr)

    def keep_apart(
        self, floats: Iterable[Float], tensors: Iterable[torch.Tensor], result: Any
    ) -> None:
        """An operator gave an argument back: with these floats, so they are fixed.

        `dropout(x, 0.0)` is x itself. The call is no node of the graph then, so that no other value
        of the float would have an effect.
        """
        if not isinstance(result, torch.Tensor):
            return
        memory = unwrapped(result).untyped_storage()._cdata
        if any(unwrapped(tensor).untyped_storage()._cdata == memory for tensor in tensors):
            symbols = frozenset[Symbol]().union(*[number.symbols for number in floats])
            reason = "an operator gives its argument back"
            raise Stop(FixSizes(symbols, reason, self.place(), only_now=True))

    def fix_all(self, tensors: Iterable[torch.Tensor], what: str) -> None:
        """An answer about several tensors depends on all their sizes."""
        found = [self.table.express(n) for t in tensors for n in (*t.shape, *t.stride())]
        symbols = {s for n in found if isinstance(n, SizeInt) for s in n.expr.symbols}
        if symbols:
            raise fixing(symbols, f"{what} compares sizes", self.place())

    def fix_arguments(self, arguments: Any, what: str) -> None:
        """Numbers that a call nobody reads has made of samples: they hold for these arguments alone."""
        symbols: set[Symbol] = set()
        for value in pytree.tree_leaves(arguments):
            if type(value) is Float:
                symbols |= value.symbols
            elif type(value) is OpenSize:
                symbols |= value.expr.symbols
            elif isinstance(value, torch.Tensor):
                self.fix_all([value], what)
        if symbols:
            raise fixing(symbols, what, self.place())

    # -- guards and notes ------------------------------------------------------------------------

    def notes(self) -> tuple[str, ...]:
        """For people: the symbols with their places, and the places that did not stay open."""
        plan, table = self.plan, self.table
        lines = [
            f"{symbol} = {self.sources[symbol]}, now {real}"
            for symbol, real in table.reals.items()
            if symbol in self.sources
        ]
        for symbol, place in plan.places.items():
            if type(place.real) is float and place.name not in plan.pinned:
                lines.append(f"{symbol} = {place.name}, now {place.real}")
            if place.name in plan.pinned:
                lines.append(note(place.name, place.real, *plan.pinned[place.name]))
        if lines:
            events.artifact("dynamic", lambda: "\n".join(lines))
        return tuple(lines)

    def all_guards(self, facts_of_code: Iterable[Fact] = ()) -> list[Guard]:
        """Guards of the places, and of every fact the compiled code relies on."""
        backed = self.table.samples.keys() - self.table.unbacked
        table = self.table
        facts = dict.fromkeys((*self.plan.facts, *table.facts, *facts_of_code, *table.branches))
        relations = [relation(fact, self.sources) for fact in facts if fact.symbols <= backed]
        return [*self.guards, *relations]


def _is_number(source: Source | None) -> bool:
    """Whether a size is an integer of the program, not the size of a tensor."""
    while isinstance(source, Quotient):
        source = source.base
    return source is not None and not isinstance(source, SizeOf | StrideOf)


def _same_stride(source: Source, one: int, other: int) -> Guard:
    """The guard that two strides of a tensor are one."""
    left, right = StrideOf(source, one), StrideOf(source, other)
    row = Relation("==", ((1, (left,)),), ((1, (right,)),), f"{left} == {right}")
    return Guard(GuardKind.RELATION, left, row)


def _whole_steps(source: Source, dim: int, inner: int) -> Guard:
    """The guard that a stride is as many whole steps of the inner dimension as its place says."""
    stride, step = StrideOf(source, dim), StrideOf(source, inner)
    row = Relation("divides", ((1, (step,)),), ((1, (stride,)),), f"{step} divides {stride}")
    return Guard(GuardKind.RELATION, stride, row)


def floats_in(values: Iterable[Any]) -> Iterator[Float]:
    """The open floats among arguments, those in containers included."""
    for value in values:
        if type(value) is Float:
            yield value
        elif isinstance(value, list | tuple) and value:
            yield from floats_in(value)


def _dimensions_taken(item: Any) -> int:
    """How many dimensions one item of an index is about."""
    if isinstance(item, torch.Tensor) and item.dtype is torch.bool:
        return item.dim()
    return int(item is not None and item is not ...)


def is_tensors(result: Any) -> bool:
    """Whether a result is tensors and nothing else."""
    if isinstance(result, list | tuple):
        return all(map(is_tensors, result))
    return result is None or isinstance(result, torch.Tensor)


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among arguments or results, those in containers included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple) and value:
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())
