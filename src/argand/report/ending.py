"""report.ending: how a program that we ran ended, told as Python tells it: its exit code, and a traceback that begins in it.

In: the exception that came out of the program. Standard library only.
"""

from __future__ import annotations

import runpy
import sys
import traceback
import types
from pathlib import Path
from typing import Final

INTERRUPTED: Final = 130  # the exit code of a program that was stopped from the keyboard
_OURS: Final = f"{Path(__file__).parent.parent}/"
_BELOW: Final = (_OURS, runpy.__file__, "<frozen ")  # frames of these stand below a program's own


def show_error(error: BaseException) -> None:
    """Print what Python prints when a program ends so: a traceback from its first frame on, or the text of ``sys.exit(text)``."""
    if not isinstance(error, SystemExit):
        trace = _users_part(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    elif not isinstance(error.code, int | None):
        sys.stderr.write(f"{error.code}\n")


def _users_part(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_BELOW):
        trace = trace.tb_next
    return trace


def exit_code(error: BaseException) -> int:
    """The code Python ends with."""
    if not isinstance(error, SystemExit):
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    return 1


def place_of(error: BaseException) -> tuple[str, int, str] | None:
    """File, line and function of the program's innermost frame; of a syntax error the line it is in."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0, ""
    frames = traceback.extract_tb(_users_part(error.__traceback__))
    own = [frame for frame in frames if not frame.filename.startswith((_OURS, "<"))]
    return (own[-1].filename, own[-1].lineno or 0, own[-1].name) if own else None


def words_of(error: BaseException) -> str:
    """The exception in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
