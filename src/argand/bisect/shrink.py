"""bisect.shrink: a case that fails made smaller, step by step, while it fails.

In: a `GraphCase` and a test. Out: a smaller case. The steps are a table; each takes a case and gives one that fails as well:
fewer calls, fewer operations, fewer results, smaller sizes, fewer gradients. They are repeated while one of them wins something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.fx.node import map_aggregate

from argand.bisect.case import GraphCase, resized, restricted, results_of, sizes_of, with_results
from argand.bisect.smallest import first_smaller, smallest

CaseFails = Callable[[GraphCase], bool]
ShrinkStep = Callable[[GraphCase, CaseFails], GraphCase]


def fewer_calls(case: GraphCase, fails: CaseFails) -> GraphCase:
    """Only the call that fails, if it does without those before."""
    alone = case._replace(calls=case.calls[-1:])
    return alone if len(case.calls) > 1 and fails(alone) else case


def fixed_sizes(case: GraphCase, fails: CaseFails) -> GraphCase:
    """No open sizes, if they are not needed."""
    fixed = case._replace(dynamic=False)
    return fixed if case.dynamic and fails(fixed) else case


def fewer_nodes(case: GraphCase, fails: CaseFails) -> GraphCase:
    """As few operations as possible; what they read of others becomes an input."""
    kept = smallest(case.nodes, lambda nodes: fails(restricted(case, nodes)))
    return restricted(case, kept) if len(kept) < len(case.nodes) else case


def fewer_results(case: GraphCase, fails: CaseFails) -> GraphCase:
    """As few results as possible."""
    results = results_of(case)
    kept = smallest(results, lambda some: fails(with_results(case, some)))
    return with_results(case, kept) if len(kept) < len(results) else case


def smaller_sizes(case: GraphCase, fails: CaseFails) -> GraphCase:
    """Every size as small as possible: alone, or together with all its multiples."""
    for size in sizes_of(case):
        for change in (_multiples_of, _only):

            def still_fails(new: int, size: int = size, case: GraphCase = case) -> bool:
                return fails(resized(case, change(size, new)))  # noqa: B023  # called in this round

            found = first_smaller(size, still_fails)
            if found != size:
                case = resized(case, change(size, found))
                break
    return case


def _multiples_of(size: int, new: int) -> Callable[[int], int]:
    return lambda number: number // size * new if number % size == 0 else number


def _only(size: int, new: int) -> Callable[[int], int]:
    return lambda number: new if number == size else number


def fewer_gradients(case: GraphCase, fails: CaseFails) -> GraphCase:
    """No gradients at all, or of as few inputs as possible."""
    plain = _without_gradients(case, range(len(case.inputs)))._replace(grad=False)
    if case.grad and fails(plain):
        return plain
    wanted = [
        k
        for k, value in enumerate(case.calls[-1])
        if isinstance(value, torch.Tensor) and value.requires_grad
    ]

    def keeping(kept: Sequence[int]) -> GraphCase:
        return _without_gradients(case, [k for k in wanted if k not in kept])

    return keeping(smallest(wanted, lambda kept: fails(keeping(kept))))


def _without_gradients(case: GraphCase, places: Sequence[int]) -> GraphCase:
    def plain(value: Any) -> Any:
        return value.detach() if isinstance(value, torch.Tensor) else value

    calls = (
        tuple(map_aggregate(value, plain) if k in places else value for k, value in enumerate(call))
        for call in case.calls
    )
    return case._replace(calls=tuple(calls))


STEPS: Final[tuple[ShrinkStep, ...]] = (
    fewer_calls,
    fixed_sizes,
    fewer_nodes,
    fewer_results,
    smaller_sizes,
    fewer_gradients,
)


def shrunk(case: GraphCase, fails: CaseFails) -> GraphCase:
    """The smallest case that all steps together reach."""
    while True:
        before = _size(case)
        for step in STEPS:
            case = step(case, fails)
        if _size(case) >= before:
            return case


def _size(case: GraphCase) -> tuple[int, int]:
    elements = sum(x.numel() for call in case.calls for x in call if isinstance(x, torch.Tensor))
    return len(case.nodes), elements
