"""Gradients of gradients under compile: equal to eager's, to tight tolerance."""

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from programs import aot_eager
from test_features import as_function, leaf

import argand
from argand.autograd.partition import min_cut_partition
from argand.support import events

pytestmark = pytest.mark.usefixtures("in_float64")


def both(function, inputs):
    """Eager and compiled callables."""
    return function, aot_eager(function, inputs, partition_fn=min_cut_partition)


def check_equal(results):
    expected, actual = results
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_three_orders():
    def f(x, w):
        return (torch.tanh(x @ w) * x).sum(-1)

    inputs = [leaf(3, 4), leaf(4, 4)]
    results = []
    for run in both(f, inputs):
        y = run(*inputs).square().sum()
        collected = []
        for _ in range(4):
            grads = torch.autograd.grad(y, inputs, create_graph=True)
            collected.extend(grads)
            y = sum(g.square().sum() for g in grads)
        results.append(collected)
    check_equal(results)


def test_strides_over_the_real_parts_of_complex_memory():
    def imaginary(z):
        return torch.view_as_real(z * 2).as_strided((4, 3), (6, 2), 1).square()

    def orthogonal(z):
        return sum(part.abs().sum() for part in torch.linalg.qr(z))

    for f in (imaginary, orthogonal):
        inputs = [torch.randn(4, 3, dtype=torch.complex128, requires_grad=True)]
        results = []
        with events.collect() as heard:
            for run in both(f, inputs):
                (first,) = torch.autograd.grad(run(*inputs).sum(), inputs, create_graph=True)
                results.append([first, *torch.autograd.grad(first.abs().square().sum(), inputs)])
        assert not heard.total("autograd.fallback")
        check_equal(results)


def test_hessian_vector_product_inside_and_outside():
    def f(x, w):
        return torch.exp(torch.sin(x) @ w).sum()

    def hvp(x, w, v):
        (g,) = torch.autograd.grad(f(x, w), x, create_graph=True)
        (h,) = torch.autograd.grad((g * v).sum(), x, create_graph=True)
        return h

    x, w, v = leaf(4), leaf(4), torch.randn(4)
    results = [[run(x, w, v)] for run in both(hvp, [x, w, v])]
    results = [[r[0], *torch.autograd.grad(r[0].sum(), [x, w])] for r in results]
    check_equal(results)
    outside = []
    for run in both(f, [x, w]):
        (g,) = torch.autograd.grad(run(x, w), x, create_graph=True)
        outside.append(torch.autograd.grad((g * v).sum(), [x, w]))
    check_equal(outside)


def test_gradient_penalty():
    critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.LayerNorm(8), nn.Linear(8, 1))
    function, tensors = as_function(critic, lambda m, x: m(x))
    real, fake, mix = torch.randn(5, 4), torch.randn(5, 4), torch.rand(5, 1)
    results = []
    point = (mix * real + (1 - mix) * fake).requires_grad_()
    for run in both(function, [*tensors, point]):
        point = (mix * real + (1 - mix) * fake).requires_grad_()
        (g,) = torch.autograd.grad(run(*tensors, point).sum(), point, create_graph=True)
        loss = run(*tensors, fake.requires_grad_()).mean() + ((g.norm(dim=1) - 1) ** 2).mean()
        results.append(torch.autograd.grad(loss, tensors, allow_unused=True)[:-1])
    check_equal(results)


def test_force_field_trains_on_forces():
    net = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 1))

    def energy(m, positions):
        distances = (positions[:, None] - positions[None]).square().sum(-1) + 0.1
        return m(positions).sum() + distances.rsqrt().sum()

    def energy_and_forces(m, positions):
        total = energy(m, positions)
        (forces,) = torch.autograd.grad(total, positions, create_graph=True)
        return total, -forces

    positions = leaf(6, 3)
    target = torch.randn(6, 3)
    function, tensors = as_function(net, energy_and_forces)
    plain, plain_tensors = as_function(net, energy)
    results, outside = [], []
    for run in both(function, [*tensors, positions]):
        total, forces = run(*tensors, positions)
        loss = total + (forces - target).square().mean()
        results.append([total, forces, *torch.autograd.grad(loss, tensors, allow_unused=True)[:-1]])
    check_equal(results)
    for run in both(plain, [*plain_tensors, positions]):
        total = run(*plain_tensors, positions)
        (forces,) = torch.autograd.grad(total, positions, create_graph=True)
        loss = (forces + target).square().mean()
        outside.append(torch.autograd.grad(loss, tensors, allow_unused=True)[:-1])
    check_equal(outside)


def test_maml_inner_step():
    def model(x, w1, w2):
        return torch.relu(x @ w1) @ w2

    def outer(x, y, w1, w2):
        loss = F.mse_loss(model(x, w1, w2), y)
        g1, g2 = torch.autograd.grad(loss, [w1, w2], create_graph=True)
        return F.mse_loss(model(x + 1, w1 - 0.1 * g1, w2 - 0.1 * g2), y)

    x, y, w1, w2 = torch.randn(6, 3), torch.randn(6, 2), leaf(3, 5), leaf(5, 2)
    results = []
    for run in both(outer, [x, y, w1, w2]):
        loss = run(x, y, w1, w2)
        results.append([loss, *torch.autograd.grad(loss, [w1, w2])])
    check_equal(results)
    results = []
    for run in both(model, [x, w1, w2]):
        loss = F.mse_loss(run(x, w1, w2), y)
        g1, g2 = torch.autograd.grad(loss, [w1, w2], create_graph=True)
        fast = [w1 - 0.1 * g1, w2 - 0.1 * g2]
        results.append(torch.autograd.grad(F.mse_loss(model(x, *fast), y), [w1, w2]))
    check_equal(results)


