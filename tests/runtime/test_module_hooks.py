"""Hooks of modules are called as in eager, with every backend, wherever they are registered."""

import copy

import pytest
import torch
from torch import nn

import argand


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, scale=1.0):
        return torch.relu(self.linear(x)) * scale


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = Inner(), Inner(), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.second(self.first(x), scale=2.0))


def numbers(value):
    """Something to compare: sums of all tensors in nested tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return value.detach().double().sum().item()
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    return [numbers(item) for item in value] if isinstance(value, tuple | list) else value


def forward(module, log, change):
    def hook(module, args, result):
        log.append(("forward", numbers(args), numbers(result)))
        return result * 2 if change else None

    return module.register_forward_hook(hook)


def forward_with_keywords(module, log, change):
    def hook(module, args, kwargs, result):
        log.append(("forward", numbers(args), numbers(kwargs), numbers(result)))

    return module.register_forward_hook(hook, with_kwargs=True)


def before(module, log, change):
    def hook(module, args):
        log.append(("before", numbers(args)))
        return (args[0] + 1, *args[1:]) if change else None

    return module.register_forward_pre_hook(hook)


def backward(module, log, change):
    def hook(module, inputs, outputs):
        log.append(("backward", numbers(inputs), numbers(outputs)))
        return tuple(g * 3 for g in inputs) if change else None

    return module.register_full_backward_hook(hook)


def before_backward(module, log, change):
    def hook(module, outputs):
        log.append(("before backward", numbers(outputs)))
        return tuple(g * 3 for g in outputs) if change else None

    return module.register_full_backward_pre_hook(hook)


KINDS = (forward, forward_with_keywords, before, backward, before_backward)


def flat(log):
    if isinstance(log, dict):
        log = [part for item in sorted(log.items()) for part in item]
    if not isinstance(log, list | tuple):
        return [log]
    return [number for item in log for number in flat(item)]


@pytest.mark.parametrize("change", [False, True])
@pytest.mark.parametrize("place", ["", "first", "second", "second.linear", "head"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "argand"])
def test_hooks_are_called_as_in_eager(backend, kind, place, change):
    model = Outer()
    seen = []
    for compile_it in (False, True):
        own, log = copy.deepcopy(model), []
        kind(own.get_submodule(place), log, change)
        run = argand.compile(own, backend=backend) if compile_it else own
        x = torch.arange(24.0).view(3, 8).div(24).requires_grad_()
        for _ in range(2):
            run(x).square().sum().backward()
        seen.append((flat(log), [p.grad for p in (x, *own.parameters())]))
    assert len(seen[0][0]) > 2
    assert [
        n if isinstance(n, str) else pytest.approx(n, rel=1e-4, abs=1e-4) for n in seen[0][0]
    ] == seen[1][0]
    torch.testing.assert_close(seen[1][1], seen[0][1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "argand"])
def test_a_hook_that_comes_and_goes(backend):
    model, log = Outer(), []
    twin = copy.deepcopy(model)
    run = argand.compile(model, backend=backend)
    x = torch.randn(3, 8)
    for step in range(6):
        if step == 2:
            handles = [backward(model.second, log, True), backward(twin.second, [], True)]
        if step == 4:
            for handle in handles:
                handle.remove()
        for call, own in ((run, model), (twin, twin)):
            own.zero_grad()
            call(x).sum().backward()
        ours, eagers = ([p.grad for p in own.parameters()] for own in (model, twin))
        torch.testing.assert_close(ours, eagers)
    assert len(log) == 2
