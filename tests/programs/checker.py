"""Runs a program in eager and compiled, twice each, with gradients of two orders; tells what differs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

import argand
from tests.programs.generator import Program, namespace
from tools.answers import Answer, differences, observe

_NOISE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}


def load(text: str) -> dict[str, Any]:
    """The functions of a program's text."""
    space = namespace()
    exec(compile(text, "<program>", "exec"), space)
    return space


def check(program: Program | str, options: dict[str, Any] | None = None) -> str | None:
    """What differs, or None."""
    text = program if isinstance(program, str) else program.text()
    space = load(text)
    function, make = space["program"], space["inputs"]
    backend = space["BACKEND"]
    compiled = argand.compile(function, backend=backend, dynamic=space["DYNAMIC"] or None, options=options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, seed in enumerate((0, 0, 1000)):
            found = _compare_call(function, compiled, lambda seed=seed: make(seed), _least(text))
            if found is not None:
                return f"call {call}: {found}"
    return None


def _least(text: str) -> torch.dtype | None:
    """The least precise type that a program names."""
    return torch.bfloat16 if "bfloat16" in text else torch.float16 if "float16" in text else None


def _compare_call(
    function: Callable[..., Any], compiled: Callable[..., Any], make: Any, least: torch.dtype | None
) -> str | None:
    eager, gradients = _run(function, make())
    ours, found = _run(compiled, make())
    near, near_gradients = _run(function, [_shaken(x) for x in make()])
    told = differences(eager, ours, exact=near, least=least)
    second = differences(gradients, found, strides=False, exact=near_gradients, least=least)
    told += (f"gradients: {text}" for text in second)
    told = [
        text for text in told if not _is_chance(text, eager, near) and not _is_chance(text, gradients, near_gradients)
    ]
    return "; ".join(told) or None


def _run(function: Callable[..., Any], inputs: list[torch.Tensor]) -> tuple[Answer, Answer]:
    torch.manual_seed(0)
    leaves = [x for x in inputs if x.requires_grad]
    answer = observe(function, *inputs)
    if answer.error is not None:
        return answer, Answer(None, [], [])
    return answer, observe(lambda: _gradients(answer.result, leaves))


def _gradients(result: Any, leaves: list[torch.Tensor]) -> list[Any]:
    results = [t for t in result if isinstance(t, torch.Tensor) and t.requires_grad]
    results = [t for t in results if t.grad_fn is not None]  # may raise, as a use of it does
    if not results or not leaves:
        return []
    first = _grads(results, leaves)
    again = [g for g in first if g is not None and g.requires_grad and not g.is_leaf]
    second = _grads(again, leaves) if again else []
    return [g.detach() if g is not None else None for g in (*first, *second)]


def _grads(results: list[torch.Tensor], leaves: list[torch.Tensor]) -> tuple[Any, ...]:
    total = sum((t.abs() if t.is_complex() else t).double().mul(0.5 + k).sum() for k, t in enumerate(results))
    return torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)


def _shaken(x: torch.Tensor) -> torch.Tensor:
    """An input that is nearly the same: what changes much with it is no measure of us."""
    noise = _NOISE.get(x.dtype)
    if noise is None:
        return x
    with torch.no_grad():
        factor = 1 + noise * (
            torch.rand(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7)) - 0.5
        )
        moved = (x.detach().double() * factor).to(x.dtype)
        try:
            x.detach().copy_(moved)
        except RuntimeError:  # elements that share memory
            return x
    return x


def _is_chance(text: str, eager: Answer, near: Answer) -> bool:
    """Whether eager itself answers otherwise when its inputs change in the last bit."""
    if "values differ" not in text and "instead of" not in text:
        return False
    if near.error is not None or eager.error is not None:
        return False
    moved = differences(eager, near, strides=False)
    place = text.split(":")[0]
    return any(other.split(":")[0] == place and other.split(" ")[-1:] for other in moved)
