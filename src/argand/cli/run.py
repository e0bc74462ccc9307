"""cli.run: ``python -m argand SCRIPT.py [args]``: a program as it is, with Argand behind ``torch.compile``.

A program ends here as it would under ``python SCRIPT.py``: with its own exit code, its own message, its threads waited for,
and a traceback that begins in its own file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import runpy
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from argand.drop_in import install
from argand.report.ending import exit_code, show_error
from argand.support.errors import UserError


class Ended(NamedTuple):
    """How a program ended: its exit code, and the exception that ended it, if one did."""

    code: int = 0
    error: BaseException | None = None


def is_program(arguments: Sequence[str]) -> bool:
    """Whether a command line names a program to run, not a command of ours."""
    return bool(arguments) and (arguments[0] == "-m" or arguments[0].endswith(".py"))


def check_program(arguments: Sequence[str]) -> None:
    """Refuse a program that is not there, before anything is done for it."""
    if arguments[0] != "-m":
        if not Path(arguments[0]).is_file():
            raise UserError(f"there is no file {arguments[0]!r}")
        return
    if len(arguments) < 2:
        raise UserError("-m needs the name of a module")
    found = None
    with contextlib.suppress(ImportError, ValueError):
        sys.path.insert(0, "")
        found = importlib.util.find_spec(arguments[1])
    if found is None:
        raise UserError(f"there is no module {arguments[1]!r}")


def run_program(arguments: Sequence[str]) -> Ended:
    """Run a file or, after ``-m``, a module as the main program, to its end, however that comes."""
    check_program(arguments)
    install()
    before = frozenset(threading.enumerate())
    try:
        _run(arguments)
        _wait_for_threads(before)
    except BaseException as error:
        show_error(error)
        return Ended(exit_code(error), error)
    return Ended()


def _run(arguments: Sequence[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")


def _wait_for_threads(before: frozenset[threading.Thread]) -> None:
    """As Python does at the end of a program: what its threads do belongs to it.

    Those of a pool that nobody shut down are told first that no more work will come; else they would wait for it for ever.
    """
    begun = [thread for thread in threading.enumerate() if thread not in before]
    pools: Any = sys.modules.get("concurrent.futures.thread")
    if pools is not None and any(thread in pools._threads_queues for thread in begun):
        pools._python_exit()
    for thread in begun:
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
