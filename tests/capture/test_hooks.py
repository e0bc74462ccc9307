"""`register_hook` of a value inside: in the graph, where the value stays in it; torch's engine calls it once, with everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import argand

MASK = torch.tensor([1.0, 0.0, 3.0, 4.0])
KEPT: list[Tensor] = []


def simple(x: Tensor) -> Any:
    """One hook."""
    y = x.sin()
    y.register_hook(lambda g: g * 3)
    return (y * 2).sum()


def several(x: Tensor) -> Any:
    """Hooks run in order, on the sum of all that flows into the value."""
    y = x.sin()
    y.register_hook(lambda g: g * 3)
    y.register_hook(lambda g: g + 1)
    return (y * 2).sum(), y.cos().sum()


def clipped(x: Tensor) -> Any:
    """A hook that is not linear, before two results."""
    y = x.sin()
    y.register_hook(lambda g: g.clamp(-0.1, 0.1))
    return y * 2, y * 3


def reads(x: Tensor) -> Any:
    """A hook that reads values of the function and from outside."""
    mask, scale = x.detach() > 0, x.exp()
    y = x.sin()
    y.register_hook(lambda g: g * mask * scale * MASK)
    return y * 2


def removed(x: Tensor) -> Any:
    """A hook that is taken away again, and one that changes nothing."""
    y = x.sin()
    y.register_hook(lambda g: g * 3).remove()
    y.register_hook(lambda g: None)
    return y * 2


def inside(x: Tensor) -> Any:
    """A backward in the function."""
    w = x.detach().clone().requires_grad_()
    y = w.sin()
    y.register_hook(lambda g: g * 3)
    (y * 2).sum().backward()
    return x * w.grad


def written(x: Tensor) -> Any:
    """The value is written to later, and a view of it is what is used."""
    y = x.sin()
    y.register_hook(lambda g: g * 3)
    y.mul_(2)
    return y[1:].cos()


def leaving(x: Tensor) -> Any:
    """The value leaves the graph."""
    y = x.sin()
    y.register_hook(lambda g: g * 3)
    return y


def noting(x: Tensor) -> Any:
    """The hook changes something outside."""
    y = x.sin()
    y.register_hook(KEPT.append)
    return y * 2


def bad(x: Tensor) -> Any:
    """A hook whose result does not fit."""
    y = x.sin()
    y.register_hook(lambda g: g[:1])
    return y * 2


def gradients(program: Callable[[Tensor], Any], calls: int = 2) -> list[Tensor]:
    """The gradients after each of several calls."""
    x, found = torch.linspace(-1, 2, 4).requires_grad_(), []
    for _ in range(calls):
        results = program(x)
        results = results if isinstance(results, tuple) else (results,)
        sum(((part**2).sum() for part in results), torch.zeros(())).backward()
        found.append(x.grad.clone())
    return found


@pytest.mark.parametrize(
    "program", [simple, several, clipped, reads, removed, inside, written], ids=lambda p: p.__name__
)
def test_a_hook_is_in_the_graph(program: Callable[[Tensor], Any]) -> None:
    expected = gradients(program)
    actual = gradients(argand.compile(program, fullgraph=True))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("program", [leaving, noting], ids=lambda p: p.__name__)
def test_a_hook_that_the_outside_sees_is_pythons(program: Callable[[Tensor], Any]) -> None:
    KEPT.clear()
    expected, seen = gradients(program), list(KEPT)
    KEPT.clear()
    torch.testing.assert_close(gradients(argand.compile(program)), expected)
    torch.testing.assert_close(KEPT, seen)
    with pytest.raises(argand.CaptureError):
        argand.compile(program, fullgraph=True)(torch.ones(4, requires_grad=True))


def test_a_handle_that_leaves_is_pythons() -> None:
    def program(x: Tensor) -> Any:
        y = x.sin()
        return y * 2, y.register_hook(lambda g: g * 3)

    x = torch.ones(4, requires_grad=True)
    compiled = argand.compile(program)
    for factor in (3, 1):
        result, handle = compiled(x)
        if factor == 1:
            handle.remove()
        x.grad = None
        result.sum().backward()
        torch.testing.assert_close(x.grad, x.cos().detach() * 2 * factor)


def test_a_hook_whose_result_does_not_fit_raises_as_in_eager() -> None:
    x = torch.ones(4, requires_grad=True)
    for program in (bad, argand.compile(bad)):
        with pytest.raises(RuntimeError):
            program(x).sum().backward()


def second(program: Callable[[Tensor], Any]) -> Tensor:
    """A second derivative."""
    x = torch.linspace(-1, 2, 4).requires_grad_()
    (slope,) = torch.autograd.grad((program(x) ** 2).sum(), x, create_graph=True)
    return torch.autograd.grad((slope**2).sum(), x)[0]


def test_second_derivatives_go_through_linear_hooks() -> None:
    compiled = argand.compile(reads, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(second(compiled), second(reads))


@pytest.mark.parametrize("backend", ["argand", "aot_eager", "eager"])
def test_second_derivatives_through_hooks_that_are_not_linear(backend: str) -> None:
    """Such a hook is given all of its gradient at once: what reaches it from the result, and from the first derivative."""

    def program(x: Tensor) -> Tensor:
        y = x * 2
        z = y.sin()  # reaches the hook although it was made before
        y.register_hook(lambda g: g * g)
        return y.cos() + z

    compiled = argand.compile(program, fullgraph=True, backend=backend)
    for _ in range(3):
        torch.testing.assert_close(second(compiled), second(program))


def test_a_value_that_is_watched_after_it_was_used_is_apart() -> None:
    """Gradients of what was made of it before flow through it all the same."""

    def hooked(x: Tensor) -> Any:
        y = x.sin()
        z = y * 2
        return z, y.register_hook(lambda g: g * 3)

    def retained(x: Tensor) -> Any:
        y = x.sin()
        z = y * 2
        y.retain_grad()
        return z, y

    for program in (hooked, retained):
        compiled = argand.compile(program)
        for _ in range(3):
            found = []
            for run in (program, compiled):
                x = torch.ones(4, requires_grad=True)
                z, rest = run(x)
                z.sum().backward()
                found.append((x.grad, rest.grad if isinstance(rest, Tensor) else None))
            torch.testing.assert_close(found[1], found[0])
