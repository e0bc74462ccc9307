"""Commands: bench, JSON of all of them, completion, exit codes."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from argand.cli import main as command_line
from argand.cli.completion import SHELLS, commands_of, script
from argand.cli.main import main
from argand.cli.tables import write_json

MODEL = """
import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()), (torch.randn(4, 8),)
"""


@pytest.fixture
def factory(tmp_path: Path) -> str:
    path = tmp_path / "model_to_bench.py"
    path.write_text(MODEL)
    return f"{path}:make"


@pytest.mark.parametrize("train", [[], ["--train"]])
def test_bench_times_contenders_with_their_spread(factory, train, capsys):
    assert main(["bench", "--no-rival", "--rounds", "4", "--json", *train, factory]) == 0
    eager, ours = json.loads(capsys.readouterr().out)["rows"]
    assert (eager["name"], ours["name"]) == ("eager", "argand") and eager["speedup"] == 1
    assert 0 < ours["best"] <= ours["low"] <= ours["median"] <= ours["high"] < ours["first"] + 60


def test_bench_prints_a_table(factory, capsys):
    assert main(["bench", "--no-rival", "--rounds", "2", factory]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["first", "call"] and [row.split()[0] for row in rows] == [
        "eager",
        "argand",
    ]


def test_a_contender_that_fails_is_a_row_and_an_exit_code(tmp_path, capsys):
    path = tmp_path / "broken_to_bench.py"
    path.write_text("def make():\n    return (lambda x: 1 / 0), (1,)\n")
    assert main(["bench", "--no-rival", "--json", f"{path}:make"]) == 1
    assert json.loads(capsys.readouterr().out)["rows"][0]["problem"].startswith("ZeroDivisionError")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["backends"], lambda data: "argand" in data),
        (["logs"], lambda data: "guards" in data),
        (["cache", "dir"], lambda data: "directory" in data),
        (["cache", "ls"], lambda data: isinstance(data, list)),
        (["cache", "gc"], lambda data: data == {"removed": 0}),
    ],
    ids=["backends", "logs", "cache_dir", "cache_ls", "cache_gc"],
)
def test_every_listing_speaks_json(words, found, capsys, tmp_path):
    more = ["--directory", str(tmp_path)] if words[0] == "cache" else []
    assert main([*words, *more, "--json"]) == 0
    assert found(json.loads(capsys.readouterr().out))


def test_compare_speaks_json(factory, capsys):
    assert main(["compare", "--json", "--backends", "eager", "--rounds", "2", factory]) == 0
    assert all(row["correct"] for row in json.loads(capsys.readouterr().out)["rows"])


def test_numbers_that_json_has_not_are_null(capsys):
    write_json({"a": [float("nan"), 1.5], "b": (float("inf"),)})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": [None]}


def test_all_commands_speak_json_and_are_completed():
    commands = {command.name: command for command in commands_of(command_line._parser())}
    silent = [name for name, command in commands.items() if "--json" not in dict(command.flags)]
    assert silent == ["completion"]
    for shell in SHELLS:
        text = script(command_line._parser(), shell)
        assert all(name in text for name in commands) and "no-compare" in text and "clear" in text


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_one_of_its_shell(shell: str, capsys, tmp_path):
    assert main(["completion", shell]) == 0
    path = tmp_path / "completion"
    path.write_text(capsys.readouterr().out)
    if shutil.which(shell):
        assert subprocess.run([shell, "-n", str(path)], check=False).returncode == 0


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("argand ver", "verify"),
        ("argand cache cl", "clear"),
        ("argand report --no", "--no-compare"),
        ("argand report my", "my program.py"),
    ],
)
def test_bash_completes(line: str, offered: str, capsys, tmp_path):
    main(["completion", "bash"])
    (tmp_path / "my program.py").touch()
    words = line.split()
    ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _argand; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    ended = subprocess.run(
        ["bash", "-c", capsys.readouterr().out + ask],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert ended.stdout.splitlines() == [offered]


def test_a_wrong_call_ends_with_two(capsys):
    assert main(["bench", "nothing.py:f"]) == 2 and "FILE.py:FUNCTION" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(["nothing"])
    assert left.value.code == 2
