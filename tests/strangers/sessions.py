"""Sessions: whole stories of a user, told once in eager and once compiled, with a picture after every step.

``@session`` takes a generator function of one argument: what compiles a function (in eager: what leaves it as it is).
What it yields, and what it prints, is compared. ``tried`` makes an answer of an exception.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import argand
from tests.strangers.pictures import Picture, difference

Story = Callable[[Callable[..., Any]], Iterator[Any]]
SESSIONS: dict[str, Story] = {}


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
    for _ in range(2):  # some warnings of torch come once in a process
        wanted = _told(SESSIONS[name], lambda function, **options: function)
    compile_ = lambda function, **options: argand.compile(
        function,
        backend=backend,
        **({"options": {"fallback_random": True, "measure": False}} if backend == "argand" else {}),
        **options,
    )
    found = _told(SESSIONS[name], compile_)
    for step, (one, other) in enumerate(zip(wanted, found, strict=False)):
        if (told := difference(one, other)) is not None:
            return f"step {step}: {told}"
    return None if len(wanted) == len(found) else f"{len(found)} steps instead of {len(wanted)}"


def _told(story: Story, compile_: Callable[..., Any]) -> list[Any]:
    argand.reset()
    torch.manual_seed(0)
    steps: list[Any] = []
    printed = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        warnings.simplefilter("always")
        try:
            steps += [Picture().of(step) for step in story(compile_)]
        except Exception as error:
            steps.append(("escaped", type(error).__name__, str(error)[:200]))
    return [*steps, torch.rand(1).item(), printed.getvalue(), _own(warned)]


def _own(warned: list[warnings.WarningMessage]) -> tuple[str, ...]:
    """Warnings that name a line of a story."""
    return tuple(
        f"{row.category.__name__}: {str(row.message)[:60]} [{row.lineno}]"
        for row in warned
        if "strangers" in row.filename and "argand" not in str(row.message)
    )
