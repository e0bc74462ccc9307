"""ops.control_flow: operators that take graphs: which they are, and what their results look like.

In: an operator of `torch.ops.higher_order` and its arguments, graphs among them. Out: its results on fakes. A branch is
a graph module whose inputs are tensors and sizes and whose results are a flat tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

COND: Final = torch.ops.higher_order.cond
SCAN: Final = torch.ops.higher_order.scan
MAP: Final = torch.ops.higher_order.map_impl
WHILE_LOOP: Final = torch.ops.higher_order.while_loop


def first_slice(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor like one slice of another along its first dimension."""
    return tensor.select(0, 0)


def stacked(value: torch.Tensor, count: int) -> torch.Tensor:
    """A tensor of so many values, one after the other; each is dense."""
    return value.new_empty((count, *value.shape))


def _run(graph: Any, args: Sequence[Any]) -> list[Any]:
    results = graph(*args)
    return list(results) if isinstance(results, tuple | list) else [results]


def _like(value: Any) -> Any:
    return torch.empty_like(value) if isinstance(value, torch.Tensor) else value


def _cond(pred: Any, true: Any, false: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    results = _run(true, operands)
    for one, two in zip(results, _run(false, operands), strict=True):
        if isinstance(one, torch.Tensor) and one.shape != two.shape:
            raise RuntimeError(f"the branches give sizes {list(one.shape)} and {list(two.shape)}")
    return tuple(map(_like, results))


def _scan(
    combine: Any, init: Sequence[Any], xs: Sequence[Any], more: Sequence[Any]
) -> tuple[Any, ...]:
    results = _run(combine, [*init, *map(first_slice, xs), *more])
    count = xs[0].shape[0]
    carry, rows = results[: len(init)], results[len(init) :]
    for one, two in zip(init, carry, strict=True):
        if one.shape != two.shape:
            raise RuntimeError(f"the carry has sizes {list(one.shape)}, then {list(two.shape)}")
    return (*map(_like, carry), *(stacked(row, count) for row in rows))


def _map(function: Any, xs: Sequence[Any], more: Sequence[Any]) -> tuple[Any, ...]:
    return _scan(function, (), xs, more)


def _while_loop(
    condition: Any, body: Any, carried: Sequence[Any], more: Sequence[Any]
) -> tuple[Any, ...]:
    _run(condition, [*carried, *more])
    return tuple(map(_like, _run(body, [*carried, *more])))


RESULTS: Final[Mapping[Any, Callable[..., tuple[Any, ...]]]] = {
    COND: _cond,
    SCAN: _scan,
    MAP: _map,
    WHILE_LOOP: _while_loop,
}


def branches_of(target: Any, args: Sequence[Any]) -> list[tuple[Any, list[Any]]]:
    """The graphs that a call of an operator takes, each with what it would be called with."""
    if target is COND:
        return [(graph, list(args[3])) for graph in args[1:3]]
    if target is WHILE_LOOP:
        return [(graph, [*args[2], *args[3]]) for graph in args[:2]]
    if target is SCAN:
        return [(args[0], [*args[1], *map(first_slice, args[2]), *args[3]])]
    return [(args[0], [*map(first_slice, args[1]), *args[2]])] if target is MAP else []
