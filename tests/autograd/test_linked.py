"""Gradients that are differentiated again, call after call: equal to eager's, and no dearer."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import argand
from argand.autograd import linked
from argand.support import events

pytestmark = pytest.mark.usefixtures("in_float64")


class Branches(nn.Module):
    """Several results, one of them of integers, one an activation that is kept for the backward."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 8), nn.Linear(8, 8)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        other = F.softplus(self.second(hidden)) * hidden.detach()
        return hidden, other.argmax(-1), other, other.square().sum(-1).sqrt()


MODELS = {
    "mlp": lambda: nn.Sequential(
        nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 2)
    ),
    "norms": lambda: nn.Sequential(
        nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4), nn.Softmax(-1)
    ),
    "image": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 1, 3)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ELU(),
        nn.Flatten(),
    ),
    "branches": Branches,
    "view": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Unflatten(1, (2, 2))),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Tanh()),
    "written": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh()),
}


def physics(model, x, orders):
    """The sum of derivatives of several orders, which trains the model."""
    results = model(x)
    floats = [r for r in (results if isinstance(results, tuple) else (results,)) if r.requires_grad]
    loss, value = 0.0, sum((k + 1) * r.sin().sum() for k, r in enumerate(floats))
    for _ in range(orders):
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        loss, value = loss + slope.square().mean(), slope[:, 0].cos().sum()
    return loss + sum(r.square().mean() for r in floats)


@pytest.mark.parametrize("backend", ["aot_eager", "argand"])
@pytest.mark.parametrize("name", MODELS)
def test_call_after_call(name, backend):
    eager, x = MODELS[name](), torch.randn(6, 3, requires_grad=True)
    run = argand.compile(eager, backend=backend, options={"cache": False})
    for orders in (1, 2, 2, 2, 1, 3, 0, 2):
        found = []
        for model in (eager, run):
            eager.zero_grad()
            x.grad = None
            loss = physics(model, x, orders)
            loss.backward()
            found.append([loss.detach(), x.grad, *[p.grad for p in eager.parameters()]])
        torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-11)


def test_the_forward_runs_once():
    """As many products as eager computes, after the first calls."""
    model, x = MODELS["mlp"](), torch.randn(5, 3, requires_grad=True)
    products = []
    run = argand.compile(model, backend="aot_eager")
    for _ in range(5):
        counts = []
        for function in (model, run):
            with torch.profiler.profile() as seen:
                physics(function, x, 2).backward()
            counts.append(
                sum(e.count for e in seen.key_averages() if e.key in ("aten::mm", "aten::addmm"))
            )
        products.append(counts)
    assert products[-1][1] <= products[-1][0] < products[0][1]


def test_a_change_in_between_is_an_error_as_in_eager():
    model, x = MODELS["mlp"](), torch.randn(5, 3, requires_grad=True)
    run = argand.compile(model, backend="aot_eager")
    for _ in range(3):
        physics(run, x, 2).backward()
    for function in (model, run):
        result = function(x)
        with torch.no_grad():
            model[2].weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(result.sum(), x, create_graph=True)


