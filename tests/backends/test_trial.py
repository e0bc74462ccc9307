"""The first calls of a graph take turns with eager; the faster one stays."""

import time

import pytest
import torch

import argand
from argand.backends import trial
from argand.support import events


def traced(function):
    return torch.fx.symbolic_trace(function)


def slowly(seconds, record, name):
    def run(*inputs):
        record.append(name)
        time.sleep(seconds)
        return inputs

    return run


@pytest.mark.parametrize(("ours", "eager", "stays"), [(0.001, 0.004, "ours"), (0.004, 0.001, "eager")])
def test_the_faster_one_stays(ours, eager, stays):
    record = []
    graph = traced(lambda x: x + 1)
    graph.forward = slowly(eager, record, "eager")
    run = trial.never_slower(graph, slowly(ours, record, "ours"))
    with events.collect() as seen:
        for _ in range(15):
            run(torch.ones(1))
    assert record[:2] == ["ours", "ours"]
    assert set(record[:9]) == {"ours", "eager"}
    assert set(record[9:]) == {stays}
    assert seen.total("native.faster" if stays == "ours" else "native.slower") == 1


def test_short_calls_are_not_tried():
    record = []
    graph = traced(lambda x: x + 1)
    graph.forward = slowly(0, record, "eager")
    run = trial.never_slower(graph, lambda *inputs: inputs)
    assert run.stored_key == ""
    for _ in range(40):
        run(1)
    assert not record or len(record) <= 4  # a pause of the machine may look like a long call


def test_the_key_of_the_cache_stays():
    def stored(*inputs):
        return inputs

    stored.stored_key = "abc"
    assert trial.never_slower(traced(lambda x: x), stored).stored_key == "abc"


def test_what_takes_part():
    x = torch.ones(3)
    plain = traced(lambda x: torch.relu(x) + 1)
    assert trial.can_try(plain, [x])
    assert not trial.can_try(plain, [x.clone().requires_grad_()])
    with torch.no_grad():
        assert trial.can_try(plain, [x.clone().requires_grad_()])
    assert not trial.can_try(traced(lambda x: torch.nn.functional.dropout(x)), [x])
    assert not trial.can_try(traced(lambda x: x + torch.randn_like(x)), [x])


def test_results_while_trying_are_eagers():
    x = torch.randn(300, 300)

    def program(x):
        return torch.softmax(x @ x, -1).cumsum(0)

    run = argand.compile(program, options={"cache": False, "strict": True})
    for _ in range(10):
        torch.testing.assert_close(run(x), program(x), rtol=1e-4, atol=1e-4)
