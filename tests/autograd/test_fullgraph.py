"""Programs that differentiate inside, compiled with fullgraph=True: equal to eager's numbers."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import argand

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "argand"])
pytestmark = pytest.mark.usefixtures("in_float64")


def check(function, parameters, backend):
    expected = function()
    compiled = argand.compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        actual = compiled()
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    for a, b in zip(
        torch.autograd.grad(actual, parameters, allow_unused=True),
        torch.autograd.grad(expected, parameters, allow_unused=True),
        strict=True,
    ):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@BACKENDS
def test_wgan_gradient_penalty(backend):
    critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    real, fake, mix = torch.randn(5, 4), torch.randn(5, 4), torch.rand(5, 1)

    def step():
        point = (mix * real + (1 - mix) * fake).requires_grad_()
        (g,) = torch.autograd.grad(critic(point).sum(), point, create_graph=True)
        penalty = ((g.norm(dim=1) - 1) ** 2).mean()
        return critic(fake).mean() - critic(real).mean() + 10 * penalty

    check(step, list(critic.parameters()), backend)


@BACKENDS
def test_force_field(backend):
    net = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 1))
    positions, target = torch.randn(6, 3).requires_grad_(), torch.randn(6, 3)

    def loss():
        distances = (positions[:, None] - positions[None]).square().sum(-1) + 0.1
        energy = net(positions).sum() + distances.rsqrt().sum()
        (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
        return energy + (gradient + target).square().mean()

    check(loss, [positions, *net.parameters()], backend)


@BACKENDS
def test_maml(backend):
    w1, w2 = torch.randn(3, 5).requires_grad_(), torch.randn(5, 2).requires_grad_()
    x, y = torch.randn(6, 3), torch.randn(6, 2)

    def outer():
        inner = F.mse_loss(torch.relu(x @ w1) @ w2, y)
        g1, g2 = torch.autograd.grad(inner, [w1, w2], create_graph=True)
        return F.mse_loss(torch.relu((x + 1) @ (w1 - 0.1 * g1)) @ (w2 - 0.1 * g2), y)

    check(outer, [w1, w2], backend)


@BACKENDS
def test_hessian_vector_product(backend):
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    x, v = torch.randn(6, 3).requires_grad_(), torch.randn(6, 3)

    def product():
        (g,) = torch.autograd.grad(net(x).sum() + x.sin().exp().sum(), x, create_graph=True)
        (h,) = torch.autograd.grad((g * v).sum(), x, create_graph=True)
        return h.square().sum()

    check(product, [x, *net.parameters()], backend)


def test_an_unexpected_failure_is_an_error_with_its_reason():
    def broken(x):
        raise ValueError("no rule today")

    backend = argand.aot_autograd(
        fw_compiler=lambda gm, _: gm, decompositions={torch.ops.aten.sin.default: broken}
    )
    x = torch.randn(3)
    assert torch.equal(argand.compile(torch.sin, backend=backend)(x), x.sin())  # eager's, counted
    with pytest.raises(argand.BackendCompilerFailed, match="ValueError: no rule today"):
        argand.compile(lambda x: x.sin(), backend=backend, fullgraph=True)(x)


@BACKENDS
def test_a_missing_derivative_is_eagers_error_at_the_backward(backend):
    a, x = torch.rand(3, requires_grad=True), torch.rand(3)
    y = argand.compile(lambda a: torch.igamma(a, x) * 2, backend=backend, fullgraph=True)(a)
    torch.testing.assert_close(y, torch.igamma(a, x) * 2)
    with pytest.raises(NotImplementedError, match="igamma"):
        y.sum().backward()
