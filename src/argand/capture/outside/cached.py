"""capture.outside.cached: what a function with a cache (`functools.lru_cache`) gives.

In: such a function and its arguments: constants, and objects from outside that a cache knows by identity, which is guarded.
Out: what it gives in Python, as a value from outside: the same object at each call, as long as the cache has it. Every later
call asks the function again, as the program does, and guards what it gives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from argand.capture.outside.kinds import PINNED, is_constant
from argand.capture.outside.world import World
from argand.capture.sizes.values import OpenSize
from argand.runtime import sources
from argand.runtime.cached_calls import CallWith, Held
from argand.runtime.guards import GuardKind
from argand.runtime.sources import MadeFrom
from argand.sizes.expressions import Symbol


def is_plain(world: World, value: Any) -> bool:
    """Whether an argument is the same in each call that the guards let through."""
    return is_constant(value) or isinstance(value, PINNED) or _is_known_by_identity(world, value)


def _is_known_by_identity(world: World, value: Any) -> bool:
    """Whether it comes from outside, and a cache tells it from others by nothing but what it is."""
    kind: Any = type(value)
    known = world.known.get(id(value))
    by_identity = kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__
    return known is not None and known.raw is value and by_identity and bool(kind.__weakrefoffset__)


def sizes_in(world: World, values: Iterable[Any]) -> frozenset[Symbol]:
    """The open sizes that keep arguments from being the same in each call; none if that takes more, or they must stay open."""
    found: set[Symbol] = set()
    for value in values:
        if isinstance(value, tuple) and not is_plain(world, value):
            inner = sizes_in(world, tuple.__iter__(value))
            if not inner:
                return frozenset()
            found |= inner
        elif type(value) is OpenSize:
            found |= value.expr.symbols
        elif not is_plain(world, value):
            return frozenset()
    places = world.sizes.plan.places
    required = any(places[s].name in world.sizes.plan.required for s in found if s in places)
    return frozenset() if required else frozenset(found)


def _argument(world: World, value: Any) -> Any:
    """An argument as guards keep it: an object is the one it was at each call, and not kept alive."""
    if is_constant(value) or isinstance(value, PINNED):
        return value
    place = sources.Object(value)
    world.guard(GuardKind.SAME_OBJECT, world.known[id(value)].source, world.key(place))
    return Held(place.reference)


def call_with(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallWith:
    """A call with these arguments."""
    kinds = ",".join(type(value).__name__ for value in (*args, *kwargs.values()))
    return CallWith(args, tuple(kwargs.items()), kinds)


def read_cached(world: World, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The trace's view of what the cache gives. Raises what the function raises."""
    source = world.source_of(function) or world.const(function)
    given = {name: _argument(world, value) for name, value in kwargs.items()}
    made = call_with(tuple(_argument(world, value) for value in args), given)
    raw = made(function)
    objects = any(type(value) is Held for value in (*made.args, *given.values()))
    if objects or not is_constant(raw):
        world.keep_off_disk(f"what the cache of {function.__wrapped__.__qualname__} holds")
    return world.read(world.child(MadeFrom, source, made), raw)
