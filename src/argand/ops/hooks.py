"""ops.hooks: a hook of a value inside of a graph.

In: a value, the graph of the hook, what the hook reads beside the gradient. Out: nothing; torch's engine calls the graph with
the value's gradient, and goes on with what it gives. A trace of the backward records what the graph computes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch


def add_hook(value: torch.Tensor, hook: Callable[..., Any], *read: Any) -> None:
    """`value.register_hook(...)` where gradients are recorded at all."""
    if value.requires_grad:
        value.register_hook(functools.partial(_run, hook, read))


HOOKS: Final = frozenset({add_hook})


def _run(hook: Callable[..., Any], read: tuple[Any, ...], gradient: torch.Tensor) -> Any:
    (found,) = hook(gradient, *read)
    return found
