"""capture.stored.rows: what `save` and `restore` agree on. Imports no more than a warm start needs."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, Final

import torch

from argand.runtime import state
from argand.runtime.disk.keys import state_part
from argand.runtime.guards import GuardKind
from argand.runtime.sources import Source

KINDS: Final[tuple[type, ...]] = Source.__args__  # by number, in this Argand
TENSORS: Final = (torch.Tensor, torch.nn.Parameter)
BY_TOKEN: Final = frozenset((GuardKind.TYPE_IS, GuardKind.ID_IS))


def functions_in(found: Any) -> list[types.FunctionType]:
    """The functions that a table holds under one name."""
    match found:
        case types.FunctionType():
            return [found]
        case staticmethod() | classmethod():
            return functions_in(found.__func__)
        case property():
            return [
                part
                for part in (found.fget, found.fset, found.fdel)
                if type(part) is types.FunctionType
            ]
        case functools.cached_property():
            return functions_in(found.func)
        case functools._lru_cache_wrapper():
            return functions_in(found.__wrapped__)
        case _:
            return []


def signature_text(function: Any) -> str:
    """The signature of a function, with its annotations."""
    return str(inspect.signature(function))


def state_text() -> list[str]:
    """torch's global state as text: what guards ask for, and what decides how torch takes operators apart."""
    return [*map(repr, state.snapshot()[1::2]), state_part()]
