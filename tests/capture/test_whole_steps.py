"""Training steps in one compiled function: forward, `backward()`, clipping, the optimizer's step and `zero_grad`."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import argand
from argand.support import events


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


def batch(number):
    draw = torch.Generator().manual_seed(number)
    return torch.randn(6, 4, generator=draw), torch.randint(0, 2, (6,), generator=draw)


def eager(function):
    return function


def whole(function):
    return argand.compile(function, fullgraph=True, options={"cache": False, "strict": True})


def run(make, engine, steps=4):
    """All that steps leave behind; of gradients also whether they stay the same objects."""
    model = network()
    step, optimizer = make(model)
    step = engine(step)
    seen = []
    for number in range(steps):
        before = [p.grad for p in model.parameters()]
        result = step(*batch(number))
        grads = [p.grad for p in model.parameters()]
        seen.append(
            {
                "result": result,
                "requires grad": result.requires_grad,
                "parameters": [p.detach().clone() for p in model.parameters()],
                "versions": [p._version for p in model.parameters()],
                "grads": [None if g is None else g.clone() for g in grads],
                "strides": [None if g is None else g.stride() for g in grads],
                "kept": [new is old and new is not None for new, old in zip(grads, before)],
                "state": copy.deepcopy(optimizer.state_dict()) if optimizer else None,
            }
        )
    return seen


def same(actual, expected):
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            same(actual[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected):
            same(*pair)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=2e-5, atol=2e-6)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected)
    else:
        assert actual == expected


def check(make, graphs=1, steps=4):
    expected = run(make, eager, steps)
    with events.collect() as seen:
        actual = run(make, whole, steps)
    same(actual, expected)
    assert seen.total("capture.graphs") == graphs
    assert not seen.total("autograd.fallback")


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_graph_from_its_first_call_on(name):
    def make(model):
        optimizer = OPTIMIZERS[name](model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step, optimizer

    check(make, graphs=1 + (name == "momentum"))  # its first step is another one


def test_gradients_that_are_dropped_at_the_end_are_no_results():
    def make(model):
        optimizer = torch.optim.Adam(model.parameters())

        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            total = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            model.zero_grad()
            return torch.stack([loss.detach(), total])

        return step, optimizer

    check(make)


def test_gradients_that_are_kept_are_added_to_in_place():
    def make(model):
        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return step, None

    check(make, graphs=2)  # without gradients, and with them


def test_gradients_that_are_set_to_zero_stay_the_same_tensors():
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad(set_to_none=False)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            return loss.detach()

        return step, optimizer

    check(make, graphs=2)


def test_micro_batches_add_up():
    def make(model):
        optimizer = torch.optim.AdamW(model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            total = 0.0
            for part in range(3):
                loss = F.cross_entropy(model(x[part::3]), y[part::3]) / 3
                loss.backward()
                total = total + loss.detach()
            optimizer.step()
            return total

        return step, optimizer

    check(make)


def test_a_graph_that_is_retained_is_gone_back_through_twice():
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward(retain_graph=True)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, optimizer

    check(make)


def test_a_penalty_on_gradients():
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
            (loss + sum(g.square().sum() for g in grads)).backward()
            optimizer.step()
            return loss.detach()

        return step, optimizer

    check(make)


def test_parameters_without_a_gradient_have_none():
    def make(model):
        model[0].weight.requires_grad_(False)
        optimizer = torch.optim.Adam(model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            loss = model[1](model[0](x)).exp().sum()  # not the last layer
            loss.backward()
            optimizer.step()
            return loss

        return step, optimizer

    check(make)


def test_several_optimizers_and_backward_of_several_tensors():
    def make(model):
        first = torch.optim.SGD(model[0].parameters(), lr=0.1)
        second = torch.optim.Adam([*model[1].parameters(), *model[3].parameters()])

        def step(x, y):
            out = model(x)
            torch.autograd.backward([out.sum(), out], [None, torch.ones_like(out)])
            for optimizer in (first, second):
                optimizer.step()
                optimizer.zero_grad()
            return out.detach()

        return step, second

    check(make)


def test_backward_with_inputs_fills_these_alone():
    def make(model):
        def step(x, y):
            model.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward(inputs=[model[0].weight, model[3].bias])
            return loss.detach()

        return step, None

    check(make)


def test_a_moving_average_of_the_parameters():
    def make(model):
        average = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mean, new in zip(average.parameters(), model.parameters()):
                    mean.lerp_(new, 0.1)
            return average(x).detach()

        return step, optimizer

    check(make)


def test_gradients_that_share_memory_become_tensors_of_their_own():
    def step(a, b):
        (a + b).backward(torch.ones_like(a))
        return a.grad.add_(1), b.grad

    for engine in (eager, whole):
        a, b = torch.zeros(3, requires_grad=True), torch.ones(3, requires_grad=True)
        first, second = engine(step)(a, b)
        assert first is a.grad and second is b.grad
        assert a.grad.tolist() == [2, 2, 2] and b.grad.tolist() == [1, 1, 1]


def test_gradients_have_the_layout_of_their_leaf():
    def step(x, w):
        (x.sum() + (w.t() * 2).sum()).backward()
        return x.grad + 1

    for engine in (eager, whole):
        x = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
        w = torch.ones(3, 4, requires_grad=True)
        engine(step)(x, w)
        assert x.grad.stride() == x.stride() and w.grad.stride() == w.stride()


def test_a_loss_cannot_be_gone_back_through_again():
    def step(x):
        loss = x.sin().sum()
        loss.backward()
        return loss

    for engine in (eager, whole):
        loss = engine(step)(torch.ones(3, requires_grad=True))
        assert loss.requires_grad and not loss.is_leaf
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def test_a_history_that_saved_nothing_can_be():
    def step(x):
        loss = x.sum()
        loss.backward()
        return loss

    for engine in (eager, whole):
        x = torch.ones(3, requires_grad=True)
        engine(step)(x).backward()
        assert x.grad.tolist() == [2, 2, 2]


def test_leaves_made_inside():
    def step(x):
        w = x.detach().clone().requires_grad_()
        (w * x).sum().backward()
        return w.grad + 1

    x = torch.arange(3.0)
    with events.collect() as seen:
        assert torch.equal(whole(step)(x), step(x))
    assert not seen.total("autograd.fallback")


def loose(function):
    return argand.compile(function, options={"cache": False})


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_parameters_are_called(register):
    def step(w, x):
        loss = (w * x).sin().sum()
        loss.backward()
        return loss.detach()

    outcomes = []
    for engine in (eager, loose):
        w, calls = torch.ones(3, requires_grad=True), []
        compiled = engine(step)
        compiled(w, torch.arange(3.0))
        handle = getattr(w, register)(lambda value: calls.append(value.clone()))
        compiled(w, torch.arange(3.0))
        handle.remove()
        compiled(w, torch.arange(3.0))
        outcomes.append((w.grad, calls))
    same(outcomes[1], outcomes[0])
    assert len(outcomes[0][1]) == 1


def test_a_history_from_outside_is_followed():
    def step(y, w):
        loss = (y * w).sum()
        loss.backward()
        return loss.detach()

    def gradient(y, w):
        return torch.autograd.grad((y * w).sum(), w)[0]

    for function in (step, gradient):  # both break there
        outcomes = []
        for engine in (eager, loose):
            w = torch.arange(3.0, requires_grad=True)
            outcomes.append((engine(function)(w.sin(), w), w.grad))
        same(outcomes[1], outcomes[0])


def test_a_gradient_of_a_tensor_with_a_history_is_one_graph():
    def gradient(y, x):
        return torch.autograd.grad((y * x).sum(), y)[0]

    w = torch.arange(3.0, requires_grad=True)
    assert torch.equal(whole(gradient)(w.sin(), torch.ones(3)), torch.ones(3))


def test_breaks_around_a_step():
    def make(model):
        optimizer = torch.optim.Adam(model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            if loss.item() < 0:
                raise ValueError("a loss below zero")
            loss.backward()
            argand.graph_break()
            optimizer.step()
            return loss

        return step, optimizer

    same(run(make, loose), run(make, eager))


SCHEDULERS = {
    "steps": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2),
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.1, total_steps=20
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_learning_rates_that_change_are_two_graphs(name, where):
    """The first rate is a constant; from the second one on it is left open, and betas with it."""

    def make(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scheduler = SCHEDULERS[name](optimizer)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if where == "inside":
                scheduler.step()
            return 0

        def scheduled(engine):
            run_step = engine(step)

            def both(x, y):
                run_step(x, y)
                if where == "outside":
                    scheduler.step()
                return model(x).detach()

            return both

        return scheduled, optimizer

    def outcome(engine):
        return run(
            lambda model: (lambda pair: (pair[0](engine), pair[1]))(make(model)), eager, steps=6
        )

    expected = outcome(eager)
    with events.collect() as seen:
        actual = outcome(loose)
    same(actual, expected)
    assert seen.total("capture.graphs") == 2


def test_a_compiled_step_of_an_optimizer_with_a_scheduler():
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.optim.lr_scheduler.StepLR(optimizer, 2)
        # of its wrapper, which has a weak reference to the optimizer
        step_alone = whole(optimizer.step)

        def step(x, y):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            step_alone()
            return model(x).detach()

        return step, optimizer

    with events.collect() as seen:
        actual = run(make, eager)
    same(actual, run(make, eager))
    assert seen.total("capture.graphs") == 1


@pytest.mark.parametrize("buffers", [True, False])
@pytest.mark.parametrize("mean", [None, torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)])
def test_averaged_models_of_torch(mean, buffers):
    def make(model):
        average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=mean, use_buffers=buffers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            average.update_parameters(model)
            return average(x).detach()

        return step, optimizer

    check(make)


def test_gradients_that_are_retained():
    def make(model):
        def step(x, y):
            model.zero_grad()
            hidden = model[0](x)
            hidden.retain_grad()
            hidden.retain_grad()
            model[3](model[1](hidden)).exp().sum().backward()
            return hidden.grad if hidden.retains_grad else hidden

        return step, None

    check(make)


def test_a_tensor_that_retains_its_gradient_leaves_the_graph():
    def step(x):
        hidden = x.sin()
        hidden.retain_grad()
        return hidden, hidden.exp().sum()

    # a break: in one graph the loss would not be computed from the result
    for engine in (eager, argand.compile):
        hidden, loss = engine(step)(torch.ones(3, requires_grad=True))
        loss.backward()
        assert torch.equal(hidden.grad, hidden.detach().exp())


def test_views_of_one_tensor_beside_parameters_that_change():
    def step(w, tokens, targets):
        loss = ((w * tokens - targets) ** 2).sum()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        return loss.detach()

    outcomes = []
    for engine in (eager, whole):
        w, data, compiled = torch.ones(3, requires_grad=True), torch.arange(4.0), engine(step)
        losses = [compiled(w, data[:-1], data[1:]), compiled(w, data[:-1].clone(), data[1:])]
        outcomes.append((losses, w.detach()))
    same(outcomes[1], outcomes[0])
