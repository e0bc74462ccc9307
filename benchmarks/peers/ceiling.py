"""benchmarks.peers.ceiling: where the time of a compiled model goes, beside what the machine can do (``peers --ceiling``).

In: a model's name. Out: ``Ceiling``: seconds of each step of its plans (the least of many calls), by kind; the seconds of a
whole call; operations and bytes of the steps, and this machine's measured peaks of both. ``roof`` shows them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.utils.flop_counter import FlopCounterMode

import argand
from argand.runtime import _native
from argand.support import events
from benchmarks.peers.models import build

# as runtime.described says
KINDS: Final = ("convolution", "product", "attention", "kernel", "torch", "keep")
SHOWN: Final = 12  # steps that take longest
PEAK_SIZE: Final = 1024  # rows and columns of the product that shows the peak
COPIED: Final = 1 << 26  # bytes


@dataclass
class Plans:
    """The plans made while it listens; ``read`` is a clock of each of their steps."""

    made: list[Mapping[str, Any]] = field(default_factory=list)

    def __call__(self, event: events.Event) -> None:
        """Keep what describes a plan."""
        if isinstance(event, events.Record) and event.name == "plan":
            self.made.append(event.make())

    def steps(self) -> list[Mapping[str, Any]]:
        """The steps of all plans."""
        return [step for plan in self.made for step in plan["steps"]]

    def read(self) -> list[int]:
        """Nanoseconds spent in each step so far."""
        return [spent for plan in self.made for spent in plan["plan"].spent()[1]]


@dataclass(frozen=True)
class Ceiling:
    """One model: seconds of a call, and of its steps; work in all."""

    model: str
    seconds: float
    steps: tuple[tuple[str, str, float, int], ...]  # name, kind, seconds, bytes
    flops: int

    def kinds(self) -> dict[str, float]:
        """Seconds by kind; what no step has is overhead."""
        found = dict.fromkeys(KINDS, 0.0)
        for _, kind, seconds, _ in self.steps:
            found[kind if kind in found else "torch"] += seconds
        return {**found, "overhead": max(self.seconds - sum(found.values()), 0.0)}

    @property
    def moved(self) -> int:
        """Bytes that the steps read and write, each buffer once per step."""
        return sum(step[3] for step in self.steps)


def least(call: Callable[[], object], seconds: float) -> float:
    """Seconds of the quickest call: of the processor where there is one thread, others may use the machine too."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    begin, best = time.perf_counter(), float("inf")
    while time.perf_counter() - begin < seconds:
        before = clock()
        call()
        best = min(best, clock() - before)
    return best


def peaks() -> tuple[float, float]:
    """Operations and bytes per second of this machine with torch's threads: a large product, a copy."""
    left, right = torch.randn(PEAK_SIZE, PEAK_SIZE), torch.randn(PEAK_SIZE, PEAK_SIZE)
    out = torch.empty(PEAK_SIZE, PEAK_SIZE)
    product = least(lambda: torch.mm(left, right, out=out), 1.0)
    source = torch.ones(COPIED // 4)
    target = torch.empty_like(source)
    copy = least(lambda: target.copy_(source), 0.5)
    return 2 * PEAK_SIZE**3 / product, 2 * COPIED / copy


def measure(name: str, seconds: float = 2.0) -> Ceiling:
    """Compile a model and time its steps."""
    model, inputs = build(name)
    plans = Plans()
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            model(*inputs)
        stop = events.subscribe(plans)
        compiled = argand.compile(model, options={"measure": False, "cache": False})
        for _ in range(6):
            compiled(*inputs)
        stop()
        whole = least(lambda: compiled(*inputs), seconds)
        spent = _least_steps(plans, lambda: compiled(*inputs), seconds)
    steps = plans.steps()
    rows = [(s["name"], s["kind"], t, s["bytes"]) for s, t in zip(steps, spent, strict=True) if t]
    return Ceiling(name, whole, tuple(rows), counter.get_total_flops())


def _least_steps(plans: Plans, call: Callable[[], object], seconds: float) -> list[float]:
    """The least of many calls for each step; steps that did not run have none."""
    before = _native.measure_plans(True)
    try:
        call()
        last, best = plans.read(), [float("inf")] * len(plans.steps())
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            call()
            now = plans.read()
            best = [min(b, n - o) for b, n, o in zip(best, now, last, strict=True)]
            last = now
    finally:
        _native.measure_plans(before)
    return [b / 1e9 for b in best]


def main() -> None:
    """Measure models and print each as a line of JSON."""
    operations, moved = peaks()
    for name in sys.argv[1:]:
        found = measure(name)
        row = {
            "model": name,
            "seconds": found.seconds,
            "kinds": found.kinds(),
            "flops": found.flops,
        }
        longest = sorted(found.steps, key=lambda step: -step[2])[:SHOWN]
        print(
            json.dumps(
                {**row, "bytes": found.moved, "peaks": (operations, moved), "longest": longest}
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
