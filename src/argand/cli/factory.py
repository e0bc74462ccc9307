"""cli.factory: FILE.py:FUNCTION on a command line: a function that returns (model, inputs)."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from argand.report.ending import show_error
from argand.support.errors import UserError, guess

_HINT: Final = "it takes no arguments and returns a model and a tuple of its inputs"


def load(place: str) -> tuple[Any, tuple[Any, ...]]:
    """The model and its inputs, as the function gives them; what the file raises is printed, and exits."""
    path, separator, name = place.rpartition(":")
    if not separator or not Path(path).is_file():
        missing = path if separator else place
        hint = "name a file and a function in it, FILE.py:FUNCTION"
        if not Path(missing).is_file():
            raise UserError(f"there is no file {missing!r}", hint=hint)
        raise UserError(f"{place!r} is not FILE.py:FUNCTION", hint=hint)
    try:
        factory = getattr(_module(path), name, None)
        if not callable(factory):
            raise UserError(f"{path} has no function {name!r}", hint=_names(path, name))
        return _made(factory, place)
    except UserError:
        raise
    except Exception as error:
        show_error(error)
        raise SystemExit(1) from None


def _module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec.loader.exec_module(module)
    return module


def _names(path: str, name: str) -> str:
    held = vars(sys.modules[Path(path).stem])
    own = [n for n, value in held.items() if getattr(value, "__module__", "") == Path(path).stem]
    return guess(name, own) + (f"it has {', '.join(own)}" if own else "it has none")


def _made(factory: Callable[[], Any], place: str) -> tuple[Any, tuple[Any, ...]]:
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise UserError(
            f"{place} cannot be called without arguments: {error}", hint=_HINT
        ) from None
    made = factory()
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        raise UserError(f"{place} gave {type(made).__name__}, not (model, inputs)", hint=_HINT)
    model, inputs = made
    return model, inputs if isinstance(inputs, tuple) else (inputs,)
