"""Tensors from outside that a program makes leaves, autograd functions that write, tensors of other devices."""

import pytest
import torch

import argand

BACKENDS = ("eager", "aot_eager", "argand")


def only(x):
    x.requires_grad_(True)


def used(x):
    x.requires_grad_(True)
    return (x * 3).sum()


def attribute(x):
    x.requires_grad = True
    return (x * 3).sum()


def off(x):
    x.requires_grad_(False)
    return (x * 3).sum()


def after_a_break(x):
    y = (x * 1).detach()
    argand.graph_break()
    y.requires_grad_(True)
    return y


def again(x):
    return (x.requires_grad_(x.requires_grad) * 2).sum()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [only, used, attribute, off, after_a_break, again])
def test_requires_grad_of_arguments(function, backend):
    found = []
    for run in (function, argand.compile(function, backend=backend)):
        x = torch.ones(2, requires_grad=function is off)
        result = run(x)
        grad = None
        if result is not None and result.requires_grad and not result.is_leaf:
            result.backward()
            grad = x.grad.tolist()
        found.append(
            (
                x.requires_grad,
                None if result is None else (result.requires_grad, result.is_leaf),
                grad,
            )
        )
    assert found[0] == found[1]


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_function_that_marks_its_input_writes_once(backend, fullgraph):
    def copied(x):
        return Double.apply(x.clone()) + 0

    def used_after(x):
        y = x + 1
        z = Double.apply(y)
        return z + y

    for function in (copied, used_after):
        x = torch.arange(4.0)
        assert torch.equal(
            argand.compile(function, backend=backend, fullgraph=fullgraph)(x), function(x)
        )


class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_apply_of_an_instance():
    function = argand.compile(lambda x: Triple().apply(x), backend="eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    function(x).sum().backward()
    assert x.grad.tolist() == [3, 3, 3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_of_another_device(backend):
    def by_name():
        return torch.zeros(3, device="meta") + 1

    def by_context():
        with torch.device("meta"):
            y = torch.zeros(3)
        return y + 1

    for function in (by_name, by_context):
        assert argand.compile(function, backend=backend)().device.type == "meta"


def test_lists_of_tensors_are_changed_by_a_tensor():
    def f(x):
        parts = [x + 1, x * 2]
        torch._foreach_mul_(parts, x.sum())
        return parts

    x = torch.ones(3)
    for got, want in zip(argand.compile(f, backend="eager", fullgraph=True)(x), f(x), strict=True):
        assert torch.equal(got, want)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_module_makes_its_parameters_in_python():
    module = torch.nn.LazyLinear(4)
    function, x = argand.compile(lambda x: module(x) * 2), torch.ones(3, 5)
    first = function(x)
    assert torch.equal(first, module(x) * 2) and torch.equal(function(x), first)
