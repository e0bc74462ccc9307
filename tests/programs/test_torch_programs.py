"""Programs that once failed, and a few that nobody has seen."""

from pathlib import Path

import pytest

import argand
from tests.programs import operands, worlds
from tests.programs.checker import check
from tests.programs.generator import generate
from tests.programs.shrink import kind_of, shrink
from tests.programs.world_checker import check_world

FOUND = sorted((Path(__file__).parent / "found").glob("*.py"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_stays_mended(path):
    text = path.read_text()
    assert (check_world if "LENGTHS" in text else check)(text) is None


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_random_programs(first):
    failures = {seed: found for seed in range(first, first + 6) if (found := check(generate(seed)))}
    assert failures == {}


def test_random_operands():
    rows = {s: check(operands.generate(s)) for s in range(operands.FIRST, operands.FIRST + 4)}
    assert {seed: found for seed, found in rows.items() if found} == {}


@pytest.mark.parametrize("first", range(worlds.FIRST, worlds.FIRST + 12, 4))
def test_random_worlds(first):
    rows = {seed: check_world(worlds.generate(seed)) for seed in range(first, first + 4)}
    assert {seed: found for seed, found in rows.items() if found} == {}


_WORLD = """
BACKEND, DYNAMIC, LENGTHS = "eager", False, (3, 2)
CHANGES = ["STATE['k'] += 1"]


def inputs(n, seed):
    return [tensor((n,), "float32", "plain", seed, True)]


def program(a0):
    BOX.t = a0 * STATE["k"]
    try:
        return (BOX.t.sin() / (2 - a0.shape[0] % 3),)
    finally:
        LOG.append(BOX.calls)
"""
_SLIPS = {
    "a global": lambda f, *x: (f.__globals__.update(COUNT=5), f(*x))[1],
    "an attribute": lambda f, *x: (setattr(f.__globals__["BOX"], "calls", 1), f(*x))[1],
    "a result": lambda f, x: (f(x)[0] * 1.01,),
    "a structure": lambda f, x: list(f(x)),
    "a list": lambda f, x: (f.__globals__["LOG"].append(0), f(x))[1],
    "a gradient": lambda f, x: (f(x)[0] + x.sum() - x.sum().detach(),),
    "a write": lambda f, x: (f(x), x.detach().add_(1))[0],
    "an old state": lambda f, x: (f.__globals__["STATE"].update(k=1), f(x))[1],
}


@pytest.mark.parametrize("slip", _SLIPS)
def test_a_world_that_is_left_otherwise_is_seen(slip, monkeypatch):
    assert check_world(_WORLD) is None
    monkeypatch.setattr(
        argand, "compile", lambda function, **_: lambda *x: _SLIPS[slip](function, *x)
    )
    assert check_world(_WORLD) is not None


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
