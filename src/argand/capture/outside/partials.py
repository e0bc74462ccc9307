"""capture.outside.partials: a `functools.partial` from outside, as the trace sees it.

In: the partial and where it is found. Out: one over what the trace sees of its function and arguments. The thunk of a
resume function is one: of its arguments those are read that the function uses.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from argand.bytecode import append_only, collected_on_stack, is_resume, used_names
from argand.capture.outside.reader import WorldReader
from argand.runtime.guards import GuardKind
from argand.runtime.sources import Attr, Item, Source


def read_partial(world: WorldReader, source: Source, raw: functools.partial[Any]) -> Any:
    """The trace's view of a partial."""
    function = world.attribute(source, "func", raw.func)
    args = _arguments(world, source, raw)
    keywords = world.attribute(source, "keywords", raw.keywords)
    value: Any = functools.partial(lambda: None)  # a partial of a partial would be flattened
    value.__setstate__((function, tuple(args), dict(keywords), {}))
    return world.register(source, raw, value)


def _arguments(world: WorldReader, source: Source, raw: functools.partial[Any]) -> tuple[Any, ...]:
    """What a partial holds. A waiting resume function says itself which of its arguments matter."""
    place = world.child(Attr, source, "args")
    code = raw.func.__code__ if type(raw.func) is types.FunctionType else None
    if code is None or not is_resume(code):
        found: tuple[Any, ...] = world.read(place, raw.args)
        return found
    world.guard(GuardKind.LENGTH, place, len(raw.args))
    used, grown = used_names(code), append_only(code) | collected_on_stack(code)
    values: list[Any] = []
    for i, (name, item) in enumerate(zip(code.co_varnames, raw.args, strict=False)):
        read = world.appended if name in grown else world.read
        values.append(read(world.child(Item, place, i), item) if name in used else None)
    return tuple(values)
