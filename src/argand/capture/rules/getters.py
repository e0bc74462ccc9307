"""capture.rules.getters: calls of what `operator.attrgetter`, `itemgetter` and `methodcaller` make.

In: such an object and its argument. Out: the attributes, items or result, read as Python code would read them.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, Final

from argand.capture.markers import Args, Kwargs
from argand.capture.objects import polyfills
from argand.capture.objects.tracer import Tracer
from argand.capture.outside.kinds import is_constant
from argand.capture.rules.harmless import call_harmless

KINDS: Final[dict[Any, Any]] = {
    operator.attrgetter: polyfills.get_attributes,
    operator.itemgetter: polyfills.get_items,
    operator.methodcaller: polyfills.call_named,
}


def call(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """operator.attrgetter, itemgetter, methodcaller: what they were made of says what they do."""
    tracer.world.pin(function)
    made: Any
    made, given = function.__reduce__()
    named: Kwargs = {}
    if isinstance(made, functools.partial):  # one with arguments by name
        made, given, named = made.func, (*made.args, *given), made.keywords
    if not is_constant((*given, *named.values())) or len(args) != 1 or kwargs:
        return call_harmless(tracer, function, args, kwargs)
    return tracer.call(KINDS[made], (args[0], given, named), {})
