"""Programs with torch.compile and ours side by side: ``python -m tests.runtime.beside_dynamo``."""

import copy
import functools
import traceback

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import argand
from argand.support import events
from tests.runtime.test_compiled_again import Net, X, recording


def compiles(call):
    """The functions that are compiled while something runs."""
    with events.collect() as seen:
        call()
    return [
        e.detail for e in seen.events if isinstance(e, events.Count) and e.counter == "compiles"
    ]


def functions_disabled_for_torch_are_disabled():
    @torch.compiler.disable
    def helper(x):
        return deeper(x.sin()) + 1

    def deeper(x):
        return x.cos() * 2

    def program(x):
        return helper(x * 2) + 3

    expected = (X * 2).sin().cos() * 2 + 4
    f = argand.compile(program, options={"cache": False})
    names = compiles(lambda: torch.testing.assert_close(f(X), expected))
    assert not {"helper", "deeper"} & {name.rpartition(".")[2] for name in names}
    torch.testing.assert_close(f(X), expected)


def a_disabled_method_and_module():
    class Logs(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.seen = torch.compiler.disable(Net()), []

        @torch.compiler.disable
        def log(self, x):
            self.seen.append(float(x.sum()))

        def forward(self, x):
            y = self.inner(x)
            self.log(y)
            return y * 2

    model = Logs()
    f = argand.compile(model, options={"cache": False})
    names = []
    for _ in range(2):
        names += compiles(lambda: torch.testing.assert_close(f(X), model.inner(X) * 2))
    assert len(model.seen) == 2
    assert not [
        name for name in names if name.rpartition(".")[2] == "log" or name.startswith("Net")
    ]


def a_checkpoint_is_no_disabled_function():
    """torch disables functions of its own because TorchDynamo cannot read them; the block in it is the user's."""
    used = []

    def block(x):
        argand.graph_break()
        return x.sin().cos()

    x = X.clone().requires_grad_()
    f = argand.compile(
        lambda x: checkpoint(block, x, use_reentrant=False) * 2, backend=recording(used, "block")
    )
    torch.testing.assert_close(f(x), block(x) * 2)
    assert used


def a_function_of_torch_compile_is_part_of_ours(dynamic=None):
    theirs, ours = [], []
    inner = torch.compile(
        lambda x: x.sin() + 1, backend=recording(theirs, "inner"), dynamic=dynamic
    )
    f = argand.compile(lambda x: inner(x * 3) * 2, backend=recording(ours, "outer"))
    names = compiles(lambda: torch.testing.assert_close(f(X), ((X * 3).sin() + 1) * 2))
    # as torch.compile does with functions that it has compiled
    assert ours == ["outer"] and not theirs
    assert len(names) == 1, names
    torch.testing.assert_close(f(X + 1), (((X + 1) * 3).sin() + 1) * 2)


def a_module_of_torch_compile_inside_a_module():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()
            self.inner = torch.compile(self.net, backend="eager")

        def forward(self, x):
            return self.inner(x) + 1

    model = Outer()
    f = argand.compile(model, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(f(X), model.net(X) + 1)


def torch_compile_with_open_sizes():
    """torch.compile(backend="argand") leaves a batch size open that varies: in inference and in training."""
    net = nn.Sequential(
        nn.Linear(10, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 2), nn.Softmax(-1)
    )
    twin = copy.deepcopy(net)
    compiled = torch.compile(net, backend="argand")
    for n in (128, 32, 40, 20, 128, 2):
        x = torch.randn(n, 10)
        for model in (compiled, twin):
            model.zero_grad()
            model(x).square().sum().backward()
        for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(net[2].running_var, twin[2].running_var)
    net.eval(), twin.eval()
    with torch.no_grad():
        for n in (5, 8, 1, 30):
            x = torch.randn(n, 10)
            torch.testing.assert_close(compiled(x), twin(x))


PROGRAMS = (
    functions_disabled_for_torch_are_disabled,
    a_disabled_method_and_module,
    a_checkpoint_is_no_disabled_function,
    a_function_of_torch_compile_is_part_of_ours,
    a_module_of_torch_compile_inside_a_module,
    torch_compile_with_open_sizes,
    functools.partial(a_function_of_torch_compile_is_part_of_ours, dynamic=True),
)


def main():
    """Run all of them; the number that failed."""
    failed = 0
    for program in PROGRAMS:
        try:
            program()
        except Exception:
            failed += 1
            traceback.print_exc()
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
