"""support.later: modules that are loaded when something of them is first used.

In: a module's name. Out: an object with the module's attributes. For features that most programs do not use, in modules
that all programs load; where such a module is used in one function, an import in the function says the same.

    if TYPE_CHECKING:
        from argand.native.codegen.math import error
    else:
        error = later("argand.native.codegen.math.error")

What reads the sources (mypy, the checks of the rooms' order) sees an import like any other. It must not be used at import.
"""

from __future__ import annotations

import importlib
from typing import Any, final


@final
class _Later:
    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        self.__dict__[name] = value  # the next time it is found at once
        return value


def later(name: str) -> Any:
    """What stands for a module until something of it is used. Its attributes are those of the first use."""
    return _Later(name)
