"""`torch.autograd.Function.apply` with arguments that no graph takes."""

import pytest
import torch

import argand


class Chain(torch.autograd.Function):
    """A chain of modules, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x, layers):
        assert not torch.is_grad_enabled()
        ctx.save_for_backward(x)
        for layer in layers:
            x = layer(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3, None


class Same(torch.autograd.Function):
    """Gives back what it gets."""

    @staticmethod
    def forward(ctx, x, layer):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


LAYERS = [torch.nn.Linear(3, 3), torch.nn.ReLU()]


def test_modules_as_arguments_where_no_gradient_is_recorded():
    f = argand.compile(lambda x: (Chain.apply(x, LAYERS) * 2, torch.is_grad_enabled()), backend="eager", fullgraph=True)
    x = torch.randn(2, 3)
    for _ in range(2):
        found, enabled = f(x)
        assert torch.equal(found, Chain.apply(x, LAYERS) * 2) and not found.requires_grad and enabled
    with torch.no_grad():
        LAYERS[0].weight.mul_(2)  # read at each call
        assert torch.equal(f(x)[0], Chain.apply(x, LAYERS) * 2)


def test_gradients_are_those_of_the_class():
    f = argand.compile(lambda x: Chain.apply(x, LAYERS) * 2, backend="eager")
    x, y = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
    f(x).sum().backward()
    (Chain.apply(y, LAYERS) * 2).sum().backward()
    assert torch.equal(x.grad, y.grad) and x.grad[0, 0] == 6


def test_what_is_given_back_is_a_view():
    f = argand.compile(lambda x: Same.apply(x, LAYERS[0]), backend="eager")
    x = torch.ones(2)
    assert f(x) is not x and Same.apply(x, LAYERS[0]) is not x
    with pytest.raises(argand.CaptureError):
        argand.compile(lambda x: Same.apply(x, LAYERS[0]), backend="eager", fullgraph=True)(x)
