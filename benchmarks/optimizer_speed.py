"""benchmarks.optimizer_speed: an Adam step of a 12-layer encoder, and a whole training step in one function.

``python -m benchmarks.optimizer_speed [--rival]``: eager, torch.compile and Argand take turns in one process; medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import argand


def encoder(layers: int = 12, width: int = 256) -> nn.Module:
    """A transformer encoder without dropout."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def step_of(compile_: Callable[..., Any]) -> Callable[[], Any]:
    """Adam's step over the parameters of an encoder."""
    model = encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * 0.01
    compiled: Callable[[], Any] = compile_(optimizer.step)
    return compiled


def training_of(compile_: Callable[..., Any]) -> Callable[[], Any]:
    """Forward, loss, backward, step and zero_grad in one function."""
    model = encoder(4, 128)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x = torch.randn(4, 64, 128)

    def train(batch: Tensor) -> Tensor:
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    compiled = compile_(train)
    return lambda: compiled(x)


def measure(
    name: str, make: Callable[..., Any], engines: dict[str, Callable[..., Any]], rounds: int
) -> None:
    """Let the engines take turns; print medians and what each is of eager's."""
    runs = {engine: make(compile_) for engine, compile_ in engines.items()}
    first: dict[str, float] = {}
    for engine, run in runs.items():
        begin = time.perf_counter()
        run()
        first[engine] = time.perf_counter() - begin
        for _ in range(6):
            run()
    seconds: dict[str, list[float]] = {engine: [] for engine in runs}
    for _ in range(rounds):
        for engine, run in runs.items():
            begin = time.perf_counter()
            run()
            seconds[engine].append(time.perf_counter() - begin)
    for engine, found in seconds.items():
        middle, base = statistics.median(found), statistics.median(seconds["eager"])
        print(
            f"{name:<14} {engine:<14} {1e3 * middle:8.3f} ms  {base / middle:5.2f} x eager  first call {first[engine]:6.2f} s"
        )


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.optimizer_speed", description=__doc__
    )
    parser.add_argument("--rival", action="store_true", help="torch.compile too")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    engines: dict[str, Callable[..., Any]] = {"eager": lambda f: f}
    if given.rival:
        engines["torch.compile"] = torch.compile
    engines["argand"] = argand.compile
    for name, make in (("adam step", step_of), ("training step", training_of)):
        if given.only in name:
            measure(name, make, engines, given.rounds)


if __name__ == "__main__":
    main()
