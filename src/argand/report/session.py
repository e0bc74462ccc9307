"""report.session: a report from its beginning to its files.

``with argand.report("out.html"): ...`` listens to the compiler, times calls and plans, and writes ``out.html`` and
``out.json`` at the end. ``ARGAND_REPORT=dir`` does the same for a whole process. One session at a time; off, there is
no subscriber, no watcher and no clock: nothing is paid.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

from argand.report import lines, machine
from argand.report.calls import Watcher
from argand.report.collect import SHOWN, Collected
from argand.report.data import Session, make
from argand.report.ending import exit_code, place_of, words_of
from argand.report.page import render
from argand.runtime import _native
from argand.runtime.disk.store import SHOWN_BESIDES, DiskStore, default_directory
from argand.support import events
from argand.support.errors import UserError
from argand.support.options import read_environment

_OPTIONS: Final = "ARGAND_OPTIONS"


@final
class ReportInTheMaking:
    """A report in the making, and when it is made its data."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        compare: bool = True,
        program: str = "",
        verify: bool = False,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.program = program or " ".join(sys.argv) or "python"
        self.data: dict[str, Any] = {}
        self._ended: dict[str, Any] | None = None
        self._begin = time.perf_counter()
        self._collected = Collected()
        # what is compared with eager takes several times as long: turns would say nothing
        self._watcher = Watcher(self._collected, compare and not verify)
        self._options = os.environ.get(_OPTIONS)
        if verify:
            _set_options(",".join(filter(None, (self._options, "verify=report"))))
        self._directory = default_directory()
        self._known = _keys(self._directory)
        self._memory = machine.MemoryWatch(self._collected.begin)
        self._unsubscribe = events.subscribe(
            self._collected, shows=SHOWN, wraps=self._collected.wrap
        )
        _native.measure_plans(True)
        _native.set_call_watcher(self._watcher)

    def tell_end(self, error: BaseException) -> None:
        """The program ended by an exception."""
        code = exit_code(error) if isinstance(error, SystemExit) else 1
        if isinstance(error, SystemExit) and not code:
            return
        where = place_of(error)
        raised = "" if isinstance(error, SystemExit) else words_of(error)
        self._ended = {"raised": raised, "code": code, "where": where and lines.place(*where)}

    def finish(self) -> None:
        """Listen no more; make the data and write the files."""
        _native.set_call_watcher(None)
        _native.measure_plans(False)
        self._unsubscribe()
        _set_options(self._options)
        self._memory.stop()
        seconds = time.perf_counter() - self._begin
        session = Session(
            collected=self._collected,
            watcher=self._watcher,
            memory=self._memory.points,
            machine=machine.describe(),
            program=self.program,
            seconds=seconds,
            known=self._known,
            cache_directory=self._directory,
            ended=self._ended,
        )
        self.data = make(session)
        if self.path is not None:
            write(self.data, self.path)


def write(data: dict[str, Any], path: Path) -> None:
    """The page, and the same as JSON beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(data, indent=1), encoding="utf-8")
    path.with_suffix(".html").write_text(render(data), encoding="utf-8")


def _set_options(text: str | None) -> None:
    """Options of every compile from now on."""
    if text == os.environ.get(_OPTIONS):
        return
    if text is None:
        del os.environ[_OPTIONS]
    else:
        os.environ[_OPTIONS] = text
    read_environment.cache_clear()


def _keys(directory: Path) -> tuple[str, ...]:
    if not directory.is_dir():
        return ()
    entries = DiskStore(directory, warn=False).entries()
    return tuple(entry.key for entry in sorted(entries, key=lambda entry: -entry.used))


@functools.cache
def start_from_environment() -> None:
    """Obey ARGAND_REPORT, once per process: a page of all that follows is written into that folder at its end."""
    folder = read_environment().report
    if not folder or SHOWN_BESIDES in events.shown():
        return
    name = f"{Path(sys.argv[0] or 'python').stem or 'python'}-{os.getpid()}.html"
    made, process = ReportInTheMaking(Path(folder) / name), os.getpid()

    def finish() -> None:
        # not the child of a fork, which has not the thread that looks at memory
        if os.getpid() == process:
            if (error := getattr(sys, "last_value", None)) is not None:
                made.tell_end(error)
            made.finish()

    atexit.register(finish)


@contextlib.contextmanager
def report(
    path: str | os.PathLike[str] | None = "argand-report.html",
    *,
    compare: bool = True,
    verify: bool = False,
) -> Iterator[ReportInTheMaking]:
    """Write a report of all that is compiled and called in a ``with`` block.

    Args:
        path: where the page goes; the JSON goes beside it. None: no files, the data is in ``.data`` of what ``as`` gives.
        compare: some calls run in eager, in turns with the compiled ones, so that the report can say which is faster.
        verify: what is compiled in the block is compared with eager at each call, in place of being timed against it; the
            report says what differs.

    Fails with ``UserError`` when another report is being made.
    """
    if SHOWN_BESIDES in events.shown():
        raise UserError(
            "a report is being made already", hint="leave its block first, or unset ARGAND_REPORT"
        )
    made = ReportInTheMaking(path, compare, verify=verify)
    try:
        yield made
    except BaseException as error:
        made.tell_end(error)
        raise
    finally:
        made.finish()
