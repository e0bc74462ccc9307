"""Names of kernels for perf."""

import subprocess
import sys
from pathlib import Path

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
    import os

    script = folder / "named.py"
    script.write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, str(script)], env=os.environ | environment, capture_output=True, text=True, check=True
    ).stdout


def test_the_map_has_address_size_name_and_line(tmp_path):
    address, size, name, line = _run(tmp_path, ARGAND_PERF="1").split()
    assert int(address, 16) > 4096 and int(size, 16) > 64
    assert name.startswith("argand:kernel0_") and line == "named.py:5"


def test_without_the_wish_there_is_no_file(tmp_path):
    assert _run(tmp_path).strip() == "nothing"
