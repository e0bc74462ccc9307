"""Two hundred random programs, compiled, do what they do eagerly: results, exceptions, side effects, gradients."""

import warnings

import pytest

from argand.support import events

from .checker import compile_with, differences
from .program_generator import generate


@pytest.mark.parametrize("batch", range(20))
def test_compiled_programs_are_right(batch):
    with warnings.catch_warnings(), events.collect() as heard:
        # recompile limits are expected: programs change their world
        warnings.simplefilter("ignore")
        for seed in range(10 * batch, 10 * batch + 10):
            program = generate(seed)
            difference = differences(program, compile_with("eager"))
            assert difference is None, f"seed {seed}\n{program.text}\n{difference}"
    # a program that is left to Python is right for nothing
    assert heard.total("capture.graphs") >= 10
