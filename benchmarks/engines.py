"""benchmarks.engines: the contenders. In: a function or module. Out: what the user would call.

Each engine is imported when it is first used, so that its import is part of its cold start and a
missing engine is reported, not a crash.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Backend = Callable[..., Any]
Compile = Callable[..., Callable[..., Any]]


class NotAvailable(Exception):
    """The engine cannot be used here; says why."""


def argand_compile() -> Compile:
    """``argand.compile``, or NotAvailable."""
    try:
        import argand

        return argand.compile
    except (ImportError, AttributeError) as error:
        raise NotAvailable(f"argand.compile is not there yet: {error}") from error


def eager(target: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    """The program itself."""
    return target


def torch_compile(target: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    """torch.compile with its defaults."""
    import torch

    return torch.compile(target, **arguments)


def argand(target: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    """argand.compile with its defaults."""
    return argand_compile()(target, **arguments)


def slowed(factor: int) -> Compile:
    """Eager made slower by a known factor: it does everything so many times.

    Waiting would be simpler, but a wait on a busy machine takes longer than it was told to.
    """

    def compile_(target: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            for _ in range(factor - 1):
                target(*args)
            return target(*args)

        return call

    return compile_


ENGINES: dict[str, Compile] = {"eager": eager, "torch": torch_compile, "argand": argand}


def find(name: str) -> Compile:
    """An engine by name; ``slowed:2`` is eager at half its speed, for the self-test."""
    match = re.fullmatch(r"slowed:([1-9]\d*)", name)
    if match:
        return slowed(int(match[1]))
    if name not in ENGINES:
        raise KeyError(f"no engine {name!r}; engines: {', '.join(ENGINES)}")
    return ENGINES[name]
