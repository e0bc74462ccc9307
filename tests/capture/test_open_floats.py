"""Floats that vary: how often a program is compiled, and that results, gradients and errors are eager's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import argand
from argand.support import events

VALUES = (0.5, 0.25, 3.0, -2.0, 0.0, 1.0, -0.0, 1e-30)
SPECIAL = (float("inf"), float("nan"))  # are compiled by themselves
BACKENDS = ("eager", "aot_eager", "argand")
OPERATORS: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "times": lambda x, f: x * f,
    "plus": lambda x, f: f + x,
    "minus": lambda x, f: x - f,
    "from": lambda x, f: f - x,
    "over": lambda x, f: f / x,
    "alpha": lambda x, f: torch.add(x, x.flip(0), alpha=f),
    "clamp": lambda x, f: x.clamp(max=f),
    "full": lambda x, f: x + torch.full((3,), f),
    "where": lambda x, f: torch.where(x > f, x, f),
    "filled": lambda x, f: x.masked_fill(x > 0, f),
    "power": lambda x, f: x.abs() ** f,
    "addcmul": lambda x, f: torch.addcmul(x, x, x, value=f),
    "integers": lambda x, f: (x * 4).to(torch.int64) * f,
    "scalar": lambda x, f: x.sum() * f,
    "half": lambda x, f: x.to(torch.bfloat16) * f,
    "computed": lambda x, f: x * (1 - f) + (f * 2 + 1) * x.exp() - (-f),
}


def compiles(
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    backend: str = "eager",
    **keywords: Any,
) -> int:
    """How often a function is compiled over some calls, each checked against eager."""
    run = argand.compile(
        function, backend=backend, fullgraph=True, options={"cache": False}, **keywords
    )
    exact = {"rtol": 0.0, "atol": 0.0} if backend == "eager" else {}
    with events.collect() as seen:
        for args in calls:
            torch.testing.assert_close(run(*args), function(*args), equal_nan=True, **exact)
    return seen.total("compiles")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_two_compiles_for_any_number_of_values(name: str, backend: str) -> None:
    x = torch.linspace(-2, 2, 3)
    assert compiles(OPERATORS[name], [(x, value) for value in VALUES], backend) == 2
    assert compiles(OPERATORS[name], [(x, value) for value in (*VALUES, *SPECIAL)], backend) == 4


@pytest.mark.parametrize(("dynamic", "count"), [(True, 1), (False, 4)])
def test_dynamic_says_when(dynamic: bool, count: int) -> None:
    calls = [(torch.ones(3), value) for value in VALUES[:4]]
    assert compiles(OPERATORS["times"], calls, dynamic=dynamic) == count


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend: str) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor, f: float, g: float) -> torch.Tensor:
        return ((x @ w * f).tanh() / g + f * g * x).square().mean()

    run = argand.compile(loss, backend=backend, options={"cache": False})
    with events.collect() as seen:
        for f, g in ((0.5, 2.0), (0.25, 3.0), (1.5, 2.5), (0.0, 1.0)):
            gradients = []
            for function in (run, loss):
                x = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
                w = torch.linspace(-1, 2, 16).view(4, 4).requires_grad_()
                function(x, w, f, g).backward()
                gradients.append((x.grad, w.grad))
            torch.testing.assert_close(*gradients)
    assert seen.total("compiles") == 2


def test_an_attribute_of_a_module_and_an_item_of_a_dict() -> None:
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.rates = 1.5, {"low": 0.5}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale + self.rates["low"]

    module, x = Scale(), torch.ones(4)
    run = argand.compile(module, backend="eager")
    with events.collect() as seen:
        for step in range(6):
            module.scale, module.rates["low"] = 1.0 / (step + 2), 0.1 * step
            assert torch.equal(run(x), module(x))
    assert seen.total("compiles") == 2


def test_comparisons_are_guards() -> None:
    def branch(x: torch.Tensor, f: float) -> torch.Tensor:
        return x * f if f > 0.5 else x - f if f else x + 1

    x = torch.ones(3)
    calls = [(x, value) for value in (0.75, 0.8, 0.6, 0.1, 0.2, 0.9, 0.0, -0.0, float("nan"), 7.0)]
    assert compiles(branch, calls) == 5  # 0.75 itself, above, below, zero, nan


@pytest.mark.parametrize(
    "use",
    [
        lambda x, f: x * math.sqrt(f),
        lambda x, f: x + int(f),
        lambda x, f: x * float(str(f)),
        lambda x, f: x[: round(f)],
        lambda x, f: torch.arange(0, 4, f),
        lambda x, f: x * f**2,
        lambda x, f: x * {0.5: 2}.get(f, 3),
        lambda x, f: torch.nn.functional.leaky_relu(x, f),
        lambda x, f: torch.nn.functional.dropout(x, f) * 0,
        lambda x, f: torch.addmm(x, torch.ones(8, 8), torch.ones(8, 8), beta=f),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_needs_the_number_gets_it(use: Callable[..., torch.Tensor], backend: str) -> None:
    x = torch.linspace(-1, 1, 8)
    run = argand.compile(use, backend=backend)
    for value in (0.5, 0.25, 0.75, 0.9, 0.1):
        torch.testing.assert_close(run(x, value), use(x, value))


def test_a_division_by_zero_raises_in_the_users_line() -> None:
    def inverse(x: torch.Tensor, f: float) -> torch.Tensor:
        return x * (1 / f)

    run = argand.compile(inverse, backend="eager")
    for value in (2.0, 4.0, 5.0):
        assert torch.equal(run(torch.ones(2), value), inverse(torch.ones(2), value))
    with pytest.raises(ZeroDivisionError, match="float division by zero") as raised:
        run(torch.ones(2), 0.0)
    assert raised.traceback[-1].name == "inverse"


def test_floats_are_returned_and_kept() -> None:
    kept: list[float] = []

    def step(x: torch.Tensor, rate: float) -> tuple[torch.Tensor, float, float]:
        kept.append(rate * 2)
        return x * rate, rate, 1 - rate

    run = argand.compile(step, backend="eager")
    for value in (0.5, 0.25, 0.125, 3.0):
        _, same, rest = run(torch.ones(2), value)
        assert (type(same), same, type(rest), rest, kept[-1]) == (
            float,
            value,
            float,
            1 - value,
            value * 2,
        )


def test_a_break_hands_them_on() -> None:
    def broken(x: torch.Tensor, f: float) -> torch.Tensor:
        y = x * f
        argand.graph_break()
        return y + f * 2

    run = argand.compile(broken, backend="eager")
    with events.collect() as seen:
        for value in (0.5, 0.25, 0.125, 3.0, 4.0):
            assert torch.equal(run(torch.ones(2), value), broken(torch.ones(2), value))
    assert seen.total("compiles") == 4


def test_explain_names_them() -> None:
    explanation = argand.explain(lambda x, lr: x * lr, dynamic=True)(torch.ones(2), 0.5)
    assert "f1 = lr, now 0.5" in str(explanation)
    explanation = argand.explain(lambda x, lr: x * math.exp(lr), dynamic=True)(torch.ones(2), 0.5)
    assert "lr is fixed at 0.5: lr is needed as a number (float)" in str(explanation)


def _terms() -> st.SearchStrategy[Any]:
    leaf = st.sampled_from(["f", "g", "0.5", "2", "-3.25"])
    return st.recursive(
        leaf,
        lambda inner: st.tuples(st.sampled_from("+-*/"), inner, inner).map(
            lambda t: f"({t[1]} {t[0]} {t[2]})"
        ),
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(_terms(), st.sampled_from(["x * {}", "{} - x", "x / {}", "x.clamp(min={})"]))
def test_arithmetic_is_pythons(term: str, use: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def program(x, f, g):\n    return {use.format(term)}", scope)
    program, x = scope["program"], torch.linspace(-2, 2, 5)
    run = argand.compile(program, backend="eager")
    for f, g in ((0.5, 2.0), (0.75, 3.0), (-1.5, 0.25), (0.0, 0.0), (1e300, -1e300), (2.5, 2.5)):
        try:
            expected = program(x, f, g)
        except (ZeroDivisionError, RuntimeError) as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                run(x, f, g)
            continue
        assert torch.equal(run(x, f, g).nan_to_num(), expected.nan_to_num())


F = torch.nn.functional
USES: dict[str, Callable[..., torch.Tensor]] = {
    "tensor": lambda x, f: x + torch.tensor(f),
    "list": lambda x, f: x + torch.tensor([f, 1.0, f]),
    "as_tensor": lambda x, f: x * torch.as_tensor(f),
    "new_tensor": lambda x, f: x * x.new_tensor([f]),
    "scalar_tensor": lambda x, f: x * torch.scalar_tensor(f),
    "fill_": lambda x, f: torch.empty(3).fill_(f) + x,
    "setitem": lambda x, f: x.clone().index_fill(0, torch.tensor([1]), f),
    "setitem2": lambda x, f: (lambda y: (y.__setitem__(0, f), y)[1])(x.clone()),
    "lerp": lambda x, f: torch.lerp(x, x * 2, f),
    "linspace": lambda x, f: x + torch.linspace(0, f, 3),
    "normal": lambda x, f: F.threshold(x, f, 0.5),
    "hardtanh": lambda x, f: F.hardtanh(x, -f, f),
    "softplus": lambda x, f: F.softplus(x, f),
    "layer_norm": lambda x, f: F.layer_norm(x, (3,), eps=f),
    "nan_to_num": lambda x, f: torch.nan_to_num(x / 0, nan=f),
    "pad": lambda x, f: F.pad(x, (1, 1), value=f),
    "sdpa": lambda x, f: F.scaled_dot_product_attention(
        x.view(1, 1, 3, 1), x.view(1, 1, 3, 1), x.view(1, 1, 3, 1), scale=f
    ),
    "cdist": lambda x, f: torch.cdist(x.view(3, 1), x.view(3, 1) * 2, p=f),
    "isclose": lambda x, f: torch.isclose(x, x * 1.01, atol=f),
    "mse": lambda x, f: F.smooth_l1_loss(x, x * 2, beta=f),
    "addmm": lambda x, f: torch.addmm(x, torch.ones(3, 3), torch.ones(3, 3), alpha=f),
    "iadd": lambda x, f: x.clone().add_(x, alpha=f).mul_(f).clamp_(-f * 9, f * 9),
    "max": lambda x, f: x * max(f, 0.3),
    "div_": lambda x, f: torch.div(x, f, rounding_mode="floor"),
    "pow_": lambda x, f: f ** x.abs(),
    "cum": lambda x, f: torch.logit(torch.sigmoid(x), eps=f * 0.1),
    "elu": lambda x, f: F.elu(x, f),
    "celu": lambda x, f: F.celu(x, f),
    "gumbel": lambda x, f: F.softmax(x / f, -1),
    "kl": lambda x, f: F.huber_loss(x, x * 3, delta=f),
    "cossim": lambda x, f: F.cosine_similarity(x, x + 1, 0, f),
    "norm": lambda x, f: F.normalize(x, p=f, dim=0),
    "ls": lambda x, f: F.cross_entropy(
        x.view(1, 3), torch.tensor([1]), label_smoothing=min(f, 0.9)
    ),
    "where3": lambda x, f: torch.where(x > 0, f, -f),
    "logsp": lambda x, f: x + torch.logspace(0, f, 3),
    "quant": lambda x, f: torch.quantile(x, min(f, 1.0)),
    "complex": lambda x, f: (x * complex(f, 1)).real,
    "bern": lambda x, f: torch.rand(3) * 0 + f * x,
    "sumlist": lambda x, f: sum([f, f, 1]) * x,
    "rsub": lambda x, f: torch.rsub(x, f, alpha=2),
    "cat": lambda x, f: torch.cat([x, x.new_full((2,), f)]),
    "int": lambda x, f: x.long() // 1 + f,
}


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", USES)
def test_whatever_is_done_with_them(name: str, trains: bool) -> None:
    """Open or fixed: results, gradients and kinds of errors are eager's."""
    use = USES[name]
    for backend in ("aot_eager", "argand"):
        run = argand.compile(use, backend=backend, options={"cache": False, "recompile_limit": 20})
        for value in (0.5, 0.25, 0.75, 1.5, 0.1, 2.0):
            found, wanted = (_outcome(function, value, trains) for function in (run, use))
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def _outcome(function: Callable[..., torch.Tensor], value: float, trains: bool) -> Any:
    x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=trains)
    try:
        result = function(x, value)
    except Exception as error:
        return torch.tensor(float(len(type(error).__name__)))
    if result.requires_grad:
        result.sum().backward()
    return result.detach(), x.grad


def test_a_dropout_that_was_off_is_not_left_out_for_good():
    """On fakes `dropout(x, 0.0)` gives x back: the call falls out of the graph, and nothing says that p was 0."""

    def drop(x, p):
        return torch.dropout(x @ x, p, True)

    for backend in ("eager", "argand"):
        compiled, x = argand.compile(drop, backend=backend), torch.ones(40, 40)
        with events.collect() as seen:
            for p in (0.9, 0.0, 1.0, 0.5, 0.25, 0.0, 0.75):
                dropped = (compiled(x, p) == 0).float().mean().item()
                assert abs(dropped - p) < 0.1, (backend, p, dropped)
        if backend == "eager":
            assert seen.total("compiles") == 3  # 0.9, 0.0, all the others


@argand.allow_in_graph
def unless_small(x, p):
    return x if p < 0.3 else x * p


def test_a_float_that_makes_an_operator_give_its_argument_back_is_fixed():
    compiled, x = (
        argand.compile(lambda x, p: unless_small(x, p) + 1, backend="eager"),
        torch.ones(3),
    )
    for p in (0.1, 0.2, 0.5, 0.25, 0.75):
        assert torch.equal(compiled(x, p), unless_small(x, p) + 1), p
