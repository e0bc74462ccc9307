"""Linear layers whose packed weights are kept, against eager: values, what follows, and never stale."""

import math

import pytest
import torch
from torch import nn

import argand
from argand.native import convolution
from argand.native.codegen.target import host_target
from argand.support import events

OPTIONS = {"strict": True, "cache": False, "measure": False, "verify": True}


@pytest.fixture(params=["as here", "avx2"])
def width(request, monkeypatch):
    """The machine's vectors, and those of a machine without AVX-512."""
    here = host_target()
    if request.param == "avx2" and here.vector_bytes > 32:
        features = ",".join(
            "-" + f[1:] if f[1:].startswith(("avx512", "evex512")) else f
            for f in here.features.split(",")
        )
        monkeypatch.setattr(
            "argand.native.build.host_target",
            lambda: here._replace(features=features, vector_bytes=32),
        )


def check(model, *inputs, count=1, **close):
    """Compile, compare with eager twice, and count the layers that were packed."""
    model = model.eval() if isinstance(model, nn.Module) else model
    run = argand.compile(model, options=OPTIONS)
    with torch.no_grad(), events.collect() as seen:
        expected = model(*inputs)
        for _ in range(2):
            actual = run(*inputs)
            torch.testing.assert_close(
                actual, expected, **{"rtol": 1e-4, "atol": 1e-5, "equal_nan": True, **close}
            )
            assert actual.stride() == expected.stride()
    assert seen.total("native.convolution") == count
    return run


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "rows,inner,columns",
    [
        (9, 96, 97),
        (33, 64, 130),
        (128, 384, 37),
        (197, 48, 48),
        (12, 1000, 10),
        (300, 257, 1),
        (7 * 6, 64, 64),
    ],
)
def test_sizes(rows, inner, columns, bias, width):
    torch.manual_seed(0)
    check(nn.Linear(inner, columns, bias), torch.randn(rows, inner))


FOLLOWING = {
    "gelu": lambda y, x: nn.functional.gelu(y),
    "relu and residual": lambda y, x: torch.relu(y + x),
    "two results": lambda y, x: torch.cat([y.sigmoid(), y * 2]),
    "row reduction": lambda y, x: torch.softmax(y, -1),
    "split heads": lambda y, x: y.view(2, 20, 4, 16).transpose(1, 2).contiguous(),
    "turned": lambda y, x: y.t().contiguous(),
    "of rows": lambda y, x: y * x.sum(-1, keepdim=True),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_what_follows(name, width):
    torch.manual_seed(0)
    layer, follow = nn.Linear(64, 64), FOLLOWING[name]
    check(lambda x: follow(layer(x), x), torch.randn(40, 64))


def test_three_dimensions_and_batch_norm():
    torch.manual_seed(0)
    check(nn.Linear(64, 48), torch.randn(3, 20, 64))
    norm = nn.BatchNorm1d(48)
    norm.running_mean.uniform_(), norm.running_var.uniform_(0.5, 2), nn.init.uniform_(norm.weight)
    check(nn.Sequential(nn.Linear(64, 48), norm, nn.ReLU()), torch.randn(40, 64))


def test_weights_that_lie_across():
    """As GPT-2's Conv1D has them: the weight is (inputs, outputs)."""
    torch.manual_seed(0)
    weight, bias = nn.Parameter(torch.randn(64, 96)), nn.Parameter(torch.randn(96))
    check(lambda x: torch.addmm(bias, x, weight), torch.randn(40, 64))
    check(lambda x: x @ weight, torch.randn(40, 64))


def test_what_stays_as_it_is():
    """Few rows, operands that are computed or given, scaled sums, rows that do not lie behind each other, doubles."""
    torch.manual_seed(0)
    layer = nn.Linear(256, 256)
    check(layer, torch.randn(8, 256), count=0)
    check(lambda x: x @ x.t(), torch.randn(64, 64), count=0)
    check(lambda x, y: x @ y, torch.randn(64, 64), torch.randn(64, 64), count=0)
    check(
        lambda x: torch.addmm(layer.bias, x, layer.weight, beta=2.0), torch.randn(64, 256), count=0
    )
    check(
        lambda x, y: torch.addmm(y, x, layer.weight),
        torch.randn(64, 256),
        torch.randn(256),
        count=0,
    )
    check(lambda x: layer(x.t()), torch.randn(256, 64), count=0)
    check(nn.Linear(64, 64).double(), torch.randn(40, 64, dtype=torch.float64), count=0)


def test_too_many_weights_are_not_held_twice(monkeypatch):
    monkeypatch.setattr(convolution, "MOST_PACKED", 64 * 64 * 4)
    torch.manual_seed(0)
    check(nn.Linear(64, 64), torch.randn(40, 64))
    check(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), torch.randn(40, 64), count=0)


def test_training_packs_nothing():
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 64), torch.randn(40, 64)
    with events.collect() as seen:
        argand.compile(layer, options=OPTIONS)(x).square().sum().backward()
    assert not seen.total("native.convolution")
    grad, layer.weight.grad = layer.weight.grad, None
    layer(x).square().sum().backward()
    torch.testing.assert_close(grad, layer.weight.grad)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none(number):
    """They stay in their row, whatever tile it is in."""
    torch.manual_seed(0)
    x = torch.randn(45, 64)
    x[44, 3] = x[0, 63] = number
    check(nn.Linear(64, 40), x)


def step(model):
    with torch.enable_grad():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(20, 128)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


CHANGES = {
    "in place": lambda m: m.weight.mul_(1.5),
    "data": lambda m: m.weight.data.neg_(),
    "one number": lambda m: m.weight.data.view(-1).__setitem__(9_000, 3.0),
    "last number": lambda m: m.weight.data.view(-1).__setitem__(-1, 3.0),
    "numpy": lambda m: m.weight.detach().numpy().__setitem__((5, 6), 7.0),
    "dlpack": lambda m: torch.from_dlpack(m.weight.detach()).mul_(0.5),
    "bias": lambda m: m.bias.data.add_(1),
    "new data": lambda m: setattr(m.weight, "data", torch.randn(128, 128)),
    "another parameter": lambda m: setattr(m, "weight", nn.Parameter(torch.randn(128, 128))),
    "load_state_dict": lambda m: m.load_state_dict({k: v * 1.5 for k, v in m.state_dict().items()}),
    "optimizer": step,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_weights_are_seen_at_the_next_call(change):
    torch.manual_seed(0)
    model, x = nn.Linear(128, 128).eval(), torch.randn(40, 128)
    run = argand.compile(model, options=OPTIONS)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
        change(model)
        for _ in range(2):
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4)
