"""benchmarks.control_flow: a scan of 1,000 rounds and flex attention beside eager and torch.compile.

``python -m benchmarks.control_flow [--rival]``. Contenders take turns; the least of several rounds counts. Eager's scan is a
Python loop (torch's own eager scan is torch.compile); torch has no backward of flex attention on the CPU, so eager's
is its formula in plain operators.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops import scan
from torch._higher_order_ops.flex_attention import math_attention
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import argand

ROUNDS = 5


def recurrent(h: Tensor, xs: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Any:
    """A recurrent net by scan."""

    def step(h: Tensor, x: Tensor) -> Any:
        h = torch.tanh(h @ w + x @ u + b)
        return h, h.clone()

    return scan(step, h, xs)[1]


def recurrent_in_python(h: Tensor, xs: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Any:
    """The same as a loop."""
    rows = []
    for x in xs:
        h = torch.tanh(h @ w + x @ u + b)
        rows.append(h)
    return torch.stack(rows)


def _causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


def _window(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q >= k) & (q - k < 256)


def _cap(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return 20 * torch.tanh(score / 20)


def attention(mask: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Flex attention with a mask, and its formula."""

    def flexible(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, score_mod=_cap, block_mask=mask)

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return math_attention(q, k, v, _cap, mask.as_tuple(), 1 / math.sqrt(q.size(-1)), {})[0]

    return flexible, plain


def measure(
    name: str, contenders: dict[str, Callable[..., Any]], inputs: list[Tensor], train: bool
) -> None:
    """Print one row."""
    best: dict[str, float] = {}
    for x in inputs:
        x.requires_grad_(train)
    for turn in range(ROUNDS + 1):
        for who, function in contenders.items():
            start = time.perf_counter()
            with torch.set_grad_enabled(train):
                out = function(*inputs)
                if train:
                    out.sum().backward()
            if turn:
                best[who] = min(best.get(who, math.inf), time.perf_counter() - start)
    eager = best["eager"]
    row = "  ".join(
        f"{who} {1e3 * took:8.2f} ms ({took / eager:.2f})" for who, took in best.items()
    )
    print(f"{name:28s} {'train' if train else 'infer'}  {row}", flush=True)


def main() -> None:
    """All rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_flow", description=__doc__)
    parser.add_argument("--rival", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    length, batch, width = 1000, 16, 64
    cell = [torch.zeros(batch, width), torch.randn(length, batch, width)]
    cell += [torch.randn(width, width) * 0.1, torch.randn(width, width) * 0.1, torch.zeros(width)]
    rows = [("scan of 1000", recurrent, recurrent_in_python, cell, (False, True))]
    for name, mask in (("causal", _causal), ("window 256", _window)):
        blocks = create_block_mask(mask, None, None, 1024, 1024, device="cpu")
        heads = [torch.randn(1, 8, 1024, 64) for _ in range(3)]
        rows.append((f"flex_attention {name}", *attention(blocks), heads, (False, True)))
    for name, function, plain, inputs, modes in rows:
        for train in modes:
            contenders = {"eager": plain, "argand": argand.compile(function, fullgraph=True)}
            if given.rival and not (train and "flex" in name):
                contenders["torch.compile"] = torch.compile(function, fullgraph=True)
            if given.only in name:
                measure(name, contenders, inputs, train)


if __name__ == "__main__":
    main()
