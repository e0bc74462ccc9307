"""Functions that raise whenever they are captured: Python raises, and they are captured ever more rarely."""

import pytest
import torch

import argand
from argand.support import events


@pytest.fixture
def raised():
    seen = []

    def hear(event):
        if isinstance(event, events.Count) and event.counter == "capture.raised":
            seen.append(event.detail)

    unsubscribe = events.subscribe(hear)
    yield seen
    unsubscribe()


def checked(x, limit):
    y = x.sin() + 1
    if limit > 3:
        raise ValueError(f"{limit} is too much")
    return y * 2


def test_a_program_that_catches_its_errors_pays_for_few_captures(raised):
    compiled = argand.compile(checked)
    for _ in range(100):
        with pytest.raises(ValueError, match="7 is too much"):
            compiled(torch.ones(3), 7)
    assert 1 < len(raised) <= 7


def test_what_works_at_last_is_compiled(raised):
    graphs = []
    compiled = argand.compile(checked, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    for _ in range(5):
        with pytest.raises(ValueError, match="too much"):
            compiled(torch.ones(3), 7)
    for _ in range(8):
        torch.testing.assert_close(compiled(torch.ones(3), 2), checked(torch.ones(3), 2))
    assert len(graphs) == 1


def test_errors_beside_compiled_calls_are_not_captured_each_time(raised):
    compiled = argand.compile(checked)
    compiled(torch.ones(3), 2)
    for _ in range(50):
        with pytest.raises(ValueError, match="too much"):
            compiled(torch.ones(3), 7)
        torch.testing.assert_close(compiled(torch.ones(3), 2), checked(torch.ones(3), 2))
    assert len(raised) <= 6
