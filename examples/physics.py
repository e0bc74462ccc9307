"""A physics-informed network: find u(x) with u'' = -sin(x) and u(0) = u(pi) = 0. The solution is sin(x).

The loss has second derivatives of the network, and training differentiates them once more: all of it is one graph.
"""

import argparse
import math
import time

import torch
from torch import Tensor, nn

import argand


def make_network(width: int) -> nn.Module:
    """A small network with smooth activations."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
    )


def loss_of(network: nn.Module, x: Tensor, border: Tensor) -> Tensor:
    """How far the network is from the equation and from its values at the border."""
    u = network(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    return (curvature + x.sin()).square().mean() + network(border).square().mean()


def train(steps: int, width: int, compiled: bool) -> tuple[float, float]:
    """Train; the seconds it took, and the largest distance from the solution."""
    network = make_network(width)
    step = argand.compile(loss_of, fullgraph=True) if compiled else loss_of
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    x = torch.linspace(0, math.pi, 128)[:, None].requires_grad_()
    border = torch.tensor([[0.0], [math.pi]])
    begin = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        step(network, x, border).backward()
        optimizer.step()
    seconds = time.perf_counter() - begin
    with torch.no_grad():
        return seconds, (network(x) - x.sin()).abs().max().item()


def main() -> None:
    """Train in eager and compiled, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a few steps only")
    small = parser.parse_args().small
    steps, width = (5, 8) if small else (2000, 64)
    eager, far = train(steps, width, compiled=False)
    ours, near = train(steps, width, compiled=True)
    print(
        f"eager {eager:.2f} s, error {far:.4f}; compiled {ours:.2f} s with its compile, error {near:.4f}"
    )
    assert abs(far - near) < 1e-2


if __name__ == "__main__":
    main()
