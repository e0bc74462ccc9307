"""Every example runs, at small size, in a process of its own."""

import os
import pathlib
import subprocess
import sys

import nbclient
import nbformat
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples"
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, tmp_path):
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.examples.run", FOLDER / name, "--small"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout and "ArgandWarning" not in done.stderr


def test_notebook(tmp_path):
    notebook = nbformat.read(FOLDER / "tour.ipynb", as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    printed = "".join(out.get("text", "") for out in cells[-1].outputs)
    assert printed.count("in between") == 2
    assert any("torch.softmax" in out.get("text", "") for out in cells[1].outputs)


def test_every_example_is_in_the_list():
    text = (FOLDER / "README.md").read_text()
    for name in [*PROGRAMS, "tour.ipynb"]:
        assert f"[{name}]({name})" in text
