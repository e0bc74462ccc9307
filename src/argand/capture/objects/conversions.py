"""capture.objects.conversions: mappings as dicts and values as text, with the methods of their classes interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from argand.capture.objects import callbacks, operate, polyfills
from argand.capture.objects.methods import PLAIN, lookup, python_method
from argand.capture.objects.parts import Caller
from argand.capture.outside import real
from argand.capture.outside.kinds import is_trusted_module
from argand.capture.outside.state import Outside
from argand.support.errors import Break, CaptureBreak

_HOLDING: Final = (list, tuple, dict, set, frozenset, slice)


def as_dict(caller: Caller, value: Any) -> dict[Any, Any]:
    """`dict(value)` of a mapping."""
    if isinstance(value, dict):
        operate.check_readable(caller.world, value)
        if type(value) is dict or python_method(caller, value, "keys") is None:
            return value
    elif python_method(caller, value, "keys") is None:
        result: dict[Any, Any] = real.apply(dict, value)
        return result
    converted: dict[Any, Any] = caller.sealed(polyfills.mapping_to_dict, (value,), {})
    return converted


def formatted(caller: Caller, value: Any, conversion: str, spec: str | None) -> Any:
    """`format(value, spec)`, after `str` or `repr`; with spec None only the latter."""
    if isinstance(value, torch.Tensor):
        raise CaptureBreak(Break.B004, None, method="formatting")
    if not conversion and not spec and isinstance(value, _HOLDING):
        conversion = "str"
    if conversion:
        value = _converted(caller, value, conversion)
    elif type(value) not in PLAIN:
        found = python_method(caller, value, "__format__")
        if found is None and not spec:
            return formatted(caller, value, "str", None)
        if found is not None and not is_trusted_module(found.__module__):
            return caller.sealed(found, (value, spec), {})
    return value if spec is None else real.apply(format, value, spec)


def _is_of_contents(outside: Outside, value: Any, conversion: str) -> bool:
    """Whether a text of C code tells what an object holds, and not only which object it is."""
    names = ("__repr__", "__str__") if conversion == "str" else ("__repr__",)
    return any(lookup(outside, type(value), name) is not getattr(object, name) for name in names)


def _converted(caller: Caller, value: Any, conversion: str) -> Any:
    """`str(value)`, `repr(value)` or `ascii(value)`."""
    function: Callable[..., Any] = {"repr": repr, "ascii": ascii}.get(conversion, str)
    found = python_method(caller, value, f"__{conversion}__")
    plain = lookup(caller, type(value), "__str__") is object.__str__
    if found is None and conversion == "str" and plain and not isinstance(value, type):
        found = python_method(caller, value, "__repr__")
    shows = callbacks.shows_tensors(value)
    known = found is not None and is_trusted_module(found.__module__)
    if found is not None and (shows or not known) and found is not torch.nn.Module.__repr__:
        return caller.sealed(found, (value,), {})
    if shows and found is None and _is_of_contents(caller, value, conversion):
        raise CaptureBreak(Break.B004, None, method=f"{function.__name__}() of what holds a tensor")
    operate.check_readable(caller.world, value)
    callbacks.refuse(caller, value, callbacks.TEXT, "a text of objects")
    return real.apply(function, value)
