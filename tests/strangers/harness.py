"""Programs as strangers write them, in eager and compiled: results, metadata, state, errors, gradients, call by call.

``@stranger(call, ...)`` takes functions that make arguments; each is called for eager and for the compiled function, so
nobody shares tensors. ``@made(call, ...)`` is for a factory that gives (function, what else to look at).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch

import argand
from tools.answers import Answer, differences, observe, tensors_in

Call = Callable[[], tuple[Any, ...]]
Factory = Callable[[], tuple[Callable[..., Any], Any]]


@dataclasses.dataclass(frozen=True)
class Stranger:
    """A program, how to make it anew, and the calls to make of it."""

    name: str
    make: Factory
    calls: tuple[Call, ...]


PROGRAMS: dict[str, Stranger] = {}


def stranger(*calls: Call) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function without a state of its own."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        return _register(function.__name__, lambda: (function, ()), calls) or function

    return register


def made(*calls: Call) -> Callable[[Factory], Factory]:
    """Register a factory of (function, state)."""

    def register(factory: Factory) -> Factory:
        return _register(factory.__name__, factory, calls) or factory

    return register


def _register(name: str, factory: Factory, calls: tuple[Call, ...]) -> None:
    assert name not in PROGRAMS, name
    PROGRAMS[name] = Stranger(name, factory, calls or (tuple,))


def rand(
    *shape: int, seed: int = 0, grad: bool = False, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Numbers that are the same at each call."""
    made = torch.randn(
        shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)
    return made.requires_grad_() if grad else made


def check(program: Stranger, **options: Any) -> str | None:
    """What differs from eager, or None."""
    eager, state = program.make()
    function, ours = program.make()
    compiled = argand.compile(
        function, options={"fallback_random": True, "measure": False}, **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, call in enumerate((program.calls[0], *program.calls)):
            wanted, found = _run(eager, call, state), _run(compiled, call, ours)
            told = differences(wanted[0], found[0])
            told += (
                text for k in (1, 2) for text in differences(wanted[k], found[k], strides=False)
            )
            if told:
                return f"call {number}: " + "; ".join(told)
    return None


def _run(function: Callable[..., Any], call: Call, state: Any) -> tuple[Answer, Answer, Answer]:
    torch.manual_seed(0)
    arguments = call()
    answer = observe(function, *arguments)
    gradients = observe(lambda: _gradients(answer.result, (arguments, _world(state))))
    return (
        answer,
        gradients,
        observe(lambda: (_text(answer.error), _world(arguments), _world(state))),
    )


def _text(error: BaseException | None) -> str:
    return "" if error is None else str(error).split("\n")[0][:60]


def _gradients(result: Any, others: Any) -> list[Any]:
    leaves = [t for t in tensors_in(others) if t.requires_grad and t.is_leaf]
    ends = [t for t in tensors_in(result) if t.grad_fn is not None]
    if not ends or not leaves:
        return []
    total = sum(
        (torch.view_as_real(t) if t.is_complex() else t).double().sum() * (k + 1)
        for k, t in enumerate(ends)
    )
    return [
        None if g is None else g.detach()
        for g in torch.autograd.grad(total, leaves, allow_unused=True)
    ]


def _world(value: Any, depth: int = 0) -> Any:
    """A picture of objects as lists of tensors and plain values."""
    if (
        isinstance(value, torch.Tensor)
        or value is None
        or type(value) in (int, float, str, bool, complex)
    ):
        return value
    if isinstance(value, torch.nn.Module):
        own = {k: v for k, v in vars(value).items() if not k.startswith("_")}
        return [dict(value.named_parameters()), dict(value.named_buffers()), _world(own, depth + 1)]
    if isinstance(value, dict):
        return [[_world(k, depth + 1), _world(v, depth + 1)] for k, v in value.items()]
    if isinstance(value, list | tuple | set | frozenset) or hasattr(value, "popleft"):
        return [type(value).__name__, *(_world(v, depth + 1) for v in value)]
    if hasattr(value, "__dict__") and not callable(value) and depth < 6:
        return [type(value).__name__, _world(vars(value), depth + 1)]
    return type(value).__name__
