"""capture.rules.marks: what users say about their functions, and what the trace reads of it.

`disable`, `allow_in_graph` and `assume_constant_result` leave a mark on a function; `graph_break` and
`is_compiling` are known to the trace by identity.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, Final

from argand.runtime import _native
from argand.runtime.skips import is_for_dynamo, is_ours_to_leave

MARK: Final = "_argand_mark"
_DISALLOWED: Final = ("disable", "torch._dynamo.disallow_in_graph")


def _mark(function: Any, mark: tuple[str, str]) -> Any:
    setattr(function, MARK, mark)
    return function


def mark_of(function: Any) -> tuple[str, str] | None:
    """(kind, reason) a user left on a function, for us or for torch.compile."""
    if type(function) is types.FunctionType and is_for_dynamo(function.__code__):
        if not is_ours_to_leave(function):  # torch's own, which TorchDynamo cannot read
            return ("compiled", "") if hasattr(function, "_torchdynamo_orig_callable") else None
        if getattr(function, "_torchdynamo_disable", False):
            return ("disable", "torch.compiler.disable")
        return (
            ("compiled", "")
            if hasattr(function, "_torchdynamo_orig_callable")
            else ("disable", "torch.compile")
        )
    try:
        members = function.__dict__
    except AttributeError:
        return None
    found = members.get(MARK)
    if isinstance(found, tuple):
        return found
    if members.get("_dynamo_marked_constant"):
        return ("constant", "")
    return (
        ("disable", "torch._dynamo.forbid_in_graph")
        if members.get("_dynamo_forbidden")
        else _listed(function)
    )


def _listed(function: Any) -> tuple[str, str] | None:
    """A mark that TorchDynamo keeps in a list of its own. Who has left one has loaded it."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None or str(function.__module__).partition(".")[0] == "torch":
        return None
    for name, mark in (
        ("_allowed_callable_ids", ("allow", "")),
        ("_disallowed_callable_ids", _DISALLOWED),
    ):
        listed = getattr(getattr(rules, name, None), "function_ids", None)
        if listed and id(function) in listed:
            return mark
    return None


def substitute_of(function: Any) -> Any:
    """What `torch.compiler.substitute_in_graph` has registered to be traced in place of a C function; None: nothing."""
    variables = sys.modules.get("torch._dynamo.variables.functions")
    kind = getattr(variables, "PolyfilledFunctionVariable", None)
    try:
        handler = None if kind is None else kind._get_polyfill_handlers().get(function)
    except TypeError:  # it cannot be a key
        return None
    found = getattr(handler, "__torch_dynamo_polyfill__", None)
    ours = isinstance(found, types.FunctionType) and not found.__module__.startswith("torch.")
    return found if ours else None  # those of torch's own are for functions that we know


def disable(function: Any = None, recursive: bool = True, *, reason: str = "") -> Any:
    """Keep a function out of capture; with `recursive` also everything it calls."""
    if function is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if not callable(function):
        raise TypeError(f"disable takes a callable, got {type(function).__name__}")
    if isinstance(function, type):
        setattr(function, "__call__", disable(function.__call__, recursive, reason=reason))  # noqa: B010
        return function
    run = _native.disabled(function) if recursive else function

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
