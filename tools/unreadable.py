"""tools.unreadable: run something with fakes that cannot be read, and name what read one.

``python -m tools.unreadable -m pytest -q tests/capture``: a child process runs it with ``verify`` on. When C++ reads
the memory of a fake behind the dispatcher's back the child dies of it; the last function it called on fakes, which it
leaves in shared memory, is the culprit, and is printed. Other processes that a test starts are not watched.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import runpy
import signal
import sys
from typing import Any

from argand.capture.outside import real
from argand.ops import fakes

_ROOM = 4096


def _watch(page: mmap.mmap) -> None:
    """Leave the name of each function that is called on fakes in a page."""

    def note(text: str) -> None:
        data = text.encode()[: _ROOM - 1]
        page[: len(data) + 1] = data + b"\0"

    call, dispatch = real.call, fakes.FakeMode.__torch_dispatch__

    def noted(function: Any, args: Any, kwargs: Any) -> Any:
        note(f"{getattr(function, '__qualname__', function)} (while capturing)")
        return call(function, args, kwargs)

    def noted_dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        note(f"{func} (in or after it, under {type(self).__qualname__})")
        return dispatch(self, func, types, args, kwargs)

    real.call = noted
    fakes.FakeMode.__torch_dispatch__ = noted_dispatch  # type: ignore[method-assign]


def _run(arguments: list[str]) -> None:
    faulthandler.enable()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def main(arguments: list[str]) -> int:
    """Run the rest of the command line in a child."""
    page = mmap.mmap(-1, _ROOM)
    given = os.environ.get("ARGAND_OPTIONS", "")
    os.environ["ARGAND_OPTIONS"] = f"{given},verify=1" if given else "verify=1"
    child = os.fork()
    if child == 0:
        _watch(page)
        _run(arguments)
        return 0
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        culprit = bytes(page).split(b"\0")[0].decode()
        print(f"{name}: a fake was read by {culprit}")
        return 1
    return os.WEXITSTATUS(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
