"""ARGAND_LOGS: names and signs as in TORCH_LOGS."""

import logging
import os
import subprocess
import sys

import pytest
import torch

import argand
from argand.backends import trial
from argand.support import events, logs
from argand.support.errors import OptionError


@pytest.fixture
def lines():
    """What the logger wrote; all printers are removed afterwards."""
    written = []

    class Keeper(logging.Handler):
        def emit(self, record):
            written.append(record.getMessage())

    keeper, before, level = Keeper(), logs.logger.handlers[:], logs.logger.level
    logs.logger.handlers[:] = [keeper]
    logs.logger.setLevel(logging.INFO)
    yield written
    events.unsubscribe_all(logs.Printer)
    logs.logger.handlers[:] = before
    logs.logger.setLevel(level)


def test_names_and_signs():
    assert logs.parse("graph_breaks, recompiles") == ({"graph_breaks", "recompiles"}, set())
    assert logs.parse("+guards") == ({"guards"}, {"guards"})
    assert logs.parse("+all,-bytecode")[0] == set(logs.ARTIFACTS) - {"bytecode"}
    assert logs.parse("") == (set(), set())
    assert logs.parse("guards,-guards") == (set(), set())


def test_the_names_users_of_the_peer_know_are_there():
    known = "graph_breaks,recompiles,guards,bytecode,graph_code,aot_graphs,output_code,+all"
    assert logs.parse(known)[0] == set(logs.ARTIFACTS)
    assert set(logs.ROOMS) == set(logs.ARTIFACTS)


def test_unknown_name_raises_with_the_list():
    with pytest.raises(OptionError, match="unknown log 'gaurds'") as caught:
        logs.parse("gaurds")
    assert "did you mean 'guards'?" in str(caught.value)
    for name in logs.ARTIFACTS:
        assert name in str(caught.value)


def test_only_what_was_asked_for_is_printed(lines):
    logs.set_logs("guards")
    events.artifact("guards", lambda: "x is a float", "f")
    events.artifact("bytecode", lambda: pytest.fail("rendered although hidden"))
    events.count("capture.graphs")
    with events.stage("capture"):
        pass
    assert lines == ["[guards] f\nx is a float"]


def test_plus_adds_the_times_and_counters_of_the_room(lines):
    logs.set_logs("+guards")
    with events.stage("capture.trace"):
        events.count("capture.graphs", 2)
    with events.stage("native.fuse"):
        pass
    assert len(lines) == 2
    assert lines[0].startswith("[counter] capture.graphs +2")
    assert lines[1].startswith("[stages] capture.trace")


def test_stages_prints_every_time(lines):
    logs.set_logs("stages")
    with events.stage("native.fuse"):
        pass
    assert lines[0].startswith("[stages] native.fuse") and lines[0].endswith("ms")


def test_a_new_setting_replaces_the_old_one(lines):
    logs.set_logs("guards")
    logs.set_logs("bytecode")
    events.artifact("guards", lambda: "old")
    events.artifact("bytecode", lambda: "new")
    assert lines == ["[bytecode]\nnew"]
    logs.set_logs("")
    assert not events._subscriptions


def test_the_environment_variable_reaches_the_error_stream():
    program = (
        "from argand.support import events, logs; logs.start_from_environment();"
        "events.artifact('guards', lambda: 'x is a float')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"ARGAND_LOGS": "guards"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "[guards]\nx is a float\n"


def test_a_folder_gets_the_text_of_every_stage(tmp_path):
    program = (
        "import torch, argand\n"
        f"run = argand.compile(lambda x: torch.softmax(x, -1) * 2, options={{'debug_dir': {str(tmp_path)!r}}})\n"
        "run(torch.ones(4, 32))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    names = [path.name for path in sorted(tmp_path.iterdir())]
    for stage in (
        "guards",
        "graph_code",
        "aot_graphs",
        "ir_lowered",
        "fusion",
        "schedule",
        "output_code",
    ):
        assert any(stage in name for name in names), (stage, names)


def shows_everything(x, seen):
    """A graph break, an effect, a product, gradients, and sizes that change."""
    seen.append(1)
    y = x * 2
    print("hi", file=sys.stderr)
    return y + len(seen)


@pytest.mark.parametrize("name", logs.ARTIFACTS)
def test_every_name_has_something_to_tell(name, tmp_path, lines, capsys):
    logs.set_logs(name)
    argand.reset()
    options = {"cache_dir": str(tmp_path)} if name == "cache" else {"cache": False}
    options |= {"verify": "report"} if name == "differences" else {}
    compiled = argand.compile(shows_everything, options=options)
    for size in (3, 4):
        compiled(torch.ones(size, requires_grad=True), []).sum().backward()
    assert any(name in line for line in lines)


def test_differences_say_why_there_are_none(lines):
    logs.set_logs("differences")
    argand.compile(torch.sin, options={"cache": False})
    assert any("verify" in line for line in lines)


def test_a_trace_shows_the_lines_of_the_user(lines, capsys):
    logs.set_logs("trace_source,trace_bytecode,graph,side_effects")
    argand.compile(shows_everything, backend="eager")(torch.ones(3), [])
    text = "\n".join(lines)
    assert "    y = x * 2" in text and "BINARY_OP" in text.upper()
    assert "list.__setitem__" in text.partition("[side_effects]")[2]
    assert ["call_function", "mul", "mul"] in [
        line.split()[:3] for line in text.partition("[graph]")[2].split("\n")
    ]


def test_the_verdict_of_a_trial_is_told():
    told = trial._Trial(lambda: 1, lambda: 2, lambda: None)
    told._seconds = {True: [0.001] * trial.SURE, False: [0.01] * trial.SURE}
    with events.collect() as heard:
        told._choose()
    (text,) = heard.texts("perf_hints")
    assert "eager is used" in text and "10.000 ms compiled, 1.000 ms in eager" in text
