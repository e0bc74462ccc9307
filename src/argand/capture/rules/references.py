"""capture.rules.references: weak references that a program makes."""

from __future__ import annotations

import weakref
from typing import Any

from argand.capture.markers import Args, Kwargs
from argand.capture.objects.tracer import Tracer
from argand.capture.outside.state import Outside
from argand.capture.rules.harmless import call_harmless
from argand.support.errors import Break, CaptureBreak


def check_referent(outside: Outside, value: Any) -> None:
    """What the trace made is made again after it: a weak reference to it is left to Python."""
    if not outside.is_outside(value):
        raise CaptureBreak(
            Break.B013,
            None,
            what=f"a weak reference to a {type(value).__name__} that was just made",
        )


def make(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`weakref.ref(value, callback)`."""
    if args:
        check_referent(tracer, args[0])
    return call_harmless(tracer, weakref.ref, args, kwargs)
