"""Recordings of launches, on a device that only takes notes."""

import torch

from argand.runtime.devices.graphs import WARM_UPS, GraphedPlan
from argand.support import events
from tests.devices.standin import Notes, device


def graphed(run):
    notes = Notes()
    return GraphedPlan(lambda inputs: run(*inputs), device(notes)), notes


def test_calls_are_recorded_after_some_and_replayed_from_then_on():
    run, notes = graphed(lambda x, w: (x * w,))
    weight = torch.randn(4)
    for number in range(WARM_UPS + 3):
        x = torch.randn(4)
        assert torch.equal(run([x, weight])[0], x * weight), number
    assert notes.lines.count("record") == 1
    assert notes.lines.count("replay") == 3


def test_results_of_earlier_calls_stay():
    run, _ = graphed(lambda x: (x + 1,))
    inputs = [torch.full((3,), float(k)) for k in range(6)]
    results = [run([x])[0] for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        assert torch.equal(result, x + 1)


def test_every_shape_has_its_own_recording():
    run, notes = graphed(lambda x: (x * 2,))
    for _ in range(2 * WARM_UPS):
        for size in (2, 3):
            x = torch.randn(size)
            assert torch.equal(run([x])[0], x * 2)
    assert notes.lines.count("record") == 2


def test_a_parameter_that_moves_is_recorded_again():
    run, notes = graphed(lambda x, w: (x * w,))
    weight = torch.randn(4)
    for _ in range(5):
        run([torch.randn(4), weight])
    other, x = torch.randn(4), torch.randn(4)
    assert torch.equal(run([x, other])[0], x * other)
    assert notes.lines.count("record") == 2


def test_what_writes_to_its_inputs_is_not_recorded():
    def write(x):
        x.add_(1)
        return (x * 2,)

    run, notes = graphed(write)
    with events.collect() as seen:
        for _ in range(5):
            x = torch.zeros(3)
            assert torch.equal(run([x])[0], torch.full((3,), 2.0))
            assert torch.equal(x, torch.ones(3))
    assert "record" not in notes.lines
    assert "written to" in run.refused
    assert seen.total("native.graph_refused") == 1


def test_a_step_that_cannot_be_recorded_leaves_the_plan_as_it_is():
    notes = Notes()
    row = device(notes)

    def fails(run):
        raise RuntimeError("operation not permitted when stream is capturing")

    run = GraphedPlan(lambda inputs: (inputs[0] + 1,), row._replace(record=fails))
    for _ in range(5):
        assert torch.equal(run([torch.zeros(2)])[0], torch.ones(2))
    assert "not permitted" in run.refused
