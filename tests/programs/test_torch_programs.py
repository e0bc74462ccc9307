"""Programs that once failed, and a few that nobody has seen."""

from pathlib import Path

import pytest

from tests.programs.checker import check
from tests.programs.generator import generate
from tests.programs.shrink import kind_of, shrink

FOUND = sorted((Path(__file__).parent / "found").glob("*.py"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_stays_mended(path):
    assert check(path.read_text()) is None


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_random_programs(first):
    failures = {seed: found for seed in range(first, first + 6) if (found := check(generate(seed)))}
    assert failures == {}


def test_failures_are_made_small():
    program = generate(11)

    def fails(one):
        return "result 0: it lacks a line" if any("v1" in line for line in one.lines) else None

    small = shrink(program, "result 3: it lacks a line", fails)
    assert len(small.lines) == 1
    assert len(small.results) == 1
    assert kind_of("call 1: result 2: 3 values differ") == kind_of(
        "call 0: result 0: 17 values differ"
    )
