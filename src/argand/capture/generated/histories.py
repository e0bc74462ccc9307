"""capture.generated.histories: results whose history the graph has gone back through already.

Torch frees what a history has saved when gradients are computed; the tensors it leads to still say that they require
gradients, and whoever asks for them gets an error. A graph that computed gradients inside gives such a tensor as values alone.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from typing_extensions import override

from argand.runtime import _native

_TEXT: Final = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


@functools.cache
def _saved_names(kind: Any) -> tuple[str, ...]:
    """Attributes of a node of a history under which it tells what it saved."""
    names = [name for name in dir(kind) if name.startswith("_saved_") or name == "saved_tensors"]
    return tuple(names)


def is_freed(node: Any) -> bool:
    """Whether a node has let go of what it saved."""
    kind: Any = type(node)
    for name in _saved_names(kind):
        try:
            getattr(node, name)
        except RuntimeError as error:
            if "second time" in str(error):
                return True
    return False


def is_used_up(tensor: torch.Tensor) -> bool:
    """Whether gradients of a tensor cannot be asked for again."""
    seen: set[Any] = set()
    waiting = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if is_freed(node):
            return True
        seen.add(node)
        waiting += [after for after, _ in node.next_functions]
    return False


class UsedUp(torch.autograd.Function):
    """The end of a history that nobody can follow."""

    @staticmethod
    @override
    def forward(ctx: Any, *args: Any) -> Any:
        """The values."""
        return args[0].detach()

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Any) -> Any:
        """What torch says."""
        raise RuntimeError(_TEXT)


@_native.disabled
def used_up(values: torch.Tensor, retains: bool) -> Any:
    """Values as a tensor that requires gradients and can give none."""
    with torch.enable_grad():
        made: Any = UsedUp.apply(values, torch.empty(0, requires_grad=True))
        if retains:
            made.retain_grad()
    return made
