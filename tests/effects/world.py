"""Functions of strangers that touch something outside of themselves, and what to look at afterwards.

Each case is a function that makes a fresh world: `run(x, cut)` is what gets compiled (`cut` does nothing, or breaks
the graph, in the middle of it), `look()` tells the state outside as something that compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Made = tuple[Callable[..., Any], Callable[[], Any]]
Case = Callable[[], Made]
CASES: Final[dict[str, Case]] = {}


def case(make: Case) -> Case:
    """Enter a case into the table."""
    CASES[make.__name__] = make
    return make


def inside(make: Callable[[], Any], look: Callable[[], Any]) -> Made:
    """Work inside of a context manager that is made at each call."""

    def run(x, cut):
        with make():
            y = x * 2
            cut()
        return y + 1

    return run, look
