"""cli.factory: FILE.py:FUNCTION on a command line: a function that returns (model, inputs)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from argand.support.errors import UserError


def load(place: str) -> Any:
    """The function."""
    path, separator, name = place.partition(":")
    if not separator or not Path(path).is_file():
        raise UserError(f"{place!r} is not FILE.py:FUNCTION", hint="name a file and a function in it")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    factory = getattr(module, name, None)
    if factory is None:
        raise UserError(f"{path} has no function {name!r}")
    return factory