def test_second_order_keeps_the_draws_of_the_forward():
    def f(x, w):
        return F.dropout(torch.tanh(x @ w), 0.5) @ w

    x, w = leaf(8, 4), leaf(4, 4)
    results = []
    for run in both(f, [x, w]):
        torch.manual_seed(7)
        y = run(x, w)
        torch.rand(3)
        grads = torch.autograd.grad(y.square().sum(), [x, w], create_graph=True)
        after = torch.rand(2)
        second = torch.autograd.grad(sum(g.square().sum() for g in grads), [x, w])
        results.append([y, *grads, *second, after])
    check_equal(results)


def test_second_order_with_written_inputs_and_batch_norm():
    norm = nn.BatchNorm1d(4)
    function, tensors = as_function(norm, lambda m, x: m(x.mul_(2)).sin())
    results = []
    for compiled in (False, True):
        norm.reset_running_stats()
        x = leaf(6, 4)
        torch.manual_seed(1)
        with torch.no_grad():
            x.normal_()
        given = x * 1.0
        run = aot_eager(function, [*tensors, given]) if compiled else function
        y = run(*tensors, given)
        wanted = [x, *tensors[:2]]
        grads = torch.autograd.grad(y.square().sum(), wanted, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in grads), wanted)
        results.append([y, given, *grads, *second, *[t.clone() for t in tensors[2:]]])
    check_equal(results)


def test_constants_of_the_forward_stay_constant():
    def f(x):
        with torch.no_grad():
            scale = x.norm()
        return (x**3 / scale).sum()

    x = leaf(4)
    results = []
    for run in both(f, [x]):
        (g,) = torch.autograd.grad(run(x), x, create_graph=True)
        results.append([g, *torch.autograd.grad(g.sum(), x)])
    check_equal(results)


def test_input_changed_before_the_second_order_is_an_error():
    x, w = leaf(3), leaf(3)
    y = aot_eager(lambda x, w: (x * w).sin(), [x, w])(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_second_order_that_cannot_be_traced_runs_eagerly():
    def f(x):
        return x.index_fill(0, torch.tensor([0, 2]), 1.0) ** 3

    x = leaf(4)
    results = []
    for run in (f, aot_eager(f, [x], strict=False)):
        (g,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        results.append([g, *torch.autograd.grad(g.sum(), x)])
    check_equal(results)


SECOND = {
    "matmul_tanh": lambda a, b: torch.tanh(a @ b),
    "softmax": lambda a, b: torch.softmax(a, 1) * b.sum(),
    "layer_norm": lambda a, b: F.layer_norm(a, (3,), b[0], b[1]),
    "logsumexp": lambda a, b: torch.logsumexp(a + b, 0),
    "conv1d": lambda a, b: F.conv1d(a[None], b[:, :, None]),
    "gelu_in_place": lambda a, b: F.gelu(a.clone().mul_(b)),
    "complex": lambda a, b: torch.view_as_real(torch.fft.rfft(a * b)),
}


@pytest.mark.parametrize("name", SECOND)
def test_gradgradcheck(name):
    a, b = leaf(3, 3), leaf(3, 3)
    run = argand.compile(SECOND[name], backend="aot_eager", fullgraph=True)
    assert torch.autograd.gradcheck(run, (a, b))
    assert torch.autograd.gradgradcheck(run, (a, b))


@pytest.mark.parametrize("backend", ["aot_eager", "argand"])
def test_only_what_is_asked_for_is_computed(backend: str) -> None:
    """``autograd.grad`` with respect to the inputs alone: no products for the gradients of weights."""
    layers = torch.nn.Sequential(
        torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    ).double()
    run = argand.compile(layers, backend=backend)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    with events.collect() as seen:
        for create_graph in (False, True):
            found, wanted = (
                torch.autograd.grad(model(x).sum(), x, create_graph=create_graph)
                for model in (run, layers)
            )
            torch.testing.assert_close(found, wanted)
    backward = next(text for text in seen.texts("aot_graphs") if "tangents" in text)
    assert backward.count("aten.mm") == 4  # the whole has two products per layer
    (first,) = torch.autograd.grad(layers(x).sum(), layers[0].weight)
    torch.testing.assert_close(torch.autograd.grad(run(x).sum(), layers[0].weight)[0], first)
    run(x).sum().backward()
    torch.testing.assert_close(layers[0].weight.grad, first)


def test_each_parameter_by_itself() -> None:
    """More sets of gradients than are compiled for: then all are computed."""
    layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(8)]).double()
    run, x = argand.compile(layers, backend="aot_eager"), torch.randn(2, 4, dtype=torch.float64)
    for _ in range(2):
        for parameter in layers.parameters():
            found, wanted = (
                torch.autograd.grad(model(x).square().sum(), parameter) for model in (run, layers)
            )
            torch.testing.assert_close(found, wanted)
