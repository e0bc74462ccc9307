"""On an interpreter that Argand does not run on: `import argand` works, and `argand.compile` says one clear thing."""

import os
import subprocess
import sys

import pytest

# No extension can be there: it is built for the versions we know only.
HIDDEN = """
import sys, warnings
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "argand.runtime._native":
            raise ImportError("no module named argand.runtime._native", name=name)
sys.meta_path.insert(0, Hide())
import torch
"""
OLD = HIDDEN + "sys.version_info = (3, 10, 4)\n"
NEW = HIDDEN + "sys.version_info = (3, 15, 0)\n"
PYPY = (
    HIDDEN
    + "import types; sys.implementation = types.SimpleNamespace(**{**vars(sys.implementation), 'name': 'pypy'})\n"
)


def run(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("world", "says"),
    [(OLD, "CPython 3.10"), (NEW, "CPython 3.15"), (PYPY, "pypy"), (HIDDEN, "C extension")],
    ids=["old", "new", "pypy", "no_extension"],
)
def test_one_clear_error(world, says):
    program = world + (
        "import argand\n"
        "try:\n    argand.compile(lambda x: x)\n"
        "except argand.UnsupportedPython as error:\n    print(error)\n"
        "try:\n    argand.explain\n"
        "except argand.ArgandError as error:\n    print(error)\n"
        "f = lambda x: x\n"
        "assert argand.compile(f, disable=True) is f\n"
    )
    code, out, err = run(program)
    assert code == 0, err
    assert says in out.splitlines()[0]
    if world is not HIDDEN:
        assert "CPython 3.11, CPython 3.12, CPython 3.13" in out.splitlines()[0]
    assert out.splitlines()[0] in "\n".join(out.splitlines()[1:])


def test_functions_run_uncompiled_with_one_warning():
    program = NEW + (
        "import argand\n"
        "@argand.disable\ndef g(x):\n    return x\n"
        "@argand.compile\ndef f(x):\n    argand.graph_break()\n    return g(x), argand.is_compiling()\n"
        "@argand.compile(fullgraph=True)\ndef h(x):\n    return x\n"
        "print(f(1), h(2))\n"
    )
    code, out, err = run(program, ARGAND_UNSUPPORTED="eager")
    assert (code, out) == (0, "(1, False) 2\n"), err
    assert err.count("RuntimeWarning") == 1
    assert "CPython 3.15" in err


def test_other_errors_of_loading_stay_what_they_are():
    program = (
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'llvmlite':\n"
        "            raise ModuleNotFoundError('No module named llvmlite', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "import argand\n"
        "try:\n    argand.compile_fx\n"
        "except ImportError as error:\n    print(error)\n"
    )
    code, out, err = run(program)
    assert (code, out) == (0, "No module named llvmlite\n"), err
