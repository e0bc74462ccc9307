"""capture.sizes.fitting: a call fails on the samples; what has to hold for it to work?

In: a call on fakes, its error, and the open sizes of the attempt. If it works for the real sizes,
candidates of what it may need (equal sizes side by side, any equal sizes, divisors) are tried on that
one call, and the trace starts again with the first that works.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import torch

from argand.capture.sizes.frame_sizes import FrameSizes, tensors_in
from argand.sizes.expressions import Expr, Symbol
from argand.sizes.facts import Fact
from argand.sizes.plan import SizePlan
from argand.sizes.refusals import NeedFacts, Stop, fixing
from argand.sizes.table import SizeTable
from argand.support.errors import Location

_FACTORS: Final = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64)

AnyCallable = Callable[..., Any]


def explain_failure(
    sizes: FrameSizes, run: AnyCallable, args: Any, kwargs: Any, error: Exception
) -> None:
    """Raise what the next attempt needs to know; give back when the error is the program's own.

    If the call fails for the real sizes in other words than for the samples, these name sizes: the
    next attempt has the real ones.
    """
    table, place = sizes.table, sizes.place()
    shapes = [[table.express(n) for n in tensor.shape] for tensor in tensors_in((args, kwargs))]
    numbers = [table.express(n) for n in _integers((args, kwargs))]
    symbols = _symbols_in((*numbers, *itertools.chain(*shapes)))
    if not symbols:
        return
    name = getattr(run, "__name__", str(run))
    if symbols & table.unbacked:
        raise fixing(symbols & table.unbacked, f"whether {name} fits", place)
    failure = _failure(sizes, run, args, kwargs, table.reals)
    if failure is None:
        for facts in _guesses(table, shapes, numbers, symbols, place):
            values = _trial_samples(sizes, facts)
            if values is not None and _failure(sizes, run, args, kwargs, values) is None:
                raise Stop(NeedFacts(tuple(facts)))
        raise fixing(symbols, f"{name} works for some sizes only", place)
    if str(failure) != str(error):
        raise fixing(symbols, f"{name} raises {failure}", place)


def _symbols_in(numbers: Iterable[int]) -> set[Symbol]:
    found: set[Symbol] = set()
    for number in numbers:
        if type(number) is not int:
            found |= Expr.of(number).symbols
    return found


def _guesses(
    table: SizeTable,
    shapes: list[list[int]],
    numbers: list[int],
    symbols: set[Symbol],
    place: Location | None,
) -> Iterator[list[Fact]]:
    """What may have to hold, likely things first: equal sizes side by side, then any, then factors."""
    aligned = [
        pair
        for first, second in itertools.combinations(shapes, 2)
        for pair in zip(first[::-1], second[::-1], strict=False)
    ]
    everything = [*dict.fromkeys((*itertools.chain(*shapes), *numbers))]
    beside = _equalities(table, aligned, place)
    equal = _equalities(table, itertools.combinations(everything, 2), place)
    constant = [fact for fact in equal[::-1] if fact.left.constant is not fact.right.constant]
    few: list[list[Fact]] = []
    several: list[list[Fact]] = []
    for times in _FACTORS:
        fitting = [symbol for symbol in symbols if table.reals[symbol] % times == 0]
        facts = [Fact("==", Expr.of(symbol) % times, Expr.of(0), place) for symbol in fitting]
        few += [[fact] for fact in facts]
        several += [[*pair] for pair in itertools.combinations(facts, 2)]
    singles = [[fact] for fact in (*beside, *equal)]
    mixed = [[fact, *rest] for fact in constant for rest in few]
    yield from (guess for guess in (beside, *singles, *few, *mixed, *several, equal) if guess)


def _equalities(
    table: SizeTable, pairs: Iterable[tuple[int, int]], place: Location | None
) -> list[Fact]:
    """The pairs that are equal in the real call and differ in the fakes."""
    facts = [
        Fact("==", Expr.of(a), Expr.of(b), place)
        for a, b in pairs
        if int(a) != int(b) and table.real(a) == table.real(b)
    ]
    return [fact for fact in dict.fromkeys(facts) if fact.symbols]


def _trial_samples(sizes: FrameSizes, facts: list[Fact]) -> dict[Symbol, int] | None:
    """Samples for which facts hold, for a trial; None when it is not seen at once how."""
    plan = SizePlan(True, facts=list(sizes.plan.facts), given=dict(sizes.plan.given))
    plan.places = {**sizes.plan.places}
    for fact in facts:
        plan.accept(fact)
    table = SizeTable((), plan.facts)
    by_name = {place.name: symbol for symbol, place in plan.places.items()}
    given = {by_name[name]: expr for name, (expr, _) in plan.given.items()}
    for symbol, place in plan.places.items():
        if symbol not in given and place.name not in plan.pinned:
            bounds = symbol.minimum, symbol.maximum
            if table.try_symbol(symbol.name, place.real, *bounds) is None:
                return None
    values = {symbol: sizes.table.samples[symbol] for symbol in sizes.table.unbacked}
    values |= table.samples
    for symbol, place in plan.places.items():
        if place.name in plan.pinned:
            values[symbol] = place.real
    for symbol, expr in given.items():
        values[symbol] = expr.evaluate(values)
    return values


def _failure(
    sizes: FrameSizes, run: AnyCallable, args: Any, kwargs: Any, values: Mapping[Symbol, int]
) -> Exception | None:
    """What a call raises on fakes of other sizes."""
    mode = sizes.mode
    assert mode is not None
    unbacked = mode.unbacked
    mode.sizes = None
    mode.unbacked = None if unbacked is None else _two
    try:
        other_args, other_kwargs = _at_sizes(sizes, (args, kwargs), values)
        with torch.no_grad():
            run(*other_args, **other_kwargs)
    except Exception as error:
        return error
    finally:
        mode.sizes, mode.unbacked = sizes.table, unbacked
    return None


def _two(limit: int | None) -> int:
    """A size that depends on data, in a trial."""
    return 2


def _at_sizes(sizes: FrameSizes, value: Any, values: Mapping[Symbol, int]) -> Any:
    """Arguments with fakes and integers as they are for other sizes."""

    def move(item: Any) -> Any:
        return _at_sizes(sizes, item, values)

    if isinstance(value, torch.Tensor):
        shape, strides = ([move(n) for n in row] for row in (value.shape, value.stride()))
        return sizes.allocate(shape, strides, value.dtype)
    if type(value) is int:
        return Expr.of(sizes.table.express(value)).evaluate(values)
    if isinstance(value, tuple | list):
        return type(value)([move(item) for item in value])
    if type(value) is dict:
        return {key: move(item) for key, item in value.items()}
    if type(value) is slice:
        return slice(move(value.start), move(value.stop), move(value.step))
    return value


def _integers(value: Any) -> Iterator[int]:
    if type(value) is int:
        yield value
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _integers(item)
    elif type(value) is slice:
        yield from _integers((value.start, value.stop, value.step))