def test_retained_graphs_and_released_ones():
    model, x = MODELS["mlp"](), torch.randn(5, 3, requires_grad=True)
    run = argand.compile(model, backend="aot_eager")
    for _ in range(3):
        physics(run, x, 1).backward()
    result = run(x).sum()
    first, second = (torch.autograd.grad(result, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    result.backward()
    with pytest.raises(RuntimeError, match="second time"):
        result.backward()


def test_a_program_of_another_process_is_linked_too(tmp_path, monkeypatch):
    model, x = MODELS["mlp"](), torch.randn(5, 3, requires_grad=True)
    seen = []
    monkeypatch.setattr(
        "argand.autograd.aot.linked.link", lambda *given: seen.append(given) or linked.link(*given)
    )
    for _ in range(2):
        argand.reset()
        run = argand.compile(model, options={"cache_dir": str(tmp_path)})
        with events.collect() as heard:
            for _ in range(3):
                torch.testing.assert_close(physics(run, x, 1), physics(model, x, 1))
                physics(run, x, 1).backward()
    assert heard.total("cache.hit")
    assert len(seen) == 2


def test_inputs_do_not_live_on():
    model, x = MODELS["mlp"](), torch.randn(5, 3, requires_grad=True)
    run = argand.compile(model, backend="aot_eager")
    for _ in range(3):
        physics(run, x, 2).backward()
    storage = weakref.ref(x.untyped_storage())
    del x
    gc.collect()
    assert storage() is None


def test_many_sets_of_gradients_are_few_programs():
    """Gradients of 31 sets of inputs: eight programs, then one for all of them."""
    inputs = [torch.randn(4, requires_grad=True) for _ in range(5)]

    def function(a, b, c, d, e):
        return (a * b).sin() * (c * d).cos() * e.tanh()

    run = argand.compile(function, backend="aot_eager")
    for _ in range(2):
        torch.autograd.grad(run(*inputs).sum(), inputs[0], create_graph=True)
    asked = [[x for k, x in enumerate(inputs) if bits >> k & 1] for bits in range(1, 32)]
    with events.collect() as heard:
        for again in (True, False):
            for chosen in asked:
                expected, found = (
                    torch.autograd.grad(f(*inputs).sum(), chosen, create_graph=again)
                    for f in (function, run)
                )
                torch.testing.assert_close(found, expected)
    traces = [
        e for e in heard.events if isinstance(e, events.StageEnd) and e.stage == "autograd.trace"
    ]
    assert len(traces) <= 18  # of gradients, and of these to differentiate them


def test_what_no_gradient_reads_may_be_written_before_they_are_asked_for():
    def program(x, y):
        return torch.sin(x), x.round().cumsum(0), x + y

    compiled = argand.compile(program)
    for _ in range(3):  # the gradients of gradients of the first call link the later ones
        x, y = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
        given = y * 1
        sine, steps, total = compiled(x, given)
        with torch.no_grad():
            for written in (steps, total, given):
                written.add_(1)
        (first,) = torch.autograd.grad(sine.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        torch.testing.assert_close(first, torch.cos(x))
        torch.testing.assert_close(second, -torch.sin(x))


EDGES = {
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "selu": F.selu,
    "celu": F.celu,
    "logit": torch.logit,
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x * 0),
    "normalize": lambda x: F.normalize(x * 0, dim=0),
    "leaky_relu": F.leaky_relu,
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.2)),
    "complex product": lambda x: (torch.complex(x, -x)[:, None] @ torch.complex(x, x)[None]).abs(),
    "zeroed": lambda x: (x.abs().zero_(), x.expm1()),
}


@pytest.mark.parametrize("name", EDGES)
def test_linked_gradients_are_eagers_at_the_edges(name):
    """They are derivatives of eager's ops, not of what these are decomposed into."""

    def gradients(function):
        x = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0], requires_grad=True)
        results = function(x)
        results = results if isinstance(results, tuple) else (results,)
        (first,) = torch.autograd.grad(sum(r.sum() for r in results), x, create_graph=True)
        second = (
            torch.autograd.grad(first.sum(), x, allow_unused=True)[0]
            if first.requires_grad
            else None
        )
        return [r.requires_grad for r in results], first, second

    expected, compiled = gradients(EDGES[name]), argand.compile(EDGES[name])
    for _ in range(3):
        torch.testing.assert_close(gradients(compiled), expected, equal_nan=True)


def test_an_argument_without_a_derivative_is_no_error():
    """A backward keeps what torch cannot differentiate by: the program stays as it was."""

    def loss(x, w):
        return F.binary_cross_entropy_with_logits(x, x.sigmoid(), pos_weight=w)

    compiled, w = argand.compile(loss, backend="aot_eager"), torch.tensor(0.5)
    for _ in range(3):
        found = []
        for function in (loss, compiled):
            x = torch.linspace(0, 1, 5, dtype=torch.float64).requires_grad_()
            (g,) = torch.autograd.grad(function(x, w) ** 3, x, create_graph=True)
            found += torch.autograd.grad(g.sum(), x, create_graph=True)
        torch.testing.assert_close(*found)
