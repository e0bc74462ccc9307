"""ops.hooks: a hook of a value inside of a graph.

In: a value, the graph of the hook, what the hook reads beside the gradient. Out: nothing; torch's engine calls the graph with
the value's gradient, and goes on with what it gives. A trace of the backward records what the graph computes.

A hook sees all of a value's gradient at once. When gradients are differentiated again that comes to a compiled graph in
two parts: by the results of its forward, and by what its backward read of it. For a hook that is linear in the gradient
the sum of both is right; any other one refuses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

_TWICE: Final = (
    "a hook that is not linear in the gradient cannot be differentiated again (create_graph=True) in a compiled "
    "function: leave the function that registers it out with argand.disable"
)


def add_hook(value: torch.Tensor, hook: Callable[..., Any], *read: Any) -> None:
    """`value.register_hook(...)` of a linear hook, where gradients are recorded at all."""
    if value.requires_grad:
        value.register_hook(functools.partial(_run, hook, read))


def add_bent_hook(value: torch.Tensor, hook: Callable[..., Any], *read: Any) -> None:
    """The same of one that is not linear."""
    if value.requires_grad:
        value.register_hook(functools.partial(_run_once, hook, read))


HOOKS: Final = frozenset({add_hook, add_bent_hook})


def _run(hook: Callable[..., Any], read: tuple[Any, ...], gradient: torch.Tensor) -> Any:
    (found,) = hook(gradient, *read)
    return found


def _run_once(hook: Callable[..., Any], read: tuple[Any, ...], gradient: torch.Tensor) -> Any:
    if torch.is_grad_enabled():
        raise RuntimeError(_TWICE)
    return _run(hook, read, gradient)
