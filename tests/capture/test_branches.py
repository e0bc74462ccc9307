"""Operators that take functions: the graph a backend gets, and what is said of functions that do not fit."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as torch_map

import argand
from argand.support.errors import CaptureError

Tensor = torch.Tensor
FACTOR = torch.tensor([0.5, 2.0, 1.5])


def _graphs(function: Any, *args: Any, **options: Any) -> list[torch.fx.GraphModule]:
    seen = []

    def keep(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append(gm)
        return gm.forward

    argand.compile(function, backend=keep, fullgraph=True, **options)(*args)
    return seen


def test_a_backend_gets_the_operator_as_torch_compile_has_it() -> None:
    weight = torch.ones(3)

    def program(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * weight, lambda x: x + 1, (x,))

    (graph,) = _graphs(program, torch.ones(2, 3))
    (node,) = [n for n in graph.graph.nodes if n.target is torch.ops.higher_order.cond]
    _, true, false, operands = node.args
    assert isinstance(operands, tuple)
    # x, and what one branch reads from outside
    assert [n.op for n in operands] == ["placeholder", "placeholder"]
    for branch in (true, false):
        module = graph.get_submodule(str(branch.target))
        assert isinstance(module, torch.fx.GraphModule)
        assert sum(n.op == "placeholder" for n in module.graph.nodes) == 2


def _complaint(function: Any, *args: Any) -> str:
    with pytest.raises(CaptureError) as caught:
        argand.compile(function, fullgraph=True)(*args)
    return str(caught.value)


@pytest.mark.parametrize(
    ("true_fn", "false_fn", "reason"),
    [
        (lambda x: x, lambda x: x + 1, "shares memory"),
        (lambda x: x.sum(0), lambda x: x + 1, "gives sizes [3], false_fn [2, 3]"),
        (lambda x: x.int(), lambda x: x + 1, "gives torch.int32"),
        (lambda x: (x + 1, x + 2), lambda x: x + 1, "true_fn gives"),
        (lambda x: x.add_(1), lambda x: x + 1, "in place"),
    ],
)
def test_what_does_not_fit_is_named_with_the_users_line(
    true_fn: Any, false_fn: Any, reason: str
) -> None:
    def program(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, true_fn, false_fn, (x,))

    text = _complaint(program, torch.ones(2, 3))
    assert reason in text
    line = inspect.getsourcelines(program)[1] + 1
    assert f"{__file__}:{line}" in text


def test_what_a_branch_writes_outside_is_refused() -> None:
    seen: list[int] = []

    def branch(x: Tensor) -> Tensor:
        seen.append(1)
        return x + 1

    assert "changes something outside" in _complaint(
        lambda x: torch.cond(x.sum() > 0, branch, lambda x: x * 2, (x,)), torch.ones(3)
    )


def test_guards_of_both_branches_hold() -> None:
    class Box:
        """What branches read."""

        factor, shift = 2.0, 3.0

    box = Box()

    def program(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * box.factor, lambda x: x + box.shift, (x,))

    compiled = argand.compile(program, fullgraph=True)
    for factor, shift in [(2.0, 3.0), (5.0, 3.0), (5.0, 7.0)]:
        box.factor, box.shift = factor, shift
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), factor))
        torch.testing.assert_close(compiled(-torch.ones(3)), torch.full((3,), shift - 1))


def test_a_break_in_a_branch_leaves_the_whole_call_to_python() -> None:
    def branch(x: Tensor) -> Tensor:
        print(end="")
        argand.graph_break()
        return x * 2

    text = _complaint(
        lambda x: torch.cond(x.sum() > 0, branch, lambda x: x + 1, (x,)), torch.ones(3)
    )
    assert "B005" in text or "B007" in text


def test_lengths_stay_open() -> None:
    def program(h: Tensor, xs: Tensor) -> Any:
        last, rows = scan(lambda h, x: (h * x + x.sum(), h * xs.shape[0]), h, xs)
        return last + h.shape[0], rows

    def plain(h: Tensor, xs: Tensor) -> Any:
        rows, size = [], h.shape[0]
        for x in xs:
            rows.append(h * xs.shape[0])
            h = h * x + x.sum()
        return h + size, torch.stack(rows)

    compiled = argand.compile(program, fullgraph=True, dynamic=True)
    with argand.set_stance("default"):
        for length, width in [(5, 3), (9, 4), (2, 7)]:
            h, xs = torch.randn(width), torch.randn(length, width)
            torch.testing.assert_close(compiled(h, xs), plain(h, xs))


def test_while_loop_runs_until_its_condition_is_false() -> None:
    def program(x: Tensor) -> Any:
        return while_loop(
            lambda i, x: (i < 10) & (x.sum() < 100),
            lambda i, x: (i + 1, x * 2),
            (torch.tensor(0), x),
        )

    compiled = argand.compile(program, fullgraph=True)
    for start, rounds in [(1.0, 6), (0.0, 10), (1000.0, 0)]:
        count, value = compiled(torch.full((2,), start))
        assert int(count) == rounds
        torch.testing.assert_close(value, torch.full((2,), start * 2**rounds))


def test_the_common_path_imports_no_other_compiler() -> None:
    text = """
