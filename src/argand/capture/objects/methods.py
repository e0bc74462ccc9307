"""capture.objects.methods: which method a class has under a name, remembered for the trace and its guards."""

from __future__ import annotations

import functools
import types
from typing import Any, Final

import torch

from argand.capture.markers import END, MISSING
from argand.capture.outside.journal import DELETED, Journal
from argand.capture.outside.state import Outside
from argand.support.errors import Break, CaptureBreak

# Types whose operators never call Python code for themselves.
PLAIN: Final = frozenset(
    {int, float, bool, str, bytes, complex, type(None), tuple, list, dict, range, slice, torch.Size}
    | {torch.dtype, torch.device, type(...)}  # sets and deques of objects may be opaque
)

# Special methods that are C code, and that lead to Python code though they are no functions.
_NATIVE: Final = frozenset(
    {types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType}
)
_WRAPPERS: Final = frozenset({staticmethod, classmethod, types.MethodType, functools.partial})
_HOOKS: Final = ("__get__", "__call__")


def lookup(outside: Outside, kind: type, name: str) -> Any:
    """What a class or its bases hold under a name, not bound; MISSING if nothing."""
    if type(kind) is not type and type(kind).__hash__ is not type.__hash__:
        raise CaptureBreak(
            Break.B013, None, what="a class whose metaclass has a __hash__ of its own"
        )
    key = (kind, name)
    found = outside.classes.inherited.get(key, END)
    if found is END:
        found = MISSING
        for base in kind.__mro__ or ():  # none yet, while `mro` runs
            if name in base.__dict__:
                found = base.__dict__[name]
                break
        outside.classes.inherited[key] = found
    return _as_written(outside.journal, kind, name) if name in outside.journal.of_classes else found


def _as_written(journal: Journal, kind: type, name: str) -> Any:
    """The same after what the trace wrote to classes; `tracer.classes.inherited` says what it found there."""
    for base in kind.__mro__:
        found = journal.of_class(base, name, base.__dict__.get(name, MISSING))
        if found is not MISSING and found is not DELETED:
            return found
    return MISSING


def is_written(journal: Journal, kind: type, name: str) -> bool:
    """Whether what a class has under a name is what the trace put there, so that nothing outside is relied on."""
    return name in journal.of_classes and any(
        journal.of_class(base, name, MISSING) is not MISSING for base in kind.__mro__
    )


def unbound(function: Any) -> Any:
    """The C method of a class that a bound one came from, though subclasses may have another under its name."""
    if isinstance(function, types.MethodWrapperType):
        return function.__objclass__.__dict__[function.__name__]
    owner, name = function.__self__, function.__name__
    for base in type(owner).__mro__:
        found = base.__dict__.get(name)
        if type(found) is types.MethodDescriptorType and found.__get__(owner) == function:
            return found
    return MISSING


def python_method(outside: Outside, value: Any, name: str) -> types.FunctionType | None:
    """The Python function that implements a special method of a value, if it is one."""
    kind = type(value)
    if kind in PLAIN:
        return None
    found = lookup(outside, kind, name)
    if type(found) is types.FunctionType:
        return found
    check_native(outside, kind, name, found)
    return None


def check_native(outside: Outside, kind: type, name: str, found: Any) -> None:
    """Break at a special method that is no function but leads to one: native code would run it, unseen."""
    held = type(found)
    if found is MISSING or held in _NATIVE:
        return
    if held in _WRAPPERS or any(
        type(lookup(outside, held, hook)) is types.FunctionType for hook in _HOOKS
    ):
        raise CaptureBreak(Break.B013, None, what=f"{kind.__name__}.{name}, which is no function,")
