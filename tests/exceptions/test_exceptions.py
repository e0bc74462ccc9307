"""Type, text, place and context of an exception, the handlers that ran and the state after them are eager's."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch

import argand
from tests.exceptions import programs
from tests.exceptions.programs import RAISERS, SHAPES

CALLS = (False, True, False, True)


def _nothing() -> None:
    pass


def _told(error: BaseException | None) -> Any:
    """What a user sees of an exception and of those it came from."""
    if error is None:
        return None
    entries = [
        e for e in traceback.extract_tb(error.__traceback__) if e.filename == programs.__file__
    ]
    # what goes on after a break is a function of its own; its name says of what
    places = [(entry.name, entry.lineno) for entry in entries]
    return type(error), str(error), places, _told(error.__cause__), _told(error.__context__)


def history(shape: Any, run: Any, cut: Any, compiled: bool, backend: str) -> list[Any]:
    """Result or exception, log and argument after each call."""
    function = argand.compile(shape, backend=backend) if compiled else shape
    found = []
    for bad in CALLS:
        x, log = torch.arange(3.0), list[Any]()
        try:
            result: Any = function(x, bad, cut, log, run).tolist()
        except Exception as error:
            result = _told(error)
        found.append((result, log, x.tolist()))
    return found


# with the default backend each costs a second: a third of them is enough
ROWS = [
    (shape, raiser, backend)
    for shape in SHAPES
    for raiser in RAISERS
    for backend in ("eager", "argand")
    if backend == "eager" or (len(shape) + len(raiser)) % 3 == 0
]


@pytest.mark.parametrize(("shape", "raiser", "backend"), ROWS)
@pytest.mark.parametrize("cut", [_nothing, argand.graph_break])
def test_exceptions(shape: str, raiser: str, cut: Any, backend: str) -> None:
    expected = history(SHAPES[shape], RAISERS[raiser], _nothing, False, backend)
    assert history(SHAPES[shape], RAISERS[raiser], cut, True, backend) == expected


def test_a_frame_that_runs_again_draws_the_same_numbers_whatever_drew_them():
    """No name says that this pooling draws where its windows lie."""

    def pooled(x, place):
        try:
            y = torch.nn.functional.fractional_max_pool2d(x, 2, output_ratio=(0.5, 0.5))
            return y.flatten().index_select(0, place)
        except IndexError:
            return torch.ones(3)

    compiled = argand.compile(pooled, options={"fallback_random": True, "cache": False})
    x = torch.rand(1, 1, 8, 8)
    for place in (torch.tensor([0]), torch.tensor([99])):
        answers = []
        for run in (pooled, compiled):
            torch.manual_seed(0)
            answers.append((run(x, place), torch.rand(1)))
        torch.testing.assert_close(answers[1], answers[0], rtol=0, atol=0)