import sys, torch, argand
from torch._higher_order_ops import scan
w = torch.ones(3, requires_grad=True)
def f(x):
    y = torch.cond(x.sum() > 0, lambda x: x * w, lambda x: x + w, (x,))
    return scan(lambda h, x: (h + x, h * w), w * 2, y)[1].sum()
argand.compile(f, fullgraph=True)(torch.ones(4, 3)).backward()
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_graphs_in_graphs_run_as_plain_python_too() -> None:
    def program(xs: Tensor) -> Tensor:
        def outer(x: Tensor) -> Tensor:
            h, y = x.sum(), x * 2
            return scan(
                lambda h, x: (
                    torch.cond(x > h, lambda h: h + x + y.sum(), lambda h: h * x, (h,)),
                    h * 2,
                ),
                h,
                x,
            )[1]

        return torch_map(outer, xs)

    xs = torch.randn(3, 4)
    found = [
        argand.compile(program, backend=backend, fullgraph=True)(xs)
        for backend in ("eager", "aot_eager", "argand")
    ]
    torch.testing.assert_close(found[1:], [found[0]] * 2)


def test_integers_may_be_carried() -> None:
    def program(x: Tensor) -> Any:
        return while_loop(lambda i, x: 2 * i < x.shape[0], lambda i, x: (i + 1, x + i), (0, x))

    count, value = argand.compile(program, fullgraph=True)(torch.zeros(8))
    assert count == 4
    assert type(count) is int
    torch.testing.assert_close(value, torch.full((8,), 6.0))


def test_while_loop_trains_by_torchs_own_operator() -> None:
    def program(x: Tensor) -> Tensor:
        found: Tensor = while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, x * x), (torch.tensor(0), x)
        )[1]
        return found

    x = torch.full((2,), 1.5, requires_grad=True)
    argand.compile(program, fullgraph=True)(x).sum().backward()
    torch.testing.assert_close(x.grad, 8 * x.detach() ** 7)


@pytest.mark.parametrize("value", [256, 0, 0.5, float("nan"), True])
def test_a_condition_of_any_type(value: Any) -> None:
    def program(x: Tensor, pred: Tensor) -> Tensor:
        return torch.cond(pred, lambda x: x + 1, lambda x: x - 1, (x,))

    found = argand.compile(program, fullgraph=True)(torch.zeros(2), torch.tensor(value))
    torch.testing.assert_close(found, torch.full((2,), 1.0 if value else -1.0))


def test_one_round_and_results_that_nobody_reads() -> None:
    def program(h: Tensor, xs: Tensor) -> Tensor:
        found: Tensor = scan(
            lambda c, x: ([c[0] + x, c[1] * 2], [c[0] * x, c[1] + x]), [h, h + 1], xs
        )[1][1]
        return found

    compiled = argand.compile(program, fullgraph=True)
    for length in (1, 2, 5):
        h, xs = torch.randn(3), torch.randn(length, 3)
        torch.testing.assert_close(
            compiled(h, xs), torch.stack([(h + 1) * 2**k + x for k, x in enumerate(xs)])
        )


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_associative_scans_combine_in_torchs_order(length: int) -> None:
    def program(x: Tensor) -> Any:
        # the order can be seen
        first = associative_scan(lambda a, b: a * b + a, x, 0, combine_mode="generic")
        return first, associative_scan(
            lambda a, b: a + b * FACTOR, x.t(), 1, reverse=True, combine_mode="generic"
        )

    x = torch.randn(length, 3)
    for found, wanted in zip(argand.compile(program, fullgraph=True)(x), program(x), strict=True):
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()
