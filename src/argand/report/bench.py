"""report.bench: one model in eager, under Argand and under torch.compile, side by side, with the spread of the times.

In: a model and its inputs. Out: `BenchRow`, one per contender. They take turns round by round, so that what slows the
machine down slows all of them; of each the shortest, the median and the middle half of the times are kept.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch.utils import _pytree as pytree

from argand.pipeline import compile as compile_model

WARM: Final = 12  # calls before the clock: compiled code may take turns with eager at first


class BenchRow(NamedTuple):
    """The times of one contender, in seconds."""

    name: str
    first: float = float("nan")  # of the first call: with the compile
    best: float = float("nan")
    median: float = float("nan")
    low: float = float("nan")  # a quarter of the calls is faster,
    high: float = float("nan")  # a quarter slower
    speedup: float = float("nan")  # eager's median over this one's
    problem: str = ""


def _peer(model: Callable[..., Any]) -> Callable[..., Any]:
    from argand.backends.bridges.of_peer import compiled_by_torch  # noqa: PLC0415  # only when asked for

    return compiled_by_torch(model)


CONTENDERS: Final[Mapping[str, Callable[[Any], Callable[..., Any]]]] = {
    "eager": lambda model: model,
    "argand": compile_model,
    "torch.compile": _peer,
}


def bench(
    model: Callable[..., Any],
    inputs: Sequence[Any],
    names: Sequence[str],
    *,
    rounds: int = 30,
    train: bool = False,
) -> list[BenchRow]:
    """Time the contenders; eager is always one of them, and the first."""
    step = _trained if train else _called
    rows, runners = {}, {}
    with torch.set_grad_enabled(train):
        for name in dict.fromkeys(("eager", *names)):
            run = CONTENDERS[name](model)
            rows[name], works = _first(name, functools.partial(step, run, inputs))
            if works:
                runners[name] = run
        times: dict[str, list[float]] = {name: [] for name in runners}
        for turn in range(WARM + rounds):
            for name, run in runners.items():
                begin = time.perf_counter()
                step(run, inputs)
                if turn >= WARM:
                    times[name].append(time.perf_counter() - begin)
    return _summed(rows, times)


def _called(run: Callable[..., Any], inputs: Sequence[Any]) -> None:
    run(*inputs)


def _trained(run: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """A call and its backward pass."""
    leaves = [
        x
        for x in pytree.tree_leaves(run(*inputs))
        if isinstance(x, torch.Tensor) and x.requires_grad
    ]
    torch.autograd.backward([x.sum() for x in leaves])


def _first(name: str, call: Callable[[], None]) -> tuple[BenchRow, bool]:
    begin = time.perf_counter()
    try:
        call()
    except Exception as error:  # a contender that fails is a row of the table
        return BenchRow(
            name, problem=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        ), False
    return BenchRow(name, time.perf_counter() - begin), True


def _summed(rows: Mapping[str, BenchRow], times: Mapping[str, Sequence[float]]) -> list[BenchRow]:
    eager = statistics.median(times["eager"]) if times.get("eager") else float("nan")
    made = []
    for name, row in rows.items():
        if name in times:
            low, median, high = statistics.quantiles(times[name], n=4)
            row = row._replace(
                best=min(times[name]), median=median, low=low, high=high, speedup=eager / median
            )
        made.append(row)
    return made
