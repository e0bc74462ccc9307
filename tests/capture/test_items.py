"""Numbers that a graph reads from its tensors: beside tensors and other floats they need no break, and nothing differs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import argand

Program = Callable[[torch.Tensor], Any]

ONE_GRAPH: dict[str, Program] = {
    "times": lambda x: x * x.sum().item(),
    "left": lambda x: x.sum().item() - x,
    "over": lambda x: x / x.abs().sum().item(),
    "compared": lambda x: x > x.mean().item(),
    "in_place": lambda x: _in_place(x),
    "number_first": lambda x: _accumulate(x),
    "one_element": lambda x: x * x[:1, :1].item(),
    "of_another_type": lambda x: x + x.double().sum().item(),
    "of_integers": lambda x: x * x.long().sum().item(),
    "no_dimensions": lambda x: x[0, 0] * x.double().mean().item(),
    "floats": lambda x: (x.sum().item() * 2.5 - 1) / 3 + x.mean().item(),
    "floats_then_tensor": lambda x: x * (0.1 * x.sum().item() + 3),
    "integers": lambda x: (x * 10).long() + (x * 10).long().sum().item(),
}
BREAKS: dict[str, Program] = {
    "over_tensor": lambda x: x.sum().item() / x,
    "power": lambda x: x.abs() ** x.sum().item(),
    "half": lambda x: x.half() * x.sum().item(),
    "over_number": lambda x: 1.0 / x.sum().item(),
    "small_integers": lambda x: (x * 10).int() + (x * 10).long().sum().item(),
}


def _in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y -= x.max().item()
    return y


def _accumulate(x: torch.Tensor) -> Any:
    total: Any = x.sum().item()
    total *= x
    return total


@pytest.mark.parametrize("name", ONE_GRAPH)
@pytest.mark.parametrize("backend", ["eager", "argand"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_graph(name: str, backend: str, dtype: torch.dtype) -> None:
    program = ONE_GRAPH[name]
    compiled = argand.compile(program, backend=backend, fullgraph=True)
    for seed in range(3):
        x = torch.randn(4, 5, dtype=dtype, generator=torch.Generator().manual_seed(seed))
        got, wanted = compiled(x), program(x)
        assert type(got) is type(wanted)
        if backend == "eager":
            assert torch.equal(got, wanted) if isinstance(wanted, torch.Tensor) else got == wanted
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BREAKS)
def test_what_eager_computes_otherwise_breaks(name: str) -> None:
    program, x = BREAKS[name], torch.randn(4, 5)
    got, wanted = argand.compile(program, backend="eager")(x), program(x)
    assert torch.equal(got, wanted) if isinstance(wanted, torch.Tensor) else got == wanted


def test_the_number_has_no_gradient() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * x.sum().item() - x.sum().item()).sum()

    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    argand.compile(program, fullgraph=True)(x).backward()
    program(y).backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_an_operator_of_the_users_sees_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def multiply(self: torch.Tensor, other: Any) -> Any:
        seen.append(type(other))
        return torch.mul(self, other)

    monkeypatch.setattr(torch.Tensor, "__mul__", multiply)
    x = torch.ones(3)
    torch.testing.assert_close(argand.compile(lambda x: x * x.sum().item())(x), x * 3)
    assert float in seen and torch.Tensor not in seen
