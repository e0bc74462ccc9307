"""capture.rules.copying: what `copy` asks of an object that it does not know: how to make another.

In: `__reduce_ex__` of an object. Out: its answer, where Python code or a container gives it, or it has attributes alone;
a graph break for what has a state that only C code sees.
"""

from __future__ import annotations

import collections
import copyreg
import types
from typing import Any, Final

from argand.capture.markers import MISSING, Args, Kwargs
from argand.capture.objects import attributes, operate
from argand.capture.objects.methods import lookup
from argand.capture.objects.parts import Caller
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.support.errors import Break, CaptureBreak

_PROTOCOLS: Final = (
    (2,),
    (3,),
    (4,),
    (5,),
)  # of copies and pickles: where `__reduce_ex__` asks classes
_CONTAINERS: Final = (
    *(set, frozenset, collections.deque, collections.OrderedDict, collections.defaultdict),
)


def reduce_ex(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`copy` asks an object how to make another: for those that only have attributes the answer is known here."""
    kind = type(args[0])
    if args[1:] in _PROTOCOLS and (found := _reduced(tracer, kind, args[0])) is not None:
        return found
    default = all(
        lookup(tracer, kind, name) is getattr(object, name, MISSING)
        for name in ("__reduce__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
    )
    made = lookup(tracer, kind, "__new__") is object.__new__ and args[1:] in _PROTOCOLS
    slots = any("__slots__" in vars(base) for base in kind.__mro__)
    state = (
        MISSING
        if not default or not made or slots
        else attributes.load_or(tracer, args[0], "__dict__", MISSING)
    )
    if state is MISSING:
        raise CaptureBreak(Break.B002, None, function=f"{kind.__name__}.__reduce_ex__")
    return copyreg.__newobj__, (kind,), state or None, None, None  # type: ignore[attr-defined]


def _reduced(caller: Caller, kind: type, value: Any) -> Any:
    """What `__reduce__` of a class says: Python's, or that of a container; a record's `__getnewargs__`. None: neither."""
    reduce = lookup(caller, kind, "__reduce__")
    if type(reduce) is types.FunctionType:
        return caller.sealed(reduce, (value,), {})
    if kind in _CONTAINERS:
        operate.check_readable(caller.world, value)
        return real.call(reduce, (value,), {})
    arguments = lookup(caller, kind, "__getnewargs__")
    plain = type(arguments) is types.FunctionType and tuple in kind.__mro__
    if not plain or reduce is not object.__reduce__ or hasattr(kind, "__getnewargs_ex__"):
        return None
    if kind.__dictoffset__:  # what it has beside its items
        return None
    made = caller.sealed(arguments, (value,), {})
    return copyreg.__newobj__, (kind, *made), None, None, None  # type: ignore[attr-defined]
