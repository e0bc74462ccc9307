"""Programs run by commands: how they end, what is said of those that cannot run, and what is on a command line."""

import json
import os
import subprocess
import sys
import threading

import pytest
import torch

from argand.cli.main import main
from argand.report.turns import COMPILED, EAGER, EagerTurns, compared, signature

WORKS = """
import sys, threading, time, torch, argand
compiled = argand.compile(lambda x: torch.softmax(x, -1) + 1, options={"measure": False})
for k in range(8):
    compiled(torch.ones(4, 4))
print("ran", __name__, sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))

    def write(end="", name="a folder/my program.py"):
        (tmp_path / name).write_text(WORKS + end)
        return name

    return write


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no data')", 1, "no data\n"),
        ("raise SystemExit", 0, ""),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("raise ValueError('ran out')", 1, "ValueError: ran out"),
    ],
    ids=["ends", "exits", "exits_with_a_text", "exits_well", "interrupted", "raises"],
)
def test_a_program_ends_under_a_command_as_without(end, code, said, script, capsys):
    assert main(["explain", script(end), "--epochs", "1"]) == code
    out, err = capsys.readouterr()
    assert "ran __main__ ['--epochs', '1']" in out and "torch.softmax" not in err
    assert said in err and "cli/run.py" not in err and "runpy" not in err
    if said.startswith("ValueError"):
        assert err.splitlines()[1].strip().startswith('File "a folder/my program.py", line')


def test_the_page_says_how_the_program_ended(script, tmp_path, capsys):
    page = tmp_path / "out" / "page.html"
    assert main(["report", "--output", str(page), script("raise ValueError('ran out')")]) == 1
    ended = json.loads(page.with_suffix(".json").read_text())["ended"]
    assert ended["raised"] == "ValueError: ran out" and ended["where"]["line"] == 7
    assert "The program raised ValueError: ran out" in page.read_text()
    assert "ValueError: ran out" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "explain", "profile", "verify", "bisect"])
def test_programs_that_are_not_there_are_refused_before_anything_is_done(
    command, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for words in (["missing.py"], ["-m", "no_such.module"], ["-m"], []):
        assert main([command, *words]) == 2
        assert capsys.readouterr().err.startswith("argand: ")
    assert not list(tmp_path.iterdir())


def test_a_module_is_run_with_its_arguments(script, capsys):
    script(name="a_module_to_run.py")
    assert main(["explain", "--json", "-m", "a_module_to_run", "--json", "-m"]) == 0
    said, _, data = capsys.readouterr().out.partition("\n")
    assert said == "ran __main__ ['--json', '-m']" and json.loads(data)["graphs"]


def test_threads_of_a_program_belong_to_it(script, capsys):
    end = "threading.Thread(target=lambda: (time.sleep(0.3), compiled(torch.ones(7)))).start()"
    assert main(["explain", "--json", script(end)]) == 0
    data = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert sum(graph["hits"] for graph in data["graphs"]) == 9


@pytest.mark.parametrize("command", ["explain", "profile", "verify", "bisect"])
def test_a_program_without_a_compile_is_told_so(command, tmp_path, monkeypatch):
    (tmp_path / "plain.py").write_text("print('nothing')\n")
    monkeypatch.chdir(tmp_path)
    assert "nothing was compiled" in _alone(command, "plain.py").stdout


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("raise ValueError('ran out')", 1, "in eager as well: ValueError: ran out"),
        ("sys.exit(3)", 3, "in eager as well: exit code 3"),
    ],
)
def test_verify_tells_the_programs_own_end_from_a_difference(end, code, said, script):
    ended = _alone("verify", script(end))
    assert ended.returncode == code
    assert "all are equal" in ended.stdout and said in ended.stdout and "bisect" not in ended.stdout


def _alone(*words):
    """A command in a process of its own: those that fork must not have started threads."""
    command = [sys.executable, "-m", "argand", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("def make(x): return x\n", 2, "without arguments"),
        ("def make(): return 1\n", 2, "not (model, inputs)"),
        ("def made(): return 1\n", 2, "did you mean 'made'"),
        ("def make(:\n", 1, "SyntaxError"),
        ("import no_such_module_at_all\n", 1, "ModuleNotFoundError"),
    ],
)
def test_a_wrong_function_to_bench_is_told_with_a_hint(text, code, said, tmp_path, capsys):
    path = tmp_path / "wrong_to_bench.py"
    path.write_text(text)
    try:
        ended = main(["bench", "--no-rival", f"{path}:make"])
    except SystemExit as leaving:
        ended = leaving.code
    err = capsys.readouterr().err
    assert ended == code and said in err and "cli/factory.py" not in err


def test_a_reader_may_leave_early(tmp_path):
    command = [sys.executable, "-m", "argand", "logs"]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_without_words_the_help_is_printed(capsys):
    assert main([]) == 2 and "argand: error" not in capsys.readouterr().err


def test_every_command_has_a_description_and_those_that_run_programs_examples(capsys):
    for command in (
        "report",
        "explain",
        "profile",
        "verify",
        "bisect",
        "bench",
        "compare",
        "cache",
    ):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        out = capsys.readouterr().out
        assert f"argand {command}: " in out and f"  argand {command} " in out


# --- whose turn it is, and what is compared ---------------------------------------------------


def play(sizes):
    turns, kinds = EagerTurns(), []
    for size in sizes:
        kind = EAGER if turns.is_eager(size) else COMPILED
        turns.took(kind, size)
        kinds.append(kind[0])
    return "".join(kinds)


def test_eager_has_its_turns_for_every_size():
    assert play([1] * 10) == "cecceccecc"
    mixed = play([1, 2] * 6)
    assert mixed[::2] == mixed[1::2] == "ceccec"
    assert play(range(20)).count("e") == 2  # sizes that never come again


def test_calls_of_different_sizes_are_not_compared_with_each_other():
    small, large = 1e-3, 1.0
    calls = [(COMPILED, 0, 9.0), (EAGER, 0, 9.0)]  # these warm up
    calls += [(COMPILED, "small", small)] * 5 + [(EAGER, "large", 2 * large)] * 2
    assert compared(calls) is None
    calls += [(COMPILED, "large", large), (EAGER, "small", 2 * small)]
    found = compared(calls)
    assert found.alike and found.eager == pytest.approx(2 * found.compiled)


def test_one_call_of_each_kind_is_too_few():
    assert compared([(COMPILED, 0, 1.0), (EAGER, 0, 1.0), (COMPILED, 0, 1.0)]) is None


def test_numbers_that_count_steps_are_not_sizes():
    x = torch.ones(2, 3)
    assert signature((x, 1, [x])) == signature((x + 1, 2, [x])) != signature((x.T, 1, [x]))


def test_a_number_that_varies_in_a_helper_is_told_by_its_name(tmp_path, capsys):
    path = tmp_path / "helped.py"
    path.write_text(
        """
