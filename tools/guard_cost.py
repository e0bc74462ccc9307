"""What a guarded call costs over calling the graph alone: `x + 1`, and an encoder of 192 parameters.

The backend returns at once, so only the way to the graph is measured. Contenders are interleaved, each
number is the best of many rounds, in microseconds. `--rival` adds torch.compile with the same backend.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import argand


class Block(torch.nn.Module):
    """One encoder layer, 16 parameters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.last_norm = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.query, self.key = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.value, self.out = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention, then two linear layers."""
        hidden = self.norm(x)
        scores = self.query(hidden) @ self.key(hidden).transpose(-1, -2)
        x = x + self.dropout(self.out(torch.softmax(scores, -1) @ self.value(hidden)))
        return x + self.dropout(self.down(torch.relu(self.up(self.last_norm(x)))))


class Backend:
    """Runs the graph once and returns that result ever after."""

    graph: Callable[..., Any]
    inputs: int

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """The callable of a graph."""
        results: list[Any] = []

        def run(*args: Any) -> Any:
            if not results:
                results.append(module.forward(*args))
            return results[0]

        self.graph, self.inputs = run, len(inputs)
        return run


def best(contenders: dict[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, float]:
    """Microseconds per call of each, the best round."""
    found = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, call in contenders.items():
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            found[name] = min(found[name], (time.perf_counter() - begin) / calls * 1e6)
    return found


def measure(name: str, model: Callable[..., Any], x: torch.Tensor, rival: bool) -> None:
    """Print the row of one program."""
    backend = Backend()
    compiled = argand.compile(model, backend=backend)
    compiled(x)
    graph, nothing = backend.graph, [None] * backend.inputs
    contenders = {"graph": lambda: graph(*nothing), "argand": lambda: compiled(x)}
    if rival:
        other = torch.compile(model, backend=Backend())
        other(x)
        contenders["torch.compile"] = lambda: other(x)
    found = best(contenders, rounds=60, calls=100)
    over = {key: value - found["graph"] for key, value in found.items() if key != "graph"}
    print(f"{name:10}", "  ".join(f"{key} {value:7.2f} us over" for key, value in over.items()))


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rival", action="store_true", help="also torch.compile")
    rival = parser.parse_args().rival
    torch.set_num_threads(1)
    encoder = torch.nn.Sequential(*(Block(32) for _ in range(12))).eval()
    with torch.no_grad():
        measure("x + 1", lambda x: x + 1, torch.randn(4), rival)
        measure("encoder", encoder, torch.randn(2, 8, 32), rival)


if __name__ == "__main__":
    main()
