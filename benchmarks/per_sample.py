"""benchmarks.per_sample: gradients of each sample of a batch, `vmap(grad(...))` over a functional call of an MLP.

``python -m benchmarks.per_sample`` prints milliseconds per call of eager, torch.compile and Argand, measured in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

import argand


def workload(batch: int, width: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function and its arguments."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, width),
        nn.GELU(),
        nn.LayerNorm(width),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, 10),
    )
    values = {name: value.detach() for name, value in model.named_parameters()}

    def loss(values: Any, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, values, (x[None],)), y[None])

    def run(values: Any, x: Tensor, y: Tensor) -> Any:
        return vmap(grad(loss), in_dims=(None, 0, 0))(values, x, y)

    return run, (values, torch.randn(batch, 64), torch.randint(0, 10, (batch,)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.per_sample")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    run, arguments = workload(given.batch, given.width)
    engines = {
        "eager": run,
        "torch.compile": torch.compile(run),
        "argand": argand.compile(run, fullgraph=True),
    }
    expected, first = run(*arguments), {}
    for name, engine in engines.items():
        start = time.perf_counter()
        torch.testing.assert_close(engine(*arguments), expected, rtol=1e-4, atol=1e-5)
        first[name] = time.perf_counter() - start
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(given.rounds):
        for name, engine in engines.items():
            start = time.perf_counter()
            engine(*arguments)
            times[name].append(time.perf_counter() - start)
    for name, row in times.items():
        print(f"{name:<14} {statistics.median(row) * 1e3:8.3f} ms, first call {first[name]:6.2f} s")


if __name__ == "__main__":
    main()
