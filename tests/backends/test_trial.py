"""The first calls of a graph take turns with eager; the faster one stays."""

import copy
import itertools
import types

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import argand
from argand.backends import trial
from argand.backends.argand_backend import compile_graph
from argand.protocol import PLAIN, CompiledGraph
from argand.support import events
from argand.support.options import Options


def never_slower(graph, ours, forget=print):
    return trial.never_slower(graph, CompiledGraph(ours), forget).call


class Clock:
    """Stands in for the clock of a trial: time passes only where a test says so."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(trial, "time", types.SimpleNamespace(perf_counter=made.perf_counter))
    return made


def traced(function):
    return torch.fx.symbolic_trace(function)


def slowly(clock, seconds, record, name):
    def run(*inputs):
        record.append(name)
        clock.pass_by(seconds)
        return inputs

    return run


@pytest.mark.parametrize(
    ("ours", "eager", "stays"), [(0.001, 0.004, "ours"), (0.004, 0.001, "eager")]
)
def test_the_faster_one_stays(clock, ours, eager, stays):
    record = []
    graph = traced(lambda x: x + 1)
    graph.forward = slowly(clock, eager, record, "eager")
    forgotten = []
    run = never_slower(graph, slowly(clock, ours, record, "ours"), lambda: forgotten.append(1))
    with events.collect() as seen:
        for _ in range(26):
            run(torch.ones(1))
    assert record[:2] == ["ours", "ours"]
    assert set(record[:9]) == {"ours", "eager"}
    assert set(record[20:]) == {stays}
    assert seen.total("native.faster" if stays == "ours" else "native.slower") == 1
    assert forgotten == ([] if stays == "ours" else [1])


def test_a_few_slow_calls_are_no_verdict(clock):
    """Compiled code that is slow at first, as long as a disturbance of the machine lasts, stays."""
    record, delays = [], iter([0.006] * 6)
    graph = traced(lambda x: x + 1)
    graph.forward = slowly(clock, 0.003, record, "eager")

    def ours(*inputs):
        record.append("ours")
        clock.pass_by(next(delays, 0.001))
        return inputs

    run = never_slower(graph, ours)
    for _ in range(30):
        run(torch.ones(1))
    assert set(record[20:]) == {"ours"}


def test_short_calls_are_not_tried(clock):
    record = []
    graph = traced(lambda x: x + 1)
    graph.forward = slowly(clock, 0.00001, record, "eager")
    run = never_slower(graph, slowly(clock, trial.SHORT * 0.9, record, "ours"))
    for _ in range(40):
        run(1)
    assert record == ["ours"] * 40


def test_the_key_of_the_cache_stays():
    stored = CompiledGraph(lambda *inputs: inputs, key="abc")
    assert trial.never_slower(traced(lambda x: x), stored, print).key == "abc"


def test_what_lost_is_tried_again_by_the_next_process(monkeypatch, tmp_path):
    def program(x):
        return torch.softmax(x @ x, -1).cumsum(0)

    milliseconds = itertools.count(0.0, 0.001).__next__  # every call takes one
    monkeypatch.setattr(trial, "time", types.SimpleNamespace(perf_counter=milliseconds))
    monkeypatch.setattr(trial, "MARGIN", 0.0)  # eager wins always
    x = torch.randn(30, 30)
    for _ in range(2):
        argand.reset()  # as a new process: all that is left is on disk
        run = argand.compile(program, options={"cache_dir": str(tmp_path)})
        with events.collect() as seen:
            for _ in range(24):
                run(x)
        assert seen.total("native.slower") == 1


def test_what_takes_part():
    x = torch.ones(3)
    plain = CompiledGraph(torch.relu)
    thrifty = Options(memory_budget=0.5)
    assert trial.can_try(plain, [x], Options())
    assert trial.can_try(plain, [x.clone().requires_grad_()], Options())
    assert trial.can_try(plain, [x], thrifty)
    assert not trial.can_try(plain, [x.clone().requires_grad_()], thrifty)
    assert not trial.can_try(plain, [x], Options(measure=False))
    assert not trial.can_try(CompiledGraph(torch.rand_like, draws=True), [x], Options())
    torch.use_deterministic_algorithms(True)
    try:
        assert not trial.can_try(plain, [x], Options())
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_draws_is_known_of_the_program():
    for function, random in (
        (lambda x: torch.nn.functional.dropout(x), True),
        (lambda x: x + torch.randn_like(x), True),
        (lambda x: torch.nn.functional.dropout(x, training=False) + 1, False),
        (
            lambda x: torch.nn.functional.scaled_dot_product_attention(
                x[None, None], x[None, None], x[None, None]
            ),
            False,
        ),
    ):
        for given in (torch.ones(3, 3), torch.ones(3, 3, requires_grad=True)):
            compiled = compile_graph(traced(function), [given], PLAIN, Options(cache=False))
            assert compiled.draws == random


class Slow(torch.autograd.Function):
    """Twice its input; the backward pass takes the seconds it is told."""

    @staticmethod
    def forward(ctx, x, weight, clock, seconds):
        ctx.clock, ctx.seconds = clock, seconds
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, gradient):
        ctx.clock.pass_by(ctx.seconds)
        x, weight = ctx.saved_tensors
        return gradient * weight, gradient * x, None, None


def training(clock, ours, eager, record):
    """A trial of two functions that differ in how long their backward passes take."""

    def named(name, seconds):
        def run(*inputs):
            record.append(name)
            return (Slow.apply(*inputs, clock, seconds),)

        return run

    graph = traced(lambda x, w: x * w)
    graph.forward = named("eager", eager)
    return never_slower(graph, named("ours", ours))


WAYS = {
    "backward": lambda out, w: out.sum().backward(),
    "grad": lambda out, w: torch.autograd.grad(out.sum(), w),
    "inputs": lambda out, w: out.sum().backward(inputs=[w]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("ours", "eager", "stays"), [(0.001, 0.004, "ours"), (0.004, 0.001, "eager")]
)
def test_training_is_timed_with_its_backward_pass(clock, ours, eager, stays, way):
    record = []
    run = training(clock, ours, eager, record)
    w = torch.ones(3, requires_grad=True)
    leaf = torch.ones(3, requires_grad=True)
    with events.collect() as seen:
        for _ in range(26):
            x = leaf * 2  # an input with a history
            (out,) = run(x, w)
            clock.pass_by(0.1)  # the user's own time does not count
            WAYS[way](out, w)
    assert set(record[:9]) == {"ours", "eager"}
    assert set(record[20:]) == {stays}
    assert seen.total("native.faster" if stays == "ours" else "native.slower") == 1
    assert not w._backward_hooks and not x._backward_hooks


def test_two_forwards_before_one_backward(clock):
    record = []
    run = training(clock, 0.002, 0.001, record)
    w = torch.ones(3, requires_grad=True)
    for _ in range(12):
        (a,), (b,) = run(torch.ones(3), w), run(torch.ones(3), w)
        w.grad = None
        (a + b).sum().backward()
        assert w.grad.tolist() == [2, 2, 2]
    assert "eager" in record[:12]  # the first of two takes turns, the other waits


def test_without_backward_the_trial_ends(clock):
    record = []
    run = training(clock, 0.002, 0.001, record)
    w = torch.ones(3, requires_grad=True)
    with events.collect() as seen:
        for _ in range(40):
            run(torch.ones(3), w)
    assert set(record) == {"ours"} and seen.total("native.not_tried") == 1


def test_gradients_of_gradients_end_the_trial(clock):
    record = []
    run = training(clock, 0.002, 0.001, record)
    w = torch.ones(3, requires_grad=True)
    for _ in range(10):
        (g,) = torch.autograd.grad(run(torch.ones(3), w)[0].sum(), w, create_graph=True)
    assert set(record) == {"ours"}


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_is_recomputed_is_computed_the_same_way(reentrant):
    """Checkpoint compares the tensors that forward and recomputation save: eager's are others than ours."""
    torch.manual_seed(0)
    block = torch.nn.Sequential(
        torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)
    )
    compiled = argand.compile(copy.deepcopy(block), options={"cache": False, "strict": True})
    x = torch.randn(256, 256, requires_grad=True)
    for _ in range(12):
        gradients = []
        for f in (compiled, block):
            y = checkpoint(f, checkpoint(f, x, use_reentrant=reentrant), use_reentrant=reentrant)
            gradients.append(
                torch.autograd.grad(y.sum(), x)[0]
                if not reentrant
                else y.sum().backward() or x.grad.clone()
            )
            x.grad = None
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_an_error_in_a_backward_pass_leaves_the_trial_whole(clock):
    record = []
    run = training(clock, 0.002, 0.001, record)
    w = torch.ones(3, requires_grad=True)

    def fail(gradient):
        raise ValueError("the user's")

    for _ in range(40):
        (out,) = run(torch.ones(3), w)
        out.register_hook(fail)
        with pytest.raises(ValueError, match="the user's"):
            out.sum().backward()
    assert set(record) == {"ours"}


def test_training_while_trying_is_eagers():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256), torch.nn.GELU())
    twin = copy.deepcopy(net)
    compiled = argand.compile(net, options={"cache": False, "strict": True})
    x = torch.randn(512, 256)
    for _ in range(12):
        for model in (compiled, twin):
            model.zero_grad()
            model(x).square().mean().backward()
        for ours, eagers in zip(net.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, eagers.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(net[1].running_var, twin[1].running_var)
    assert net[1].num_batches_tracked == 12


def test_results_while_trying_are_eagers():
    x = torch.randn(300, 300)

    def program(x):
        return torch.softmax(x @ x, -1).cumsum(0)

    run = argand.compile(program, options={"cache": False, "strict": True})
    for _ in range(10):
        torch.testing.assert_close(run(x), program(x), rtol=1e-4, atol=1e-4)