import torch, argand

def helper(x, scale):
    print(end="")
    return x * scale

@argand.compile(options={"measure": False}, dynamic=False)
def step(x, scale):
    return helper(x.sin(), scale * 2) + 1

for k in range(3):
    step(torch.ones(4), float(k))
"""
    )
    assert main(["explain", "--json", str(path)]) == 0
    problems = json.loads(capsys.readouterr().out)["problems"]
    (cause,) = [problem for problem in problems if problem["kind"] == "recompile"]
    assert "`scale` was 0.0, then 1.0, 2.0" in cause["title"]
    (effect,) = cause["effects"]
    assert "`scale in helper` was 0.0, then 2.0, 4.0" in effect["title"]
    assert "___" not in cause["title"] + effect["title"]


def test_threads_of_others_are_not_waited_for(script, capsys):
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        assert main(["explain", script()]) == 0
    finally:
        ended.set()
        other.join()
    assert "ran __main__" in capsys.readouterr().out


def test_a_pool_that_nobody_shut_down_ends_with_the_program(script, tmp_path):
    end = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1)\n"
        "pool.submit(lambda: (time.sleep(0.2), print('worked')))\n"
    )
    command = [sys.executable, "-m", "argand", "explain", script(end)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "worked" in done.stdout, done.stderr
