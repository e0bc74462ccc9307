"""report.trials: a program run in a child process, and what became of it. For ``argand verify`` and ``argand bisect``.

In: a script with its arguments, or a text, and options for every compile in it. Out: `Trial`: differences from eager, an
exception, a crash, no end. The child is a fork of this process, which has loaded torch and Argand and computes nothing
itself: so a run costs what the program costs, and a program that crashes takes nobody with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, final

import argand.autograd.aot  # all of the compiler once, before the forks: a child imports nothing
import argand.autograd.partition
import argand.backends.argand_backend
import argand.backends.verified
import argand.capture.generated.verified
import argand.capture.trace
import argand.native.build
import argand.ops.decompositions
import argand.runtime.described  # noqa: F401
from argand import drop_in
from argand.differences.telling import EQUAL
from argand.report.ending import exit_code, place_of, show_error
from argand.support import events
from argand.support.options import read_environment

LONGEST: Final = 300.0  # seconds a run may take
GOOD: Final = "ok"
DIFFERS: Final = "differs"
SLOW: Final = "slow"
RAISES: Final = "raises"
EXITS: Final = "exits"  # with another code than 0
CRASHES: Final = "crashes"
HANGS: Final = "hangs"


@final
class Trial(NamedTuple):
    """How a run ended."""

    kind: str = GOOD
    text: str = ""  # the first difference, the exception, the signal
    code: int = 0  # the program's own exit code
    where: str = ""  # the user's line, where it is known
    stage: str = ""  # who found it: "a compiled graph" or "a captured frame"
    counts: Mapping[str, int] = {}  # of events
    differences: tuple[str, ...] = ()  # all that was reported
    seconds: float = 0.0
    kernels: tuple[str, ...] = ()  # names of all that were compiled
    lowered: tuple[str, ...] = ()  # nodes of aten graphs that are in them: "name operator"

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return self.kind == GOOD


class ChildProgram(Protocol):
    """What can be run in a child."""

    def run(self) -> None:
        """Run it."""


class Script(NamedTuple):
    """What to run: a file with arguments, a text, or ("-m") a module, whose name is the first argument."""

    path: str
    arguments: tuple[str, ...] = ()
    text: str = ""  # in place of what the file holds

    @property
    def is_module(self) -> bool:
        """Whether it is a module that is named, not a file."""
        return self.path == "-m"

    def run(self) -> None:
        """Run it as the main program."""
        if self.is_module:
            sys.argv = list(self.arguments)
            runpy.run_module(self.arguments[0], run_name="__main__", alter_sys=True)
            return
        sys.argv = [self.path, *self.arguments]
        sys.path.insert(0, str(Path(self.path).resolve().parent))
        if not self.text:
            runpy.run_path(self.path, run_name="__main__")
            return
        names = {"__name__": "__main__", "__file__": self.path, "__builtins__": __builtins__}
        module = type(sys)("__main__")
        module.__dict__.update(names)
        sys.modules["__main__"] = module
        exec(compile(self.text, self.path, "exec"), module.__dict__)


def run_trial(
    program: ChildProgram,
    options: Mapping[str, object],
    *,
    quiet: bool = True,
    longest: float = LONGEST,
    before: Callable[[], Any] | None = None,
) -> Trial:
    """Run a program in a child, under options for each of its compiles; ``before`` runs in the child first."""
    begin = time.perf_counter()
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        os.close(reading)
        _child(program, options, quiet, writing, before)
    os.close(writing)
    data, ended = _read(reading, longest)
    if not ended:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    seconds = time.perf_counter() - begin
    return _outcome(data, status, ended)._replace(seconds=seconds)


def _read(file: int, longest: float) -> tuple[bytes, bool]:
    """All that a child writes, and whether it ended in time."""
    until, data = time.monotonic() + longest, b""
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([file], [], [], left)[0]:
            return data, False
        part = os.read(file, 1 << 16)
        if not part:
            return data, True
        data += part


def _outcome(data: bytes, status: int, ended: bool) -> Trial:
    lines = [
        json.loads(line)
        for line in data.decode().splitlines()
        if line.startswith("{") and line.endswith("}")
    ]
    reported = [line["reported"] for line in lines if "reported" in line]
    kernels, lowered = (_joined(lines, name) for name in ("kernels", "lowered"))
    last: dict[str, Any] = next((line["end"] for line in reversed(lines) if "end" in line), {})
    counts = last.get("counts", {})
    texts = tuple(str(row["text"]) for row in reported)
    base = Trial(counts=counts, differences=texts, kernels=kernels, lowered=lowered)
    if not ended:
        return base._replace(kind=HANGS, text="no end in time")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return base._replace(kind=CRASHES, text=f"signal {number} ({signal.Signals(number).name})")
    if reported:
        first = reported[0]
        kind = SLOW if ": times differ" in first["text"] else DIFFERS
        text, _, where = first["text"].partition("\n  at ")
        return base._replace(kind=kind, text=text, where=where, stage=first["stage"])
    if last.get("code"):
        return base._replace(kind=EXITS, text=f"exit code {last['code']}", code=last["code"])
    if last.get("error"):
        return base._replace(kind=RAISES, text=last["error"], where=last.get("where", ""))
    if not last:
        return base._replace(
            kind=CRASHES, text=f"the process ended by itself, exit code {os.WEXITSTATUS(status)}"
        )
    return base


def _joined(lines: Sequence[Mapping[str, Any]], name: str) -> tuple[str, ...]:
    return tuple(row for line in lines for row in line.get(name, ()))


def _child(
    program: ChildProgram,
    options: Mapping[str, object],
    quiet: bool,
    writing: int,
    before: Callable[[], Any] | None,
) -> None:
    """Run, tell the parent, and end without a word to anybody else."""
    end: dict[str, Any] = {}
    try:
        _prepare(options, quiet)
        counts: dict[str, int] = {}
        events.subscribe(_listener(counts, writing))
        if before is not None:
            before()
        end = {"counts": counts}
        with _telling(end):
            program.run()
    finally:
        sys.stdout.flush()
        _send(writing, {"end": end})
        os._exit(0)


def _prepare(options: Mapping[str, object], quiet: bool) -> None:
    given = os.environ.get("ARGAND_OPTIONS", "")
    more = ",".join(f"{name}={value}" for name, value in options.items())
    os.environ["ARGAND_OPTIONS"] = ",".join(filter(None, (given, more)))
    read_environment.cache_clear()
    if quiet:
        empty = os.open(os.devnull, os.O_RDWR)
        for file in (0, 1, 2):
            os.dup2(empty, file)
    drop_in.install()


@contextlib.contextmanager
def _telling(end: dict[str, Any]) -> Iterator[None]:
    """Keep how a program ends."""
    try:
        with warnings.catch_warnings():
            yield
    except SystemExit as error:
        show_error(error)
        end["code"] = exit_code(error)
    except BaseException as error:
        end["error"] = f"{type(error).__name__}: {error}"
        place = place_of(error)
        end["where"] = f"{place[0]}:{place[1]}" if place else ""
        if os.fstat(2).st_rdev != os.stat(os.devnull).st_rdev:
            show_error(error)


def _listener(counts: dict[str, int], writing: int) -> Callable[[events.Event], None]:
    def hear(event: events.Event) -> None:
        if isinstance(event, events.Count):
            counts[event.counter] = counts.get(event.counter, 0) + event.amount
        elif (
            isinstance(event, events.Artifact)
            and event.name == "differences"
            and event.detail != EQUAL
        ):
            _send(writing, {"reported": {"text": event.render(), "stage": event.detail}})
        elif isinstance(event, events.Record) and event.name == "plan":
            steps = event.make()["steps"]
            _send(
                writing,
                {
                    "kernels": [
                        step["name"] for step in steps if step["kind"] not in ("free", "keep")
                    ]
                },
            )
        elif isinstance(event, events.Record) and event.name == "lowered":
            _send(writing, {"lowered": ["{node} {op}".format(**event.make())]})

    return hear


def _send(writing: int, row: Mapping[str, Any]) -> None:
    data = (json.dumps(row) + "\n").encode()
    while data:
        data = data[os.write(writing, data) :]


def script_of(words: Sequence[str]) -> Script:
    """The program of a command line: a file or, after ``-m``, a module, with its arguments."""
    return Script(words[0], tuple(words[1:]))
