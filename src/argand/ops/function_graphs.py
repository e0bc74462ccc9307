"""ops.function_graphs: a user's `autograd.Function` as two graphs, where what it is given is more than tensors and numbers.

In: the graphs of its forward and its backward, and the tensors that they take. Out: results with a history whose backward
is the second graph. Modules and other objects among its arguments were read while it was captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast, final

import torch

# the module that functions of users' say they are of, as nodes of a graph
OF_USERS: Final = "autograd_functions"


@final
class Parts(NamedTuple):
    """How many of the tensors, and which, are what."""

    first: int  # of the operands: those that the forward takes
    results: int  # of what the forward gives: the rest is kept
    wanted: tuple[int, ...]  # the operands that the gradients are of


def apply_graphs(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    first: int,
    results: int,
    wanted: tuple[int, ...],
    *operands: Any,
) -> tuple[torch.Tensor, ...]:
    """Run the forward."""
    parts = Parts(first, results, wanted)
    return cast("tuple[torch.Tensor, ...]", _Graphs.apply(forward, backward, parts, *operands))


@final
class _Graphs(torch.autograd.Function):
    """The two graphs."""

    @staticmethod
    def forward(ctx: Any, forward: Any, backward: Any, parts: Parts, *operands: Any) -> Any:
        """Run the forward; it was captured with gradients off."""
        made = forward(*operands[: parts.first])
        read = (*made, *operands[parts.first :])
        ctx.backward_graph, ctx.parts, ctx.operands = backward, parts, len(operands)
        ctx.read = [None if isinstance(value, torch.Tensor) else value for value in read]
        ctx.save_for_backward(*[value for value in read if isinstance(value, torch.Tensor)])
        return tuple(made[: parts.results])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the backward."""
        saved = iter(ctx.saved_tensors)
        read = [
            next(saved) if value is None else value for value in ctx.read
        ]  # sizes are as they are
        found = ctx.backward_graph(*gradients, *read)
        answer: list[Any] = [None] * ctx.operands
        for place, gradient in zip(ctx.parts.wanted, found, strict=True):
            answer[place] = gradient
        return (None, None, None, *answer)
