"""The comparison table and the command line."""

import textwrap

import torch
from torch import nn

from argand.cli.main import main
from argand.report.compare import compare
from argand.runtime.disk.store import DiskStore


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), (torch.randn(3, 8),)


def test_right_wrong_and_failing_backends():
    def wrong(gm, inputs):
        return lambda *args: tuple(out + 0.1 for out in gm(*args))

    model, inputs = make()
    table = compare(model, inputs, ["argand", "aot_eager", wrong, "onnxrt"], rounds=2)
    right = {row.backend: row.correct for row in table.rows}
    assert right == {
        "eager": True,
        "argand": True,
        "aot_eager": True,
        "wrong": False,
        "onnxrt": True,
    }
    assert "NO" in str(table) and str(table).count("yes") == 4


def test_compare_command(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import torch

            def make():
                return torch.nn.Linear(4, 4), (torch.randn(2, 4),)
            """
        )
    )
    assert main(["compare", f"{program}:make", "--backends", "eager,argand", "--rounds", "2"]) == 0
    assert "argand" in capsys.readouterr().out
    assert main(["compare", "nowhere.py:make"]) == 2
    assert "FILE.py:FUNCTION" in capsys.readouterr().err


def test_cache_command(tmp_path, capsys):
    DiskStore(tmp_path).put("ab" * 8, {"data": b"x" * 3000})
    place = ["--directory", str(tmp_path)]
    assert main(["cache", "ls", *place]) == 0
    assert "1 entries" in capsys.readouterr().out
    main(["cache", "gc", "--max-size", "1K", *place])
    assert "1 entries removed" in capsys.readouterr().out
    DiskStore(tmp_path).put("ab" * 8, {"data": b"x"})
    main(["cache", "clear", *place])
    assert "1 entries removed" in capsys.readouterr().out


def test_lists(capsys):
    main(["backends", "--all"])
    assert "aot_eager" in capsys.readouterr().out
    main(["logs"])
    assert "graph_breaks" in capsys.readouterr().out
