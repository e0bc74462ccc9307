"""autograd.reach: which leaves the gradients of results flow to, zeros included.

In: results of a trace with their histories, and leaves. Out: bits of the results for each leaf. The graph of a backward
does not tell: the gradient of a rounded number is zero whatever flows into it, and a gradient to autograd all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def reached_from(results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> list[int]:
    """For each leaf the bits of the results whose histories lead to it."""
    bits: dict[Any, int] = {}
    for number, result in enumerate(results):
        if result.grad_fn is not None:
            bits[result.grad_fn] = bits.get(result.grad_fn, 0) | 1 << number
    found: dict[int, int] = {}
    for function in _in_order(list(bits)):
        mask = bits.get(function, 0)
        leaf = getattr(function, "variable", None)
        if leaf is not None:
            found[id(leaf)] = found.get(id(leaf), 0) | mask
        for source, _ in function.next_functions:
            if source is not None:
                bits[source] = bits.get(source, 0) | mask
    return [found.get(id(leaf), 0) for leaf in leaves]


def _in_order(ends: Sequence[Any]) -> list[Any]:
    """The functions of a history, each before those that it sends gradients to."""
    order: list[Any] = []
    seen: set[Any] = set()
    waiting = [(function, False) for function in ends]
    while waiting:
        function, is_done = waiting.pop()
        if is_done:
            order.append(function)
        elif function not in seen:
            seen.add(function)
            waiting.append((function, True))
            waiting.extend(
                (source, False) for source, _ in function.next_functions if source is not None
            )
    return order[::-1]
