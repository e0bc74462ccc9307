"""benchmarks.libraries.judge: one program under one compiler. In: a program. Out: a row of counts and times."""

from __future__ import annotations

import contextlib
import random
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from benchmarks.language.judge import differs, eager
from benchmarks.sweep import Row, one_line

Compile = Callable[..., Any]
Scenario = Callable[[Compile], Any]  # gets a compiler, returns what must equal eager's


@dataclass
class Counts:
    """What a compiler did."""

    graphs: int = 0
    breaks: int = 0
    recompiles: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


@contextlib.contextmanager
def argand_compiler() -> Iterator[tuple[Compile, Counts]]:
    """Ours, and what it does."""
    import argand
    from argand.support import events

    counts = Counts()

    def hear(event: Any) -> None:
        match event:
            case events.Count("capture.graphs", amount, _):
                counts.graphs += amount
            case events.Count("recompiles", amount, _):
                counts.recompiles += amount
            case events.Artifact("graph_breaks", render, _):
                counts.breaks += 1
                reason = render().strip().splitlines()[0][:100]
                counts.reasons[reason] = counts.reasons.get(reason, 0) + 1
            case _:
                pass

    argand.reset()
    unsubscribe = events.subscribe(hear)
    try:
        yield argand.compile, counts
    finally:
        unsubscribe()


@contextlib.contextmanager
def torch_compiler() -> Iterator[tuple[Compile, Counts]]:
    """torch.compile, and what it does."""
    import torch._dynamo
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    counts = Counts()
    yield torch.compile, counts
    counts.graphs = counters["stats"]["unique_graphs"]
    counts.breaks = sum(counters["graph_break"].values())
    counts.recompiles = max(0, counters["frames"]["ok"] - len(counters["frames"]))


@contextlib.contextmanager
def no_compiler() -> Iterator[tuple[Compile, Counts]]:
    """Eager, for the times."""
    yield eager, Counts()


COMPILERS = {"eager": no_compiler, "argand": argand_compiler, "torch": torch_compiler}


def _seeded(scenario: Scenario, compile_: Compile) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    return scenario(compile_)


def judge(scenario: Scenario, engine: str) -> Row:
    """Run a program in eager and under a compiler; its second run is the time of a warm one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = _seeded(scenario, eager)
        with COMPILERS[engine]() as (compile_, counts):
            begin = time.perf_counter()
            try:
                actual = _seeded(scenario, compile_)
            except Exception as error:
                return {"status": "error", "cause": one_line(error)}
            first = time.perf_counter() - begin
    wrong = differs(actual, expected)
    return {
        "status": "wrong" if wrong else "right",
        "cause": wrong,
        "graphs": counts.graphs,
        "breaks": counts.breaks,
        "recompiles": counts.recompiles,
        "seconds": first,
        "reasons": counts.reasons,
    }
