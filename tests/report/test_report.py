"""argand.report: what it hears, what it times, and the files it writes."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch

import argand
from argand.cli.main import main
from argand.report.misses import reason
from argand.runtime import _native
from argand.support import events
from argand.support.errors import UserError

OWN = {"options": {"measure": False}}


def program(x, w):
    h = torch.nn.functional.gelu(x @ w)
    if h.sum() > -1e9:
        h = h + 1
    return torch.softmax(h, -1)


def make(calls=9, function=program, **keywords):
    x, w = torch.randn(64, 64), torch.randn(64, 64)
    with argand.report(None, **keywords) as made, torch.no_grad():
        compiled = argand.compile(function, **OWN)
        for _ in range(calls):
            result = compiled(x, w)
    torch.testing.assert_close(result, function(x, w))
    return made.data


def line_of(text):
    return next(k for k, line in enumerate(open(__file__), 1) if text in line)


def test_a_report_has_verdict_problems_kernels_and_texts():
    data = make()
    (function,) = data["functions"]
    assert function["name"] == "program" and function["calls"] == 9
    assert (
        function["kinds"] == {"compile": 1, "compiled": 5, "eager": 3} and function["speedup"] > 0
    )
    (broken,) = [problem for problem in data["problems"] if problem["kind"] == "graph break"]
    assert (
        broken["where"]["line"] == line_of("if h.sum()")
        and broken["where"]["function"] == "program"
    )
    assert broken["count"] == 6 and broken["cost_ms"] > 0 and "torch.where" in broken["fix"]
    by_line = {where["line"] for kernel in data["kernels"] for where in kernel["lines"]}
    assert {line_of("h = torch.nn.functional"), line_of("return torch.softmax(h, -1)")} <= by_line
    assert all(kernel["calls"] == 6 and kernel["bytes"] > 0 for kernel in data["kernels"])
    loops = [data["texts"][k["text"]]["detail"] for k in data["kernels"] if k["text"] is not None]
    assert loops and set(loops) <= {kernel["name"] for kernel in data["kernels"]}
    assert {"graph_code", "guards", "ir", "schedule", "output_code"} <= {
        text["stage"] for text in data["texts"]
    }
    assert data["verdict"]["compile_ms"] > 0 and data["memory"]
    assert (
        data["verdict"]["ceiling"] >= data["verdict"]["speedup"]
    )  # what is left to win is no loss


def test_nothing_is_left_on_after_a_report():
    make(2)
    assert not events.shown() and _native.measure_plans(False) is False
    plain = argand.compile(program, **OWN)
    with torch.no_grad():
        assert plain(torch.randn(4, 4), torch.randn(4, 4)).shape == (4, 4)


def test_without_comparison_no_call_runs_in_eager():
    assert "eager" not in make(9, compare=False)["functions"][0]["kinds"]


def test_a_training_call_is_timed_with_its_backward_pass():
    x, w = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
    with argand.report(None) as made:
        compiled = argand.compile(lambda x, w: torch.tanh(x @ w).sum(), **OWN)
        for _ in range(6):
            compiled(x, w).backward()
    assert made.data["functions"][0]["backward"]
    late = made.data["compiles"][-1]
    # backward graphs are compiled when they are first needed
    assert late["number"] == 0 and late["seconds"] > 0


def test_only_one_report_at_a_time():
    with argand.report(None), pytest.raises(UserError, match="already"), argand.report(None):
        pass


def test_an_error_in_the_block_is_the_users_and_the_report_is_written(tmp_path):
    with pytest.raises(ZeroDivisionError), argand.report(tmp_path / "page.html"):
        1 / 0
    data = json.loads((tmp_path / "page.json").read_text())
    assert data["version"] == 1 and data["verdict"]["calls"] == 0
    assert "No compiled function was called" in (tmp_path / "page.html").read_text()


def test_the_page_is_one_file_and_every_link_has_its_place(tmp_path):
    with argand.report(tmp_path / "page.html"), torch.no_grad():
        compiled = argand.compile(program, **OWN)
        for _ in range(4):
            compiled(torch.randn(8, 8), torch.randn(8, 8))
    page = (tmp_path / "page.html").read_text()
    assert not re.search(r'(src|href)="(https?:|//|[a-z]+/)', page)
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    # by the script
    made = {
        f"text-{k}" for k in range(len(json.loads((tmp_path / "page.json").read_text())["texts"]))
    }
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids) | made


def test_what_a_program_writes_cannot_leave_its_place_in_the_page(tmp_path):
    def odd(x):
        return x * len("</script><script>alert(1)</script>")

    with argand.report(tmp_path / "page.html"), torch.no_grad():
        argand.compile(odd, **OWN)(torch.randn(4))
    page = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in page


def test_plans_add_up_their_times_only_when_they_are_measured():
    with events.collect() as heard, torch.no_grad():
        compiled = argand.compile(
            lambda x: torch.relu(x) + 1, options={"measure": False, "cache": False}
        )
        compiled(torch.randn(1000))
        (plan,) = [
            e.make()["plan"]
            for e in heard.events
            if isinstance(e, events.Record) and e.name == "plan"
        ]
        assert plan.spent() == (0, [0] * len(plan.spent()[1]))
        _native.measure_plans(True)
        try:
            compiled(torch.randn(1000))
        finally:
            _native.measure_plans(False)
        compiled(torch.randn(1000))
    calls, times = plan.spent()
    assert calls == 1 and sum(times) > 0


def test_a_watcher_gets_calls_as_they_are_written():
    seen = []

    def watcher(compiled, /, *args, **kwargs):
        seen.append((args, kwargs))
        return compiled(*args, **kwargs)

    compiled = argand.compile(lambda x, *, by=1: x * by, **OWN)
    _native.set_call_watcher(watcher)
    try:
        assert compiled(torch.ones(2), by=3).tolist() == [3.0, 3.0]
    finally:
        _native.set_call_watcher(None)
    assert len(seen) == 1 and seen[0][1] == {"by": 3}
    compiled(torch.ones(2), by=3)
    assert len(seen) == 1


def test_a_process_can_be_reported_from_outside(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, argand\nprint(argand.compile(torch.relu)(torch.ones(3)).sum().item())\n"
    )
    environment = os.environ | {"ARGAND_REPORT": str(tmp_path / "out")}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "3.0\n" and not done.stderr
    (page,) = (tmp_path / "out").glob("script-*.html")
    assert json.loads(page.with_suffix(".json").read_text())["verdict"]["calls"] == 1


def test_the_command_runs_a_program_with_its_arguments_and_gives_its_code(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, argand\n"
        "f = argand.compile(lambda x: x + int(sys.argv[1]))\n"
        "assert f(torch.ones(2)).tolist() == [6.0, 6.0]\n"
        "sys.exit(3)\n"
    )
    page = tmp_path / "page.html"
    command = [
        sys.executable,
        "-m",
        "argand",
        "report",
        "--json",
        "-o",
        str(page),
        str(script),
        "5",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["verdict"]["calls"] == 1 and page.is_file()
    assert json.loads(page.with_suffix(".json").read_text())["program"] == f"{script} 5"


@pytest.mark.parametrize("command", ["explain", "profile"])
def test_explain_and_profile_tell_as_text_and_as_json(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["argand"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, argand\n"
        "def program(x):\n    y = x.sin()\n    print(end='')\n    return y + 1\n"
        "f = argand.compile(program)\nf(torch.ones(64))\n"
    )
    assert main([command, str(script)]) == 0
    text = capsys.readouterr().out
    assert (
        "prints or logs" if command == "explain" else "kernel0_sin"
    ) in text and "script.py:" in text
    assert main([command, "--json", str(script)]) == 0
    assert json.loads(capsys.readouterr().out)["problems" if command == "explain" else "kernels"]


def test_reasons_of_misses_are_words_where_keys_are_hashes():
    parts = {"argand": "a" * 40, "graph": "b" * 40, "options": "fusion=True"}
    before = {"old": {"kind": "graph", "parts": parts}}
    said = {"kind": "graph", "parts": parts | {"argand": "c" * 40, "options": "fusion=False"}}
    text = reason("graph", said, before)
    assert text == (
        "another version of Argand wrote what is there; options: fusion=True -> fusion=False"
    )
