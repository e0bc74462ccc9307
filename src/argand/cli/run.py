"""cli.run: ``python -m argand SCRIPT.py [args]``: a program as it is, with Argand behind ``torch.compile``."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from argand.drop_in import install


def is_program(arguments: Sequence[str]) -> bool:
    """Whether a command line names a program to run, not a command of ours."""
    return bool(arguments) and (arguments[0] == "-m" or arguments[0].endswith(".py"))


def run_program(arguments: Sequence[str]) -> int:
    """Run a file or, after ``-m``, a module as the main program; its own errors and exits are its own."""
    install()
    if arguments[0] == "-m":
        if len(arguments) < 2:
            print("argand: -m needs the name of a module", file=sys.stderr)
            return 2
        sys.argv = list(arguments[1:])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    if not Path(arguments[0]).is_file():
        print(f"argand: there is no file {arguments[0]!r}", file=sys.stderr)
        return 2
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")
    return 0
