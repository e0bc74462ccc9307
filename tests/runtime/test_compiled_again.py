"""What is compiled already, compiled again; `forward` called by hand; torch.compile beside us."""

import copy
import inspect
import subprocess
import sys

import pytest
import torch
from torch import nn

import argand


def recording(used, name):
    def backend(gm, inputs):
        used.append(name)
        return gm.forward

    return backend


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x, scale=2):
        return self.inner(x).relu() * scale


def function(x):
    return torch.relu(x) + 1


class Scaled:
    def __init__(self):
        self.scale = 3

    def method(self, x):
        return x * self.scale

    def __call__(self, x):
        return x - self.scale


X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "make",
    [lambda: function, Net, Scaled, lambda: Scaled().method, lambda: torch.sin],
    ids=["function", "module", "object", "method", "builtin"],
)
def test_the_outer_backend_compiles(make):
    used = []
    model = make()
    twice = argand.compile(model, backend=recording(used, "inner"))
    for name in ("second", "outer"):
        twice = argand.compile(twice, backend=recording(used, name))
    torch.testing.assert_close(twice(X), model(X))
    assert set(used) <= {"outer"} and (used or model is torch.sin)


def test_a_class_and_a_method_are_compiled_again():
    used = []

    class Mine(Scaled):
        def __call__(self, x):
            return x / self.scale

        method = argand.compile(Scaled.method, backend=recording(used, "inner"))

    argand.compile(
        argand.compile(Mine, backend=recording(used, "inner")), backend=recording(used, "outer")
    )
    mine = Mine()
    torch.testing.assert_close(mine(X), X / 3)
    torch.testing.assert_close(
        argand.compile(mine.method, backend=recording(used, "outer"))(X), X * 3
    )
    assert used == ["outer", "outer"]


def test_what_is_disabled_stays_so():
    used = []
    argand.compile(argand.disable(function), backend=recording(used, "never"))(X)
    assert not used


def test_a_module_in_a_loop_is_one_module():
    net = Net()
    model = net
    for _ in range(3):
        model = argand.compile(model, backend="eager")
        torch.testing.assert_close(model(X), net(X))
    assert isinstance(model, Net) and type(model).__mro__.count(Net) == 1
    model.inner.weight.data.zero_()
    assert net.inner.weight.sum() == 0
    copied = copy.deepcopy(model)
    assert type(copied) is Net
    torch.testing.assert_close(copied(X), net(X))


def test_forward_called_by_hand_is_compiled():
    used = []
    net = Net()
    model = argand.compile(net, backend=recording(used, "forward"), fullgraph=True)
    torch.testing.assert_close(model.forward(X), net(X))
    torch.testing.assert_close(model.forward(X, scale=3), net(X, scale=3))
    assert used and set(used) == {"forward"}
    assert inspect.signature(model.forward) == inspect.signature(net.forward)
    assert inspect.signature(model.__class__.forward) == inspect.signature(Net.forward)


def test_forward_is_replaced_in_both():
    net = Net()
    model = argand.compile(net, backend="eager")
    model(X)
    model.forward = lambda x: x + 5
    torch.testing.assert_close(net(X), X + 5)
    torch.testing.assert_close(model(X), X + 5)
    torch.testing.assert_close(model.forward(X), X + 5)
    del model.forward
    torch.testing.assert_close(model(X), Net.forward(net, X))


def test_forward_inside_of_a_compiled_function():
    net = Net()
    model = argand.compile(net, backend="eager")

    @argand.compile(backend="eager", options={"strict": True})
    def program(x):
        return model.forward(x) + model(x)

    torch.testing.assert_close(program(X), net(X) * 2)


class Calls(nn.Module):
    """A module whose `forward` is called by that of a subclass."""

    def forward(self, x):
        return x.sin()


class Above(Calls):
    def forward(self, x):
        return super().forward(x) + self.own(x)

    def own(self, x):
        return x.cos()


def test_super_of_a_compiled_module():
    model = argand.compile(Above(), fullgraph=True, backend="eager")
    torch.testing.assert_close(model(X), X.sin() + X.cos())
    torch.testing.assert_close(model.forward(X), X.sin() + X.cos())


def test_beside_torch_compile():
    """In a process of its own: TorchDynamo changes modules of torch for good when it is loaded."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.beside_dynamo"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
