"""benchmarks.models.small: programs of a few operators, where overhead is everything."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models.case import Case


class NormGelu(nn.Module):
    """Layer norm followed by gelu."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.norm(x))


class MLP(nn.Module):
    """Fully connected layers with an activation between them."""

    def __init__(self, sizes: tuple[int, ...], activation: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for wide, narrow in itertools.pairwise(sizes):
            layers += [nn.Linear(wide, narrow), activation()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def physics_loss(compiled: Callable[..., Any], args: tuple[Any, ...]) -> Tensor:
    """Residual of the heat equation u_t = u_xx: needs second derivatives of the network."""
    (points,) = args
    u = compiled(points)
    (du,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    (ddu,) = torch.autograd.grad(du[:, 0].sum(), points, create_graph=True)
    return (du[:, 1] - 0.1 * ddu[:, 0]).square().mean() + u.square().mean()


def _pinn() -> tuple[nn.Module, tuple[Tensor]]:
    return MLP((2, 64, 64, 64, 1), nn.Tanh), (torch.rand(1024, 2, requires_grad=True),)


CASES = (
    Case("norm_gelu", lambda: (NormGelu(1024), (torch.randn(512, 1024),))),
    Case("mlp", lambda: (MLP((128, 256, 256, 10)), (torch.randn(32, 128),))),
    Case("pinn", _pinn, loss=physics_loss),
    # Small enough for the tests of the harness itself.
    Case("tiny", lambda: (MLP((8, 16, 4)), (torch.randn(4, 8),)), group="test"),
)
