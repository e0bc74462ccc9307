"""A backend of your own: count the multiplications of a model's graphs, then let Argand's code generator run them.

A backend gets a graph and example inputs and returns something to call. `argand.compile_fx` is the one Argand uses itself.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import argand

counted: dict[str, int] = {}


def multiplications(node: torch.fx.Node) -> int:
    """The multiplications of a linear layer or a product; other operations count nothing."""
    value = node.meta.get("example_value")
    if node.target not in (torch._C._nn.linear, torch.matmul) or not isinstance(
        value, torch.Tensor
    ):
        return 0
    first = node.args[0]
    assert isinstance(first, torch.fx.Node)
    return math.prod(value.shape) * first.meta["example_value"].shape[-1]


@argand.register_backend(name="counting")
def counting(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Count, then compile."""
    counted["nodes"] = len(gm.graph.nodes)
    counted["multiplications"] = sum(map(multiplications, gm.graph.nodes))
    return argand.compile_fx(gm, example_inputs)


def main() -> None:
    """Compile a model with it, by name."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    x = torch.randn(32, 64)
    compiled = argand.compile(model, backend="counting")
    torch.testing.assert_close(compiled(x), model(x))
    print(f"{counted['nodes']} nodes, {counted['multiplications']} multiplications")
    assert counted["multiplications"] == 32 * (64 * 128 + 128 * 10)


if __name__ == "__main__":
    main()
