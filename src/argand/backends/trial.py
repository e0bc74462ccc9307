"""backends.trial: never slower than eager. In: the captured graph and what was made of it. Out: a callable.

The first calls take turns between the two; from then on the faster one runs. Each call runs once, on one
of them, so a trial costs nothing and graphs with effects may take part. Not tried: what trains (its
backward runs later), what draws random numbers (a seed must give the same numbers again), and what is
too short for the difference to matter.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule

from argand.support import events

SHORT: Final = 2e-4  # seconds below which compiled code wins by its overhead alone
MARGIN: Final = 1.05  # eager must be faster by this much: below, it is the noise of the machine
TURNS: Final = 3  # timed calls of each
_RANDOM: Final = re.compile("rand|drop|normal|bernoulli|multinomial|poisson|exponential|uniform|seed")


def can_try(graph: GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether calls of this graph may take turns."""
    tensors = [x for x in example_inputs if isinstance(x, torch.Tensor)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return False
    return not any(_RANDOM.search(f"{n.target}") for n in graph.graph.nodes if n.op.startswith("call"))


def never_slower(graph: GraphModule, compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The faster of a graph and its compiled form, found out in the first calls."""
    chosen: Callable[..., Any] | None = None
    calls = 0
    ours: list[float] = []
    eagers: list[float] = []

    def choose() -> Callable[..., Any] | None:
        if ours and min(ours) < SHORT:
            return compiled
        if min(len(ours), len(eagers)) < TURNS:
            return None
        fast = min(eagers) * MARGIN > min(ours)
        events.count("native.faster" if fast else "native.slower", detail=f"{min(ours):.2e} {min(eagers):.2e} s")
        return compiled if fast else graph.forward

    def run(*inputs: Any) -> Any:
        nonlocal chosen, calls
        if chosen is not None:
            return chosen(*inputs)
        turn, calls = calls, calls + 1
        eager = turn >= 2 and turn % 2 == 0  # compiled twice, then in turns; the first of each warms up
        begin = time.perf_counter()
        result = graph.forward(*inputs) if eager else compiled(*inputs)
        if turn not in (0, 2):
            (eagers if eager else ours).append(time.perf_counter() - begin)
            chosen = choose()
        return result

    run.stored_key = getattr(compiled, "stored_key", "")  # type: ignore[attr-defined]  # for the capture cache
    return run
