"""Names of kernels for perf and gdb."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from argand.native.codegen import elf, perf

PROGRAM = """
import os, torch, argand
from argand.native.codegen.perf import map_file
def program(x):
    return torch.softmax(x, -1).exp()
argand.compile(program, options={"cache": False})(torch.randn(4, 8))
print(map_file().read_text() if map_file().exists() else "nothing")
if map_file().exists():
    map_file().unlink()
"""


def _run(folder: Path, **environment: str) -> str:
    script = folder / "named.py"
    script.write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_map_has_address_size_name_and_line(tmp_path):
    address, size, name, line = _run(tmp_path, ARGAND_PERF="1").split()
    assert int(address, 16) > 4096 and int(size, 16) > 64
    assert name.startswith("argand:kernel0_") and line == "named.py:5"


DEBUGGED = """
import torch, argand, os, signal
def program(x):
    return torch.softmax(x, -1).exp()
compiled = argand.compile(program, options={"cache": False, "measure": False})
compiled(torch.randn(4, 8))
os.kill(os.getpid(), signal.SIGTRAP)
compiled(torch.randn(4, 8))
"""
ASKED = (
    "run",
    "info functions ^argand\\.kernel",
    "rbreak ^argand\\.kernel",
    "signal 0",
    "backtrace 1",
)


def test_the_symbol_file_for_gdb_has_names_and_places():
    functions = (
        perf.PlacedFunction(0x5000, 64, "argand:one a.py:1"),
        perf.PlacedFunction(0x5080, 32, "argand:two"),
    )
    assert elf.function_sizes(perf.symbol_file(functions)) == {
        "argand:one a.py:1": 64,
        "argand:two": 32,
    }


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb_stops_in_a_kernel_by_its_name_and_line(tmp_path):
    script = tmp_path / "debugged.py"
    script.write_text(DEBUGGED)
    orders = [word for order in ASKED for word in ("-ex", order)]
    command = ["gdb", "-q", "-batch", "-nx", *orders, "--args", sys.executable, str(script)]
    environment = os.environ | {"ARGAND_GDB": "1", "OMP_NUM_THREADS": "1"}
    shown = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300
    ).stdout
    assert re.search(r"^0x\w+ +argand\.kernel0_\w+\.debugged\.py_4$", shown, re.MULTILINE)
    assert re.search(r"^#0 .* in argand\.kernel0_\w+\.debugged\.py_4", shown, re.MULTILINE)


def test_without_the_wish_there_is_no_file(tmp_path):
    assert _run(tmp_path).strip() == "nothing"
