"""benchmarks.cycles: compile, train a step, drop, again and again (``python -m benchmarks.cycles``).

In: how often. Out: how much the process grew, in objects and memory, after a first part of the cycles
that fills caches of torch, Python and ourselves. Fails when a cycle leaves anything behind.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import torch

import argand

WARM = 5  # one cycle in so many is only there to fill caches
OBJECTS, BYTES = 0.5, 2048  # allowed per cycle: noise of the allocator, nothing that is kept


def cycle(backend: Any) -> weakref.ref[torch.nn.Module]:
    """One model: compiled with a graph break and a side effect, called, trained, dropped."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.GELU())

    def step(x: torch.Tensor, seen: list[int]) -> torch.Tensor:
        seen.append(1)
        y = net(x)
        if y.sum() > 1e9:
            y = y + 1
        return y * 2

    run = argand.compile(step, backend=backend)
    for _ in range(2):
        run(torch.ones(1, 4), []).sum().backward()
    return weakref.ref(net)


def resident() -> int:
    """Bytes of memory the process holds, after the allocator gave back what it can."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def measure(backend: Any, count: int) -> dict[str, float]:
    """Growth per cycle, and how many models outlived their cycle."""
    for _ in range(count // WARM):
        cycle(backend)
    memory, objects = resident(), len(gc.get_objects())
    rest = count - count // WARM
    models = [cycle(backend) for _ in range(rest)]
    grown = resident() - memory
    alive = sum(model() is not None for model in models)
    models.clear()
    gc.collect()
    return {
        "objects": (len(gc.get_objects()) - objects) / rest,
        "bytes": grown / rest,
        "models alive": alive,
    }


def main() -> None:
    """Measure each backend; exit code 1 when something grows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cycles", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--backends", default="eager,aot_eager,argand")
    arguments = parser.parse_args()
    failed = False
    for backend in arguments.backends.split(","):
        found = measure(backend, arguments.count)
        bad = found["objects"] > OBJECTS or found["bytes"] > BYTES or found["models alive"] > 0
        numbers = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        print(
            f"{backend}: {arguments.count} cycles; per cycle: {numbers}{'  GROWS' if bad else ''}"
        )
        failed |= bad
    sys.exit(failed)


if __name__ == "__main__":
    main()
