"""capture.outside.cached: what a function with a cache (`functools.lru_cache`) gives.

In: such a function and its arguments. Out: what it gives in Python, as a value from outside: the same object at each call, as
long as the cache has it. Every later call asks the function again, as the program does, and guards what it gives.
"""

from __future__ import annotations

from typing import Any

from argand.capture.outside.kinds import PINNED, is_constant
from argand.capture.outside.world import World
from argand.runtime.cached_calls import CallWith
from argand.runtime.sources import MadeFrom


def is_plain(value: Any) -> bool:
    """Whether an argument is the same in each call that the guards let through."""
    return is_constant(value) or isinstance(value, PINNED)


def call_with(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallWith:
    """A call with these arguments."""
    kinds = ",".join(type(value).__name__ for value in (*args, *kwargs.values()))
    return CallWith(args, tuple(kwargs.items()), kinds)


def read_cached(world: World, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The trace's view of what the cache gives. Raises what the function raises."""
    source = world.source_of(function) or world.const(function)
    made = call_with(args, kwargs)
    raw = made(function)
    if not is_constant(raw):
        world.keep_off_disk(f"what the cache of {function.__wrapped__.__qualname__} holds")
    return world.read(world.child(MadeFrom, source, made), raw)
