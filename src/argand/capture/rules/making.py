"""capture.rules.making: objects, classes and modules that C code or a library makes.

In: `__new__` of a C class, or an enumeration, and arguments. Out: what it makes; a graph break where that is a class or a
module, which would be the first call's at every call, or whose making runs code of users.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

from argand.capture.markers import Args, Kwargs
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import pure, real
from argand.capture.outside.world import World
from argand.capture.rules import references
from argand.capture.rules.harmless import MADE_OF_ITEMS, fresh_or_break, items_of
from argand.support.errors import Break, CaptureBreak


def call_enumeration(world: World, kind: Any, args: Args, kwargs: Kwargs) -> Any:
    """`Color(1)`, a member; an enumeration without members makes classes, `Enum("Color", "RED")`."""
    _leave_making(kind if not vars(kind).get("_member_map_", True) else None)
    return fresh_or_break(world, kind, (args, kwargs), real.call(kind, args, kwargs))


def call_new(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """`kind.__new__` of a C class: makes an object if it has no state that only C code sees."""
    if function.__self__ is weakref.ref and len(args) > 1:
        references.check_referent(tracer, args[1])
    kind = args[0] if args and isinstance(args[0], type) else object
    if not pure.is_own(kind):
        raise CaptureBreak(Break.B002, None, function=kind.__qualname__)
    if issubclass(kind, MADE_OF_ITEMS):
        args = (args[0], *[items_of(tracer, value) for value in args[1:]])
    _leave_making(
        function.__self__ if issubclass(function.__self__, type | types.ModuleType) else None
    )
    return real.call(
        function, *((args[:1], {}) if function is object.__new__ and args else (args, kwargs))
    )


def _leave_making(kind: type | None) -> None:
    """A break before a class, by its metaclass or enumeration, or a module is made: that may run code of users."""
    if kind is not None:
        raise CaptureBreak(
            Break.B013, None, what=f"{kind.__name__}, which makes classes or modules,"
        )
