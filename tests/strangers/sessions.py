"""Sessions: whole stories of a user, told once in eager and once compiled, with a picture after every step.

``@session`` takes a generator function of one argument: what compiles a function (in eager: what leaves it as it is).
What it yields, and what it prints, is compared. ``tried`` makes an answer of an exception.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import argand

Story = Callable[[Callable[..., Any]], Iterator[Any]]
SESSIONS: dict[str, Story] = {}
_PLAIN = (int, float, str, bool, bytes, complex, type(None))


def session(story: Story) -> Story:
    """Register a story."""
    assert story.__name__ not in SESSIONS, story.__name__
    SESSIONS[story.__name__] = story
    return story


def tried(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a call gives, or the type and the first line of what it raises."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return "raised", type(error).__name__, str(error).split("\n")[0][:80]


def tell(name: str, backend: str) -> str | None:
    """What differs from eager in a story, or None."""
    wanted = _told(SESSIONS[name], lambda function, **options: function)
    compile_ = lambda function, **options: argand.compile(
        function, backend=backend, **({"options": {"fallback_random": True}} if backend == "argand" else {}), **options
    )
    found = _told(SESSIONS[name], compile_)
    for step, (one, other) in enumerate(zip(wanted, found, strict=False)):
        if (told := _difference(one, other)) is not None:
            return f"step {step}: {told}"
    return None if len(wanted) == len(found) else f"{len(found)} steps instead of {len(wanted)}"


def _told(story: Story, compile_: Callable[..., Any]) -> list[Any]:
    argand.reset()
    torch.manual_seed(0)
    steps: list[Any] = []
    printed = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        try:
            steps += [picture(step) for step in story(compile_)]
        except Exception as error:
            steps.append(("escaped", type(error).__name__, str(error)[:200]))
    return [*steps, torch.rand(1).item(), printed.getvalue()]


def picture(value: Any, depth: int = 0) -> Any:
    """A value as nested tuples that do not change any more."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if type(value) in _PLAIN:
        return value
    if isinstance(value, enum.Enum):
        return str(value)
    if depth > 6:
        return type(value).__name__
    if isinstance(value, torch.nn.Module):
        own = {k: v for k, v in vars(value).items() if not k.startswith("_")}
        return (
            *picture(dict(value.named_parameters()), depth + 1),
            *picture(dict(value.named_buffers())),
            picture(own),
        )
    if isinstance(value, dict):
        items = [(picture(k, depth + 1), picture(v, depth + 1)) for k, v in value.items()]
        return (type(value).__name__, *items)
    if isinstance(value, set | frozenset):
        return (type(value).__name__, *sorted(repr(picture(v, depth + 1)) for v in value))
    if isinstance(value, list | tuple) or hasattr(value, "popleft"):
        return (type(value).__name__, *(picture(v, depth + 1) for v in value))
    if dataclasses.is_dataclass(value) or (hasattr(value, "__dict__") and not callable(value)):
        return type(value).__name__, picture(dict(vars(value)), depth + 1)
    return type(value).__name__ if not isinstance(value, torch.dtype | torch.device) else str(value)


def _tensor(value: torch.Tensor) -> Any:
    layout = tuple(value.stride()) if value.layout is torch.strided and value.numel() else ()
    facts = (type(value).__name__, str(value.dtype), tuple(value.shape), layout, value.requires_grad, value.is_leaf)
    grad = value.grad.detach().clone() if value.is_leaf and value.grad is not None else None
    return "tensor", facts, value.detach().clone(), grad


def _difference(one: Any, other: Any) -> str | None:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = one.shape == other.shape and torch.allclose(
            one.to_dense().to(torch.complex128), other.to_dense().to(torch.complex128), 1e-4, 1e-5, equal_nan=True
        )
        return None if same else f"{other} instead of {one}"
    if isinstance(one, tuple) and isinstance(other, tuple):
        if len(one) != len(other):
            return f"{other} instead of {one}"
        return next((told for a, b in zip(one, other, strict=True) if (told := _difference(a, b))), None)
    if isinstance(one, float) and isinstance(other, float):
        return (
            None if one == other or abs(one - other) <= 1e-5 + 1e-4 * abs(one) or one != one else f"{other} for {one}"
        )
    return None if type(one) is type(other) and one == other else f"{other!r} instead of {one!r}"
