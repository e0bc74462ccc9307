"""No effect before its time: what a trace does to objects outside is what eager does, whether the trace succeeds or not."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import argand
from argand.capture import trace
from argand.support.errors import InternalError
from tests.effects import contexts, counters, files, process, random_states, threads, torch_states
from tests.effects.world import CASES

_CALLS = 3
# they fill CASES
_TABLES = (threads, files, counters, random_states, process, contexts, torch_states)


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    """What our own imports do to the process is done."""
    argand.compile(lambda x: x + 1)(torch.ones(2))


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """A deadlock is an error, and no case sees what another one left."""

    def late(*_: object) -> None:
        raise TimeoutError("the call hangs")

    saved = signal.signal(signal.SIGALRM, late)
    limit, filters = sys.getrecursionlimit(), warnings.filters[:]
    signal.alarm(100)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, saved)
        sys.setrecursionlimit(limit)
        warnings.filters[:] = filters
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


def _nothing() -> None:
    pass


def _history(make: Any, cut: Any, **options: Any) -> list[Any]:
    """Result and state after each call."""
    run, look = make()
    function = argand.compile(run, options={"cache": False}, **options) if options else run
    found = []
    for number in range(_CALLS):
        result = function(torch.arange(3.0) + number, cut)
        found.append((result.dtype, result.tolist(), look()))
    torch.set_grad_enabled(True)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_trace_that_succeeds(name: str) -> None:
    assert _history(CASES[name], _nothing, backend="eager") == _history(CASES[name], _nothing)


@pytest.mark.parametrize("name", CASES)
def test_a_trace_with_a_break(name: str) -> None:
    assert _history(CASES[name], argand.graph_break, backend="eager") == _history(
        CASES[name], _nothing
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:argand fell back")
def test_a_trace_that_is_abandoned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _history(CASES[name], _nothing)

    def fails(*_: object) -> Any:
        raise InternalError("test", "at the end of the trace")

    monkeypatch.setattr(trace, "finish", fails)
    assert _history(CASES[name], _nothing, backend="eager") == expected
