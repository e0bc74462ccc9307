"""Operators that take functions: against the same program in plain Python, with gradients of first and second order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops import scan, while_loop

import argand

Tensor = torch.Tensor


def _python_cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    return true_fn(*operands) if pred else false_fn(*operands)


def _python_scan(combine: Any, init: Any, xs: Any, dim: int = 0, reverse: bool = False) -> Any:
    single = isinstance(xs, Tensor)
    parts = [x.unbind(dim) for x in ([xs] if single else xs)]
    rounds = list(zip(*parts, strict=True))
    carry, rows = init, []
    for values in reversed(rounds) if reverse else rounds:
        carry, row = combine(carry, values[0] if single else list(values))
        rows.append(row)
    rows = rows[::-1] if reverse else rows
    if isinstance(rows[0], Tensor):
        return carry, torch.stack(rows, dim)
    return carry, [torch.stack(list(column), dim) for column in zip(*rows, strict=True)]


def _python_map(function: Any, xs: Any, *args: Any) -> Any:
    rows = [function(x, *args) for x in xs.unbind(0)]
    if isinstance(rows[0], Tensor):
        return torch.stack(rows)
    return tuple(torch.stack(list(column)) for column in zip(*rows, strict=True))


def _python_while(test: Any, body: Any, carried: Any) -> Any:
    while test(*carried):
        carried = body(*carried)
    return carried


PYTHON = SimpleNamespace(
    cond=_python_cond, scan=_python_scan, map=_python_map, while_loop=_python_while
)
TORCH = SimpleNamespace(cond=torch.cond, scan=scan, map=torch_map, while_loop=while_loop)

CASES: list[Any] = []


def case(*shapes: tuple[int, ...]) -> Callable[[Any], Any]:
    """A program over tensors of these shapes."""

    def add(function: Any) -> Any:
        CASES.append(pytest.param(function, shapes, id=function.__name__))
        return function

    return add


@case((4, 3))
def plain_cond(ops: Any, x: Tensor) -> Tensor:
    return ops.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@case((4, 3), (3, 3), (3,))
def closures(ops: Any, x: Tensor, w: Tensor, c: Tensor) -> Tensor:
    return ops.cond(x.sum() > 0, lambda x: (x @ w).tanh(), lambda x: x * c + 1, (x,)) * 2


@case((4, 3), (3,))
def several_results(ops: Any, x: Tensor, c: Tensor) -> Any:
    first, rest = ops.cond(
        x[0, 0] > 0, lambda: (x * c, {"a": x.sum(0)}), lambda: (x + c, {"a": c.exp()})
    )
    return first, rest["a"]


@case((4, 3), (3, 3))
def conds_in_conds(ops: Any, x: Tensor, w: Tensor) -> Tensor:
    def outer(x: Tensor) -> Tensor:
        return ops.cond(
            x[0, 0] > 0,
            lambda x: x @ w,
            lambda x: ops.cond(x[1, 1] > 0, torch.sin, torch.cos, (x,)),
            (x,),
        )

    return ops.cond(x.sum() > -1, outer, lambda x: x.relu() + 1, (x,))


@case((5, 3), (3, 3), (3,))
def recurrent(ops: Any, x: Tensor, w: Tensor, h: Tensor) -> Any:
    def step(h: Tensor, x: Tensor) -> Any:
        h = torch.tanh(h @ w + x)
        return h, h * 2

    return ops.scan(step, h, x)


@case((5, 2, 3), (2, 3))
def from_the_end(ops: Any, x: Tensor, h: Tensor) -> Any:
    return ops.scan(lambda h, x: (h * x.sigmoid() + x, (h - x).clone()), h, x, reverse=True)


@case((2, 5, 3), (2, 3))
def along_a_dimension(ops: Any, x: Tensor, h: Tensor) -> Any:
    return ops.scan(lambda h, x: ((h + x).sin(), h * x), h, x, dim=1)


@case((6, 3), (6, 3), (3,))
def two_sequences(ops: Any, x: Tensor, y: Tensor, h: Tensor) -> Any:
    def step(carry: Any, xy: Any) -> Any:
        a, b = carry
        return [a * xy[0] + b, b + xy[1].sin()], [a + b, (a * b).sum()]

    (a, b), (r, s) = ops.scan(step, [h, h * 2], [x, y])
    return a, b, r, s


@case((4, 3), (3, 3))
def a_condition_in_a_scan(ops: Any, x: Tensor, w: Tensor) -> Any:
    def step(h: Tensor, x: Tensor) -> Any:
        h = ops.cond(
            x.sum() > 0, lambda h, x: torch.tanh(h @ w) + x, lambda h, x: h * x + 1, (h, x)
        )
        return h, h.clone()

    return ops.scan(step, w[0], x)


@case((4, 5, 3), (3,))
def a_scan_in_a_map(ops: Any, x: Tensor, h: Tensor) -> Any:
    return ops.map(
        lambda x: ops.scan(lambda h, x: ((h * x).sin() + x, (h + x).clone()), h, x)[1].sum(0), x
    )


@case((4, 3), (3,), (3,))
def mapped(ops: Any, x: Tensor, y: Tensor, c: Tensor) -> Any:
    return ops.map(lambda x, y: (x * y + c, (x * c).sum()), x, y)


@case((4, 3), (3, 3))
def scan_after_products(ops: Any, x: Tensor, w: Tensor) -> Tensor:
    last, rows = ops.scan(lambda h, x: (torch.softmax(h * x, 0), h @ w), w.sum(0), (x @ w).relu())
    return (rows @ w).sum() + last.sum()


def _inputs(shapes: Any, seed: int, grad: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_(grad)
        for shape in shapes
    ]


def _flat(value: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def _gradients(outputs: list[Tensor], inputs: list[Tensor], order: int) -> list[Any]:
    total = torch.stack([(out * (1 + 0.1 * k)).sum() for k, out in enumerate(outputs)]).sum()
    if not total.requires_grad:
        return []
    found = torch.autograd.grad(total, inputs, create_graph=order > 1, allow_unused=True)
    made = [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]
    return made if order == 1 else _gradients([(g * g).sum() for g in made], inputs, order - 1)


def check(function: Any, shapes: Any, backend: str, order: int, seed: int, **options: Any) -> None:
    """Compiled against plain Python."""
    wanted_inputs, inputs = _inputs(shapes, seed, order > 0), _inputs(shapes, seed, order > 0)
    wanted = _flat(function(PYTHON, *wanted_inputs))
    compiled = argand.compile(
        functools.partial(function, TORCH), backend=backend, fullgraph=True, **options
    )
    for _ in range(2):
        found = _flat(compiled(*inputs))
        torch.testing.assert_close(found, wanted)
        if order:
            torch.testing.assert_close(
                _gradients(found, inputs, order), _gradients(wanted, wanted_inputs, order)
            )
            wanted = _flat(function(PYTHON, *wanted_inputs))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("backend", ["aot_eager", "argand"])
@pytest.mark.parametrize(("function", "shapes"), CASES)
def test_as_in_plain_python(
    function: Any, shapes: Any, backend: str, order: int, seed: int
) -> None:
    check(function, shapes, backend, order, seed)
