"""A user of torch.compile finds the counterpart of everything that torch has for it: the lists are torch's own."""

import fnmatch
import inspect
import pathlib
import re

import pytest
import torch

import argand
from argand.support.options import MODES, Environment, Options

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHOLE = (ROOT / "docs" / "guides" / "torch-compile.md").read_text()
PAGE = re.sub(r"(?ms)^```.*?^```$", "", WHOLE)
TORCH = pathlib.Path(torch.__file__).parent
SETTINGS = ("_dynamo/config.py", "_inductor/config.py", "_functorch/config.py", "_logging/_internal.py", "compiler/config.py")  # fmt: skip
VARIABLE = re.compile(r"""environ(?:\.get\(|\[)\s*["'](\w+)["']|getenv\(\s*["'](\w+)["']|["']((?:TORCH|PYTORCH)_?[A-Z_0-9]{4,})["']""")  # fmt: skip


def words():
    """What stands in backquotes on the page."""
    return {
        word for text in re.findall(r"`([^`\n]+)`", PAGE) for word in re.findall(r"[\w.*]+", text)
    }


def variables():
    """The environment variables that torch's settings of its compiler read."""
    texts = [(TORCH / name).read_text() for name in SETTINGS if (TORCH / name).exists()]
    found = {"".join(groups) for text in texts for groups in VARIABLE.findall(text)}
    return sorted(name for name in found if name.startswith(("TORCH", "PYTORCH")))


@pytest.mark.parametrize("name", [*inspect.signature(torch.compile).parameters])
def test_every_argument_of_torch_compile(name):
    assert name in words()


@pytest.mark.parametrize("name", torch.compiler.__all__)
def test_every_function_of_torch_compiler(name):
    assert f"torch.compiler.{name}" in words()


def test_every_environment_variable():
    named = {word for word in words() if word.startswith(("TORCH", "PYTORCH"))}
    assert len(variables()) > 50
    missing = [
        name for name in variables() if not any(fnmatch.fnmatch(name, each) for each in named)
    ]
    assert missing == []


def test_what_is_named_of_ours_is_there():
    for name in {word.removeprefix("argand.") for word in words() if word.startswith("argand.")}:
        assert hasattr(argand, name.partition(".")[0]), name
    ours = {name for name in words() if name.startswith("ARGAND_")}
    environment = inspect.getsource(Environment)
    assert ours and all(name in environment for name in ours)
    options = set(re.findall(r'options=\{"(\w+)"', PAGE)) | set(
        re.findall(r"ARGAND_OPTIONS=(\w+)=", PAGE)
    )
    assert options and options <= set(Options.__dataclass_fields__)
    assert set(re.findall(r'mode="([\w-]+)"', PAGE)) <= set(MODES)
