"""Gradients that are equal lie in one memory where eager's do, and nowhere else: who changes one must not change another."""

import itertools

import pytest
import torch

import argand


def biases(x, one, two):
    return ((x + one) + (x * 2 + two)).tanh().sum()


def rows(x, one, two):
    return (x * one).exp().sum() + (x.clone() * two).exp().sum()


def parts(x, one, two):
    both = torch.cat([one, two])
    return (x.repeat(1, 2) * 1).matmul(both).sum() + (both * both).sum()


def products(x, one, two):
    return (x @ one[:, None]).sigmoid().sum() + (x @ two[:, None]).sigmoid().sum()


def handed_on(x, one, two):
    return one + two  # in eager both get the gradient of the sum itself


def shared(gradients):
    """Which of them lie in one memory."""
    pairs = itertools.combinations(range(len(gradients)), 2)
    storages = [gradient.untyped_storage().data_ptr() for gradient in gradients]
    return [(j, k) for j, k in pairs if storages[j] == storages[k]]


@pytest.mark.parametrize("backend", ["aot_eager", "argand"])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("program", [biases, rows, parts, products, handed_on])
def test_equal_gradients_are_shared_as_in_eager(program, create_graph, backend):
    torch.manual_seed(0)
    x, first = torch.randn(4, 3), torch.randn(3)
    kept = []
    for function in (program, argand.compile(program, backend=backend)):
        leaves = [first.clone().requires_grad_() for _ in range(2)]
        result = function(x, *leaves)
        tangent = torch.ones_like(result)
        gradients = torch.autograd.grad(result, leaves, tangent, create_graph=create_graph)
        before = shared(gradients)
        with torch.no_grad():
            gradients[0].mul_(3)
        kept.append((before, [gradient.detach() for gradient in gradients]))
    assert kept[0][0] == kept[1][0]
    torch.testing.assert_close(kept[0][1], kept[1][1])


def test_gradients_that_are_clipped_in_place_are_clipped_once():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 3).eval() for _ in range(2)]

    def loss(x):
        return (layers[0](x) + layers[1](x * 2)).tanh().sum()

    x = torch.randn(4, 3)
    wanted = [parameter for layer in layers for parameter in layer.parameters()]
    results = []
    for function in (loss, argand.compile(loss)):
        gradients = torch.autograd.grad(function(x), wanted)
        torch._foreach_mul_(gradients, 0.5)
        results.append(gradients)
    torch.testing.assert_close(*results)
