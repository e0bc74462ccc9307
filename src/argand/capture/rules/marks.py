"""capture.rules.marks: what users say about their functions, and what the trace reads of it.

`disable`, `allow_in_graph` and `assume_constant_result` leave a mark on a function; `graph_break` and
`is_compiling` are known to the trace by identity.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, Final

from argand.runtime import _native
from argand.runtime.skips import is_for_dynamo, is_ours_to_leave

MARK: Final = "_argand_mark"


def _mark(function: Any, mark: tuple[str, str]) -> Any:
    setattr(function, MARK, mark)
    return function


def mark_of(function: Any) -> tuple[str, str] | None:
    """(kind, reason) a user left on a function."""
    if type(function) is types.FunctionType and is_for_dynamo(function.__code__):
        return ("disable", "torch.compile or torch.compiler.disable") if is_ours_to_leave(function) else None
    try:
        found = function.__dict__.get(MARK)
    except AttributeError:
        return None
    return found if isinstance(found, tuple) else None


def disable(function: Any = None, recursive: bool = True, *, reason: str = "") -> Any:
    """Keep a function out of capture; with `recursive` also everything it calls."""
    if function is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if not callable(function):
        raise TypeError(f"disable takes a callable, got {type(function).__name__}")
    if isinstance(function, type):
        setattr(function, "__call__", disable(function.__call__, recursive, reason=reason))  # noqa: B010
        return function
    run = _native.disabled(function) if recursive and hasattr(_native, "disabled") else function

    @functools.wraps(function)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    return _mark(disabled, ("disable", reason))


def allow_in_graph(function: Any) -> Any:
    """Record calls of a function as one node, without looking inside."""
    if isinstance(function, list | tuple):
        return [allow_in_graph(item) for item in function]
    if not callable(function):
        raise TypeError(f"allow_in_graph takes a callable, got {type(function).__name__}")
    return _mark(function, ("allow", ""))


def assume_constant_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call a function while tracing and take its result for good."""
    marked: Callable[..., Any] = _mark(function, ("constant", ""))
    return marked


def graph_break(message: str = "") -> None:
    """Split the graph here; does nothing in eager code."""


def is_compiling() -> bool:
    """Whether the code runs in a trace; outside of one it does not."""
    return False
