"""capture.target: the text of a compiled function becomes the function.

In: text, the objects its names mean, and the user's place. Out: the function that runs instead of the frame. Its text
is kept for tracebacks as long as it lives.
"""

from __future__ import annotations

import linecache
import types
import weakref
from typing import Any


def make_target(text: str, namespace: dict[str, Any], place: str) -> types.FunctionType:
    """The function `compiled` of the text."""
    name = f"<argand {place} #{id(namespace):x}>"
    exec(compile(text, name, "exec"), namespace)
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    made: types.FunctionType = namespace.pop("compiled")
    weakref.finalize(made, linecache.cache.pop, name, None)
    return made
