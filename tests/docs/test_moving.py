"""Moving a script: the differences on the page call what there is, and a script of that kind gives the same before and after."""

import ast
import inspect
import pathlib
import re
import subprocess
import sys

import argand

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guides" / "moving.md"
SCRIPT = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--torchcompile", nargs="?", default=None, const="inductor")
parser.add_argument("--torchcompile-mode", default=None)
args = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
if args.torchcompile:
    torch._dynamo.reset()
    model = torch.compile(model, backend=args.torchcompile, mode=args.torchcompile_mode)
model.eval()
with torch.inference_mode():
    images = torch.randn(20, 8)
    print([round(model(batch).sum().item(), 3) for batch in images.split(8)])
"""
CHANGES = {
    "import torch\n": "import argand\nimport torch\n",
    "torch._dynamo.reset()": "argand.reset()",
    "torch.compile(model, backend=args.torchcompile,": "argand.compile(model,",
}


def added():
    """The lines that the page adds to the scripts."""
    blocks = re.findall(r"(?ms)^```diff\n(.*?)^```", PAGE.read_text())
    assert len(blocks) == 3
    return [line[1:].strip() for block in blocks for line in block.splitlines() if line[0] == "+"]


def test_what_the_differences_call_is_there():
    calls = [
        node
        for line in added()
        for node in ast.walk(ast.parse(line))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("argand.")
    ]
    assert len(calls) >= 4
    for call in calls:
        signature = inspect.signature(getattr(argand, call.func.attr))
        signature.bind(*call.args, **{keyword.arg: None for keyword in call.keywords})


def run(folder, name, text, *command):
    (folder / name).write_text(text)
    words = [sys.executable, *command, name]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_script_gives_the_same_before_and_after(tmp_path):
    moved = SCRIPT
    for old, new in CHANGES.items():
        assert old in moved
        moved = moved.replace(old, new)
    moved = moved.replace(
        "args = parser.parse_args()", 'args = parser.parse_args(["--torchcompile"])'
    )
    untouched = SCRIPT.replace("parse_args()", 'parse_args(["--torchcompile"])')
    eager = run(tmp_path, "eager.py", SCRIPT)
    assert run(tmp_path, "untouched.py", untouched, "-m", "argand") == eager
    assert run(tmp_path, "moved.py", moved) == eager
