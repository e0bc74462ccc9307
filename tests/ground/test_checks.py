"""The checks of ``make test`` themselves: planted faults must be found."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import check_imports, check_sizes, check_versions, house, parts, replay

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "line",
    [
        "import torch._dynamo",
        "from torch._inductor import config",
        "from torch import compile",
        "import torch.fx.experimental.proxy_tensor as p",
        "torch.compiler.reset()",
        'importlib.import_module("torch._functorch.aot_autograd")',
        "def f():\n    import sympy",
        "import pickle",
    ],
)
def test_a_forbidden_use_is_found(tmp_path, line):
    path = tmp_path / "capture" / "planted.py"
    path.parent.mkdir()
    path.write_text(f"import torch\nimport importlib\n{line}\n")
    assert len(check_imports.violations(path, tmp_path)) >= 1


def test_the_rooms_that_may(tmp_path):
    for place, line in (
        ("backends/bridges", "import torch._dynamo"),
        ("native", "import llvmlite"),
    ):
        path = tmp_path / place / "allowed.py"
        path.parent.mkdir(parents=True)
        path.write_text(line)
        assert not check_imports.violations(path, tmp_path)
    path = tmp_path / "ops.py"
    path.write_text("import llvmlite\nimport torch.fx\ntorch.compiled = 1\n")
    assert len(check_imports.violations(path, tmp_path)) == 1


def test_the_sources_keep_the_rules():
    found = [v for p in check_imports.SOURCE.rglob("*.py") for v in check_imports.violations(p)]
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "import dis",
        "from opcode import opmap",
        "sys.version_info >= (3, 12)",
        'name == "LOAD_FAST"',
        "x = 1  # since 3.12",
        "#if PY_VERSION_HEX > 0x030C0000",
    ],
)
def test_a_named_version_or_opcode_is_found(tmp_path, line):
    path = tmp_path / "runtime" / ("planted.c" if line.startswith("#") else "planted.py")
    path.parent.mkdir()
    path.write_text(line + "\n")
    names = check_versions.opcodes()
    assert check_versions.violations(path, names, tmp_path)
    allowed = tmp_path / "bytecode" / path.name
    allowed.parent.mkdir()
    allowed.write_text(line + "\n")
    assert not check_versions.violations(allowed, names, tmp_path)
    path.write_text("pi, name = 3.14159, 'STORE_GLOBALLY'\n")
    assert not check_versions.violations(path, names, tmp_path)


def test_no_version_and_no_opcode_is_named_outside_of_its_room():
    assert check_versions.main() == 0


def test_an_upward_import_breaks_the_layers(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]

    def run():
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    assert run().returncode == 0
    (tmp_path / "src/argand/support/planted.py").write_text("import argand.ops\n")
    done = run()
    assert done.returncode == 1
    assert "argand.support is not allowed to import argand.ops" in done.stdout
    (tmp_path / "src/argand/support/planted.py").unlink()
    (tmp_path / "src/argand/capture/outside/planted.py").write_text(
        "import argand.capture.write.rebuild\n"
    )
    assert "argand.capture.outside is not allowed to import argand.capture.write" in run().stdout
    (tmp_path / "src/argand/capture/outside/planted.py").unlink()
    (tmp_path / "src/argand/drawer.py").write_text('"""A room nobody declared."""\n')
    assert run().returncode == 1


def test_sizes_measures_functions(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("def f():\n    a = 1\n    return a\n")
    assert check_sizes.function_lengths(path) == [(3, "x.py:f")]


def test_sizes_count_statements_not_lines(tmp_path):
    """Neither comments nor line breaks make a file larger: nobody gains by removing them."""
    short, long = tmp_path / "short.py", tmp_path / "long.py"
    short.write_text("def f(a, b): return [a, b]\n")
    long.write_text(
        "# why\ndef f(\n    a,\n    b,\n):\n\n    return [\n        a,\n        b,\n    ]\n"
    )
    assert check_sizes.statements(short) == check_sizes.statements(long) == 2
    code = tmp_path / "x.c"
    code.write_text("// a;\nint f(void) { /* ; */ return 1; }\n")
    assert check_sizes.statements(code) == 2


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x = 1\n" * (check_sizes.MAX_FILE + 1), "room/x.py: "),
        ("def f():\n" + "    x = 1\n" * check_sizes.MAX_FUNCTION, "x.py:f: "),
        ("x = 1\n" * check_sizes.MAX_FILE, ""),
    ],
)
def test_sizes_refuse_long_files_and_functions(tmp_path, capsys, text, fault):
    (tmp_path / "room").mkdir()
    (tmp_path / "room/x.py").write_text(text)
    (tmp_path / "room/y.py").write_text("def f():\n    pass\n")
    assert check_sizes.main(tmp_path) == bool(fault)
    assert fault in capsys.readouterr().out


def test_replay_tells_a_change_of_one_stage(tmp_path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "mlp.ir.txt").write_text("%0 = input\n")
    assert replay.compare(old, new) == 0
    (new / "mlp.ir.txt").write_text("%0 = constant\n")
    assert replay.compare(old, new) == 1
    assert "mlp.ir.txt" in capsys.readouterr().out
    assert replay.normalized("<f at 0x7f6c7a2fba70> Const(93931100666192,) 0x3FF0000000000000") == (
        "<f at ...> Const(...,) 0x3FF0000000000000\n"
    )


@functools.cache
def _own_modules():
    return house.modules_of(ROOT)


def test_one_name_one_meaning(tmp_path):
    assert house.doubled_classes(_own_modules()) == {}
    for room, text in (
        ("ops", "class Shape: ..."),
        ("sizes", "Shape = tuple[int, ...]"),
        ("native", "SHAPE: int = 1"),
    ):
        path = tmp_path / "src" / "argand" / room / "planted.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert house.doubled_classes(house.modules_of(tmp_path)) == {
        "Shape": ["argand.ops.planted", "argand.sizes.planted"]
    }


def test_no_handler_takes_more_of_the_tracer_than_it_uses(tmp_path):
    assert parts.excesses(_own_modules()) == []
    capture = tmp_path / "src" / "argand" / "capture"
    for name in ("outside/state.py", "objects/parts.py", "objects/tracer.py", "objects/methods.py"):
        (capture / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "src" / "argand" / "capture" / name, capture / name)
    planted = capture / "planted.py"
    planted.write_text(
        "from argand.capture.objects import methods\n"
        "def looks(tracer: Tracer): return methods.lookup(tracer, int, 'real')\n"
        "def records(tracer: Tracer): return looks(tracer), tracer.recorder\n"
        "def calls(tracer: Tracer): return looks(tracer), tracer.call(len, (), {})\n"
        "def unknown(tracer: Tracer, rule): return rule(tracer)\n"
    )
    found = parts.excesses(house.modules_of(tmp_path))
    assert [(e.name.rpartition(".")[2], e.uses) for e in found] == [
        ("looks", "Outside"),
        ("records", "GraphState"),
        ("calls", "Caller"),
    ]
