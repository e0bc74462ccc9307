"""The harness beside other engines: processor time, and the table of the ceiling."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.peers import child, roof
from benchmarks.peers.run import parse

ROW = {
    "model": "one",
    "seconds": 0.01,
    "kinds": dict.fromkeys(roof.SHORT, 0.001),
    "flops": 10**9,
    "bytes": 10**8,
    "peaks": (2e11, 4e10),
}


def test_the_quickest_call_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short calls are timed several at a time, and what others took from the machine is not theirs."""
    clock = {"wall": 0.0, "processor": 0.0}
    slow = iter([5.0, 5.0, 3.0, 2.0, 7.0] + [4.0] * 100)

    def call() -> None:
        clock["processor"] += 1e-3 * next(slow)
        clock["wall"] += 1.0

    monkeypatch.setattr(child.time, "process_time", lambda: clock["processor"])
    monkeypatch.setattr(child.time, "perf_counter", lambda: clock["wall"])
    assert child.quickest(call, 8.0) == pytest.approx(2e-3)


def test_ceiling_says_shares_and_peaks(capsys: Any) -> None:
    """A tenth of a second's peak operations, a quarter of its bytes."""
    roof.print_ceilings([ROW])
    heads, line = capsys.readouterr().out.splitlines()
    assert "watch" in heads and "14.3%" in line and "50%" in line and "25%" in line


def test_the_picture_names_every_model() -> None:
    """One point for each, under one line."""
    text = roof.draw([ROW, {**ROW, "model": "two", "flops": 10**7}])
    assert (
        text.count("<circle") == 2
        and ">one<" in text
        and ">two<" in text
        and text.count("<polyline") == 1
    )


def test_one_thread_on_a_shared_machine() -> None:
    """The option of machines that others use."""
    assert parse(["--shared"]).shared and json.dumps(vars(parse([])), default=str)
