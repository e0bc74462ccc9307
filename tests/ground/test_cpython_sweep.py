"""The sweep of CPython's tests: one that was ended is continued, and what differed without a reason is tried again."""

from __future__ import annotations

import pytest

from tools.cpython import __main__ as sweep
from tools.cpython import kept, reasons
from tools.cpython.kept import Difference, Kept, Row

LISTED = next(f"test.{module}.Case.{name}" for module, name in reasons.REASONS)


def row(module, *tests):
    return Row(module, 3, [Difference(test, "ok", "error", "text") for test in tests], (1.0, 2.0))


def test_modules_that_are_settled_are_kept(tmp_path):
    path = tmp_path / "rows"
    first = Kept(path, "beside")
    first.add(row("test_a"))
    first.add(row("test_b", LISTED))
    first.add(row("test_c", LISTED, "test.test_c.Case.test_new"))
    with path.open("a") as file:
        file.write('{"key": ["3')  # ended here
    again = Kept(path, "beside")
    assert again.settled("test_a") == row("test_a")
    assert again.settled("test_b") == row("test_b", LISTED)
    assert again.settled("test_b").listed == 1
    assert again.settled("test_c") is None
    assert again.settled("test_d") is None


def test_a_reason_that_is_gone_makes_its_module_run_again(tmp_path, monkeypatch):
    Kept(tmp_path / "rows", "beside").add(row("test_b", LISTED))
    monkeypatch.setattr(kept, "reason_for", lambda test: "")
    assert Kept(tmp_path / "rows", "beside").settled("test_b") is None


@pytest.mark.parametrize("other", [("alone", ""), ("beside", "test_x")])
def test_rows_of_other_sweeps_are_no_rows(tmp_path, other):
    Kept(tmp_path / "rows", "beside").add(row("test_a"))
    assert Kept(tmp_path / "rows", *other).settled("test_a") is None


def test_rows_of_other_interpreters_are_no_rows(tmp_path, monkeypatch):
    Kept(tmp_path / "rows", "beside").add(row("test_a"))
    monkeypatch.setattr(kept, "VERSION", "3.9.0")
    assert Kept(tmp_path / "rows", "beside").settled("test_a") is None


def test_the_command_runs_what_is_missing(tmp_path, monkeypatch, capsys):
    path = tmp_path / "rows"
    Kept(path, "beside").add(row("test_bool"))
    ran = []
    monkeypatch.setattr(
        sweep, "compare", lambda module, *rest: ran.append(module) or row(module, "test.x.y")
    )
    command = ["cpython", "test_bool", "test_list", "--results", str(path), "--texts"]
    monkeypatch.setattr("sys.argv", command)
    assert sweep.main() == 1
    assert ran == ["test_list"]
    said = capsys.readouterr().out
    assert "      | text" in said
    assert "6 tests in 2 modules, 5 passed, 0 listed with a reason, 1 unexplained" in said


def test_a_difference_is_found(monkeypatch):
    wanted = {
        "test.m.C.same": ["ok", "ok"],
        "test.m.C.other": ["ok", "ok"],
        "test.m.C.lost": ["ok"],
    }
    got = {"test.m.C.same": ["ok", "ok"], "test.m.C.other": ["ok", "error ValueError: 1"]}
    found = {"plain": sweep.Report(wanted, {}, 1.0), "beside": sweep.Report(got, {}, 2.0)}
    monkeypatch.setattr(sweep, "run_module", lambda module, mode, limit, only: found[mode])
    made = sweep.compare("m", "beside", 1, "")
    assert made.different == [
        Difference("test.m.C.other", "ok", "error ValueError: 1", ""),
        Difference("test.m.C.lost", "ok", "was not run", ""),
    ]
    assert (made.tests, made.seconds) == (3, (1.0, 2.0))
