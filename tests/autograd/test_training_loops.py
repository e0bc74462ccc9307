"""Training loops as users write them, compiled in part or as a whole, end with eager's parameters."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import argand
from argand.support import events

pytestmark = pytest.mark.usefixtures("in_float64")


def compiled(function):
    return argand.compile(function, options={"cache": False, "strict": True})


def whole(model, optimizer, engine):
    """Everything in one compiled function, its backward pass too."""

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return engine(step)


def forward_only(model, optimizer, engine):
    run = engine(model)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(run(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.eval()
        with torch.no_grad():
            run(x)
        model.train()
        return loss.detach()

    return step


def accumulated(model, optimizer, engine):
    run = engine(model)

    def step(x, y):
        optimizer.zero_grad()
        for half in (slice(0, 4), slice(4, 8)):
            loss = F.cross_entropy(run(x[half]), y[half]) / 2
            loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def by_hand(model, optimizer, engine):
    def loss_of(x, y):
        return (
            F.cross_entropy(model(x), y) + sum(p.square().sum() for p in model.parameters()) * 1e-3
        )

    loss_of = engine(loss_of)

    def step(x, y):
        loss = loss_of(x, y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
        return loss.detach()

    return step


def optimizer_only(model, optimizer, engine):
    update = engine(optimizer.step)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        update()
        return loss.detach()

    return step


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "adam one by one": lambda p: torch.optim.Adam(p, lr=1e-2, foreach=False, amsgrad=True),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    "loop", [whole, forward_only, accumulated, by_hand, optimizer_only], ids=lambda f: f.__name__
)
def test_loops_end_where_eagers_do(loop, optimizer):
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 4))
    ends = []
    for engine in (compiled, lambda function: function):
        model = copy.deepcopy(first)
        step = loop(model, OPTIMIZERS[optimizer](model.parameters()), engine)
        with warnings.catch_warnings(), events.collect() as seen:
            warnings.simplefilter("error", argand.ArgandWarning)
            losses = []
            for k in range(5):
                torch.manual_seed(k)
                losses.append(step(torch.randn(8, 16), torch.randint(0, 4, (8,))))
        ends.append([*losses, *model.state_dict().values()])
        names = [e.detail for e in seen.events if getattr(e, "counter", "") == "compiles"]
        # a library that compiles for us is not the user's
        assert not any("create" in name for name in names), names
    torch.testing.assert_close(*ends, rtol=1e-6, atol=1e-7)
