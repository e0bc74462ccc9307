"""``python -m benchmarks.versions PYTHON [PYTHON ...]``: guarded calls and captures of several interpreters, side by side.

Each round starts one process per interpreter, in turn; a process times a call whose graph costs nothing, and fresh captures,
by the CPU time of its thread. What is printed: the least of all rounds, and its ratio to the first interpreter's.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import torch

import argand

ROOT = pathlib.Path(__file__).resolve().parent.parent
CALLS, CAPTURES = 2000, 5


class Block(torch.nn.Module):
    """Attention and a perceptron with normalisation, as in most models."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.project = torch.nn.Linear(width, 3 * width)
        self.perceptron = torch.nn.Sequential(
            torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One block."""
        q, k, v = self.project(self.first(x)).chunk(3, dim=-1)
        x = x + torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v
        return x + self.perceptron(self.second(x))


def _free(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
    """A backend whose graph returns the same tensor at once."""
    (node,) = (node for node in graph.graph.nodes if node.op == "output")
    made = [torch.zeros(1) for _ in node.args[0]]
    return lambda *_: made


def _least(function: Callable[[], object], rounds: int, times: int = 1) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.thread_time()
        for _ in range(times):
            function()
        best = min(best, (time.thread_time() - begin) / times)
    return best


def measure() -> dict[str, float]:
    """What one process finds, in microseconds and milliseconds."""
    torch.set_num_threads(1)
    x = torch.ones(1, 2, 8)
    models = {
        "small": torch.nn.Linear(8, 8),
        "blocks": torch.nn.Sequential(*[Block(8) for _ in range(6)]),
    }
    found = {}
    for name, model in models.items():
        compiled = argand.compile(model.requires_grad_(False), backend=_free)
        compiled(x)
        found[f"call {name} (us)"] = 1e6 * _least(
            lambda compiled=compiled: compiled(x), 20, CALLS // 20
        )

        def capture(model: torch.nn.Module = model) -> None:
            argand.reset()
            argand.compile(model, backend="eager", options={"cache": False})(x)

        capture()
        found[f"capture {name} (ms)"] = 1e3 * _least(capture, CAPTURES)
    return found


def ask(python: str) -> dict[str, float]:
    """One round of one interpreter."""
    with tempfile.TemporaryDirectory() as caches:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = os.environ | {"XDG_CACHE_HOME": caches, "PYTHONPATH": paths}
        command = [python, "-W", "ignore", "-m", "benchmarks.versions", "--child"]
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pythons", nargs="*", default=[sys.executable])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure()))
        return
    rows: dict[str, list[dict[str, float]]] = {python: [] for python in options.pythons}
    for _ in range(options.rounds):
        for python, found in rows.items():
            found.append(ask(python))
    first = None
    for python, found in rows.items():
        best = {name: min(row[name] for row in found) for name in found[0]}
        first = first or best
        print(
            python,
            "  ".join(
                f"{name} {value:.2f} ({value / first[name]:.2f})" for name, value in best.items()
            ),
        )


if __name__ == "__main__":
    main()
