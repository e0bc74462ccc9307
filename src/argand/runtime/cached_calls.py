"""runtime.cached_calls: the call of a function with a cache, as guards make it."""

from __future__ import annotations

import weakref
from typing import Any, Final, final

import torch

from argand.runtime import _native
from argand.support.dataclass import dataclass

GONE: Final = "an argument of a cached function is gone"


@final
@dataclass(frozen=True, slots=True)
class Held:
    """An argument that a cache knows by identity; it is not kept alive."""

    reference: weakref.ref[Any]


@final
@dataclass(frozen=True, slots=True)
class CallWith:
    """Calls a function with constants and objects; `kinds` keeps 1 and 1.0 apart."""

    args: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    kinds: str

    __name__ = "cached"

    def __call__(self, function: Any) -> Any:
        """What the function gives. Dispatch is off: what a cache keeps must be no fake."""
        args = [_found(value) for value in self.args]
        keywords = {name: _found(value) for name, value in self.keywords}
        with torch._C._DisableTorchDispatch():
            return _native.disabled(function)(*args, **keywords)


def _found(value: Any) -> Any:
    if type(value) is not Held:
        return value
    found = value.reference()
    if found is None:  # the guard on it fails as well
        raise ReferenceError(GONE)
    return found
