"""benchmarks.dynamic: programs whose sizes change (``python -m benchmarks.dynamic [--rival] [names]``).

For each case, over all its sizes: how often Argand compiles with ``dynamic=None`` (and torch.compile, with
``--rival``, in the same run), the distance from eager at the worst size, the time for all sizes with their
compilations, and the ratio of the code for open sizes to the code for one size at the last of them (best rounds).
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import argand
from argand.support import events
from benchmarks.child import interleave
from benchmarks.models.convolutional import ResNet18, UNet
from benchmarks.models.recurrent import LanguageModel
from benchmarks.models.transformers import HEADS, WIDTH, Bert, Gpt2, merge_heads, split_heads

Calls = list[tuple[Any, ...]]
Run = Callable[..., Any]


class CachedDecoder(nn.Module):
    """One layer of GPT-2-like decoding: a token attends to the keys and values of all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(1000, WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(
        self, tokens: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.words(tokens)
        query, key, value = self.qkv(self.norm(hidden)).split(WIDTH, dim=2)
        keys = torch.cat([keys, split_heads(key, HEADS)], 2)
        values = torch.cat([values, split_heads(value, HEADS)], 2)
        attended = nn.functional.scaled_dot_product_attention(
            split_heads(query, HEADS), keys, values
        )
        hidden = hidden + self.out(merge_heads(attended))
        return hidden @ self.words.weight.t(), keys, values


def _tokens(batch: int, length: int) -> Tensor:
    return torch.randint(1000, (batch, length))


def _cached(length: int) -> tuple[Tensor, Tensor, Tensor]:
    shape = (2, HEADS, length, WIDTH // HEADS)
    return _tokens(2, 1), torch.randn(shape), torch.randn(shape)


def _image(size: int) -> tuple[Tensor]:
    return (torch.randn(2, 3, size, size + 32),)


# name: the model, its calls, and whether it trains
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Calls], bool]] = {
    "bert": (Bert, lambda: [(_tokens(2 + n % 4, 9 + 3 * n),) for n in range(40)], False),
    "gpt2": (Gpt2, lambda: [(_tokens(2 + n % 3, 8 + 2 * n),) for n in range(40)], False),
    "decoding": (CachedDecoder, lambda: [_cached(n) for n in range(5, 45)], False),
    "resnet": (ResNet18, lambda: [_image(64 + 16 * n) for n in range(10)], False),
    "unet": (UNet, lambda: [_image(64 + 16 * n) for n in range(10)], False),
    "lstm": (LanguageModel, lambda: [(_tokens(4, 10 + 3 * n),) for n in range(20)], False),
    "train bert": (
        lambda: Bert(2, dropout=0.0),
        lambda: [(_tokens(4 + n % 3, 20 + 4 * n),) for n in range(10)],
        True,
    ),
    "ragged batch": (
        lambda: nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)),
        lambda: [(torch.randn(n, 64),) for n in [32] * 9 + [17] + [32] * 9 + [11]],
        True,
    ),
}


def _call(run: Run, model: nn.Module, args: tuple[Any, ...], trains: bool) -> list[Tensor]:
    """Results, or loss and gradients, of one call."""
    if not trains:
        with torch.no_grad():
            found = run(*args)
        return [found] if isinstance(found, Tensor) else list(found)
    model.zero_grad()
    loss = run(*args).square().mean()
    loss.backward()
    return [loss.detach(), *[p.grad for p in model.parameters() if p.grad is not None]]


def _distance(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    return max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1))
        for a, b in zip(found, wanted, strict=True)
    )


class Counted:
    """The rival's default backend, counting."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx  # slow to import, needed with --rival

        self.graphs += 1
        return compile_fx(graph, inputs)


def _over_all(
    run: Run, model: nn.Module, calls: Calls, trains: bool
) -> tuple[float, list[list[Tensor]]]:
    begin = time.perf_counter()
    results = [_call(run, model, args, trains) for args in calls]
    return time.perf_counter() - begin, results


def measure(name: str, rival: bool, rounds: int) -> str:
    """One line of the table."""
    build, make_calls, trains = CASES[name]
    torch.manual_seed(0)
    model, calls = build().train(trains), make_calls()
    eager_seconds, wanted = _over_all(model, model, calls, trains)
    run = argand.compile(model)
    with events.collect() as seen:
        seconds, found = _over_all(run, model, calls, trains)
    worst = max(_distance(a, b) for a, b in zip(found, wanted, strict=True))
    other = copy.deepcopy(model)
    fixed = argand.compile(other, dynamic=False)
    turns: dict[str, Callable[[], Any]] = {
        "open": lambda: _call(run, model, calls[-1], trains),
        "fixed": lambda: _call(fixed, other, calls[-1], trains),
    }
    taken = interleave(turns, rounds, 0.05, "cpu")
    steady = min(taken["open"]) / min(taken["fixed"])
    line = f"| {name} | {len(calls)} | {seen.total('compiles')} | {worst:.1e} | {eager_seconds:.2f} | {seconds:.2f}"
    if rival:
        torch._dynamo.reset()
        counted = Counted()
        rival_seconds, _ = _over_all(torch.compile(model, backend=counted), model, calls, trains)
        line += f" | {counted.graphs} | {rival_seconds:.2f}"
    return f"{line} | {steady:.2f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[], help=f"of {', '.join(CASES)}")
    parser.add_argument("--rival", action="store_true", help="torch.compile in the same run")
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    rival = ["its compiles", "its s"] if chosen.rival else []
    head = [
        "case",
        "sizes",
        "compiles",
        "worst distance",
        "eager s",
        "argand s",
        *rival,
        "open / fixed",
    ]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for name in chosen.names or CASES:
        print(measure(name, chosen.rival, chosen.rounds), flush=True)


if __name__ == "__main__":
    main()
