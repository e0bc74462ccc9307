"""benchmarks.libraries.judge: one program under one compiler. In: a program. Out: a row of counts and times."""

from __future__ import annotations

import contextlib
import os
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
Work = Callable[[], Any]  # its first result must equal eager's
Scenario = Callable[[Compile], Work]


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
    from torch._dynamo.utils import counters, get_compilation_metrics, set_compilation_metrics_limit

    torch._dynamo.reset()
    counters.clear()
    set_compilation_metrics_limit(100_000)
    counts = Counts()
    yield torch.compile, counts
    counts.graphs = counters["stats"]["unique_graphs"]
    counts.breaks = sum(counters["graph_break"].values())
    again = (str(metrics.compile_id).partition("/")[2] for metrics in get_compilation_metrics())
    counts.recompiles = sum(number not in ("", "0") for number in again)


@contextlib.contextmanager
def no_compiler() -> Iterator[tuple[Compile, Counts]]:
    """Eager, for the times."""
    yield eager, Counts()


COMPILERS = {"eager": no_compiler, "argand": argand_compiler, "torch": torch_compiler}


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def _processor_time() -> float:
    """Seconds of processors, those of compilers that were started and waited for too: the machine may have other work."""
    return sum(os.times()[:4])


def _prepared(scenario: Scenario, compile_: Compile) -> Work:
    _seed()
    return scenario(compile_)


def _steady(work: Work, most: int = 30, budget: float = 4.0) -> float:
    """Seconds of a later call: the least of up to ``most``, or of what fits the budget after three warm ones."""
    times, begin = [], _processor_time()
    while len(times) < 6 or (len(times) < most and _processor_time() - begin < budget):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times[3:])


def judge(scenario: Scenario, engine: str) -> Row:
    """Run a program in eager and under a compiler: equal or not, counts, seconds of the first and of later calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = _prepared(scenario, eager)()
        with COMPILERS[engine]() as (compile_, counts):
            try:
                work = _prepared(scenario, compile_)
                begin = _processor_time()
                actual = work()
                first = _processor_time() - begin
            except Exception as error:
                return {"status": "error", "cause": one_line(error)}
            wrong = differs(actual, expected)
            steady = _steady(work)
    return {
        "status": "wrong" if wrong else "right",
        "cause": wrong,
        "graphs": counts.graphs,
        "breaks": counts.breaks,
        "recompiles": counts.recompiles,
        "first": first,
        "steady": steady,
        "reasons": counts.reasons,
    }
