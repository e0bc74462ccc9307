"""capture.generated.target: the text of a compiled function becomes the function.

In: text, the objects its names mean, and the user's place. Out: the function that runs instead of the frame. Its text
is kept for tracebacks as long as it lives. `checked` is what such functions call to look before they leap.
"""

from __future__ import annotations

import contextlib
import linecache
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from argand.capture.generated.torch_state import read_state, restore_state


def make_target(text: str, namespace: dict[str, Any], place: str) -> types.FunctionType:
    """The function `compiled` of the text."""
    name = f"<argand {place} #{id(namespace):x}>"
    exec(compile(text, name, "exec", dont_inherit=True), namespace)
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    made: types.FunctionType = namespace.pop("compiled")
    weakref.finalize(made, linecache.cache.pop, name, None)
    return made


def checked(graph: Callable[..., Any], inputs: tuple[Any, ...], wanted: Any, keep: bool) -> Any:
    """Outputs of a graph, or None if it raised or a check failed; then, or without `keep`, it leaves no trace."""
    state, random, outputs = read_state(), torch.get_rng_state(), None
    with contextlib.suppress(Exception):
        found = graph(*inputs)
        if all(bool(found[place]) is expected for place, expected in wanted):
            outputs = found
    if outputs is None or not keep:
        restore_state(state)
        torch.set_rng_state(random)
    return outputs
