"""support.unsupported: what the public names are where Argand cannot run.

In: the error that loading a name met.  Out: the clear error for it, and with ``ARGAND_UNSUPPORTED=eager`` names that
leave the user's functions as they are, so that a program runs uncompiled.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any, Final

from argand.support.errors import UnsupportedPython
from argand.support.options import read_environment

_EXTENSION: Final = "argand.runtime._native"
_MARKS: Final = frozenset(
    {"graph_break", "reset", "mark_dynamic", "mark_static", "maybe_mark_dynamic"}
)
_DECORATORS: Final = frozenset({"allow_in_graph", "assume_constant_result", "disable"})


def reason(error: Exception) -> UnsupportedPython | None:
    """The message for the user; None: the error has another cause."""
    if isinstance(error, UnsupportedPython):
        return error
    try:
        importlib.import_module("argand.bytecode.supported").check()
    except UnsupportedPython as found:
        return found
    missing = f"{getattr(error, 'name', '')} {error}"
    if _EXTENSION not in missing and "_native" not in missing:
        return None
    what = (
        f"Argand's C extension ({_EXTENSION}) is missing or was built for another Python: {error}"
    )
    hint = "install the package again for this interpreter; ARGAND_UNSUPPORTED=eager leaves functions uncompiled"
    return UnsupportedPython(what, hint=hint)


def stand_in(name: str, why: UnsupportedPython) -> Any:
    """What `argand.name` is: it raises when it is called, or does as little as it can if the environment says so."""
    if name in {"compile", "compile_in_place"}:
        return functools.partial(_compile, why)
    if read_environment().unsupported != "eager":
        raise why
    if name == "is_compiling":
        return lambda: False
    if name in _MARKS:
        return lambda *args, **kwargs: None
    if name in _DECORATORS:
        return lambda function=None, **kwargs: (
            (lambda given: given) if function is None else function
        )
    raise why


@functools.cache
def _warn(text: str) -> None:
    warnings.warn(f"{text}\n  functions run uncompiled", RuntimeWarning, stacklevel=4)


def _compile(why: UnsupportedPython, model: Any = None, **keywords: Any) -> Any:
    if model is None:
        decorator: Callable[[Any], Any] = functools.partial(_compile, why, **keywords)
        return decorator
    environment = read_environment()
    if keywords.get("disable") or environment.disable:
        return model
    if environment.unsupported != "eager":
        raise why
    _warn(why.what)
    return model
