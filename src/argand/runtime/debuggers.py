"""runtime.debuggers: while a debugger follows a thread, compiled functions run in Python there.

In: what ``sys.settrace`` was given, or the name of who holds the debugger's number in ``sys.monitoring``, where there is one. Out:
whether it is a debugger's. pdb and its like set a trace function while they step or have breakpoints and take it away otherwise, so a
program that is only started under one is compiled; one that monitors is seen as long as it holds the number, for its breakpoints may be
in any function that a compiled one has taken in. ``breakpoint()`` in a compiled function needs nothing of this: it is a graph break, and
stops in the user's frame.
"""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Any, Final

# Modules of debuggers that do not build on bdb: PyCharm's and VS Code's.
_DEBUGGERS: Final = ("pydevd", "_pydevd", "debugpy")


def is_debugger(tracer: Any) -> bool:
    """Whether a trace function, or a name in ``sys.monitoring``, is a debugger's; the first time, a warning says what that means."""
    if isinstance(tracer, str):
        _tell()
        return True
    owner = getattr(tracer, "__self__", tracer)
    bdb = sys.modules.get("bdb")
    found = (bdb is not None and isinstance(owner, bdb.Bdb)) or _module(owner).startswith(
        _DEBUGGERS
    )
    if found:
        _tell()
    return found


def _module(owner: Any) -> str:
    return str(getattr(owner, "__module__", None) or type(owner).__module__)


@functools.cache
def _tell() -> None:
    warnings.warn(
        "argand: compiled functions run in Python while a debugger follows them",
        RuntimeWarning,
        stacklevel=2,
    )
