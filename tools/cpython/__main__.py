"""``python -m tools.cpython [modules] [--mode beside]``: CPython's tests under the compiler, against plain Python.

Each module has child processes of its own, forked from one that has torch, with a limit for each test; a child that
dies takes one test with it. What is printed: counts per module, and each test whose outcome differs, with the listed
reason if there is one. Differences without a reason make the command fail.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from tools.cpython import child
from tools.cpython.kept import VERSION, Difference, Kept, Row
from tools.cpython.reasons import MODULES, reason_for

# times the limit of a test: seconds of the clock in which nothing is heard of a child
PATIENCE = 15
DEATHS = 40  # of children of one module, before the rest of it is given up


class Report(NamedTuple):
    """What one module gave in one mode."""

    outcomes: dict[str, list[str]]
    texts: dict[str, str]
    seconds: float


def _lines(path: pathlib.Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break  # half a line of a child that died
    return found


def _start(path: pathlib.Path, job: child.Job) -> int:
    """The id of a new process that runs the job and writes to files at the path."""
    path.touch()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        code = 1
        with contextlib.suppress(BaseException):
            log = os.open(path.with_suffix(".log"), os.O_CREAT | os.O_WRONLY)
            os.dup2(log, 1)
            os.dup2(log, 2)
            child.run(job, path)
            code = 0
        os._exit(code)  # threads and pools that tests left behind are no reason to wait
    return pid


def _wait(pid: int, path: pathlib.Path, limit: float) -> str:
    """How the child ended: "" or the reason."""
    last, size = time.monotonic(), 0
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
        now = path.stat().st_size
        if now != size:
            last, size = time.monotonic(), now
        elif time.monotonic() - last > limit * PATIENCE:
            os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGPROF, -signal.SIGKILL):
        return f"no end within {limit:.0f} s of work"
    return f"the process ended with {code}" if code else ""


def run_module(module: str, mode: str, limit: float, only: str) -> Report:
    """All tests of a module in one mode."""
    begin = time.monotonic()
    outcomes: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(DEATHS):
            path = pathlib.Path(folder) / str(attempt)
            why = _wait(
                _start(path, child.Job(module, mode, frozenset(outcomes), only, limit)), path, limit
            )
            started = ""
            for line in _lines(path):
                started = line.get("start", started)
                if "id" in line:
                    outcomes[line["id"]] = line["outcomes"]
                    texts[line["id"]] = "".join(line["text"])
            if not why:
                break
            lost = started if started and started not in outcomes else f"{module} ({attempt})"
            outcomes[lost] = [why]
            texts[lost] = path.with_suffix(".log").read_text(errors="replace")[-2000:]
            if not started:
                break  # it does not even load
    return Report(outcomes, texts, time.monotonic() - begin)


def _kind(outcome: str) -> str:
    return outcome.partition(":")[0]


def differs(wanted: Sequence[str], got: Sequence[str]) -> bool:
    """Do two rounds of outcomes differ in kind: ok, skipped, the type of an error?"""
    return [*map(_kind, got)] != [*map(_kind, wanted)]


def compare(module: str, mode: str, limit: float, only: str) -> Row:
    """A module run in both ways."""
    plain, found = (run_module(module, each, limit, only) for each in ("plain", mode))
    outcomes = {test: found.outcomes.get(test, ["was not run"]) for test in plain.outcomes}
    different = [
        Difference(test, wanted[-1], outcomes[test][-1], found.texts.get(test, ""))
        for test, wanted in plain.outcomes.items()
        if differs(wanted, outcomes[test])
    ]
    return Row(module, len(outcomes), different, (plain.seconds, found.seconds))


def show(row: Row, *, texts: bool) -> None:
    """Print what differs, and the counts of the module."""
    for test, wanted, got, text in row.different:
        reason = reason_for(test)
        print(f"  {test}: {got}\n      plainly: {wanted}")
        if reason:
            print(f"      listed: {reason}")
        elif texts:
            print("      | " + text.replace("\n", "\n      | "))
    plain, found = row.seconds
    print(
        f"{row.module}: {row.tests} tests, {row.listed} listed, {row.unexplained} unexplained;"
        f" {plain:.0f} s plainly, {found:.0f} s compiled",
        flush=True,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--mode", choices=("beside", "alone"), default="beside")
    parser.add_argument(
        "--limit", type=float, default=60, help="seconds of work that a test may take"
    )
    parser.add_argument("--only", default="", help="a part of the tests' names")
    parser.add_argument("--texts", action="store_true", help="tracebacks of differences")
    parser.add_argument(
        "--results",
        type=pathlib.Path,
        help="a file that keeps what was found: modules that it has and in which nothing is unexplained are not run"
        " again, so a sweep that was ended is continued, and what differed is tried again",
    )
    return parser.parse_args()


def main() -> int:
    """The command line."""
    chosen = _arguments()
    kept = Kept(chosen.results, chosen.mode, chosen.only)
    rows = []
    for module in chosen.modules:
        if importlib.util.find_spec(f"test.{module}"):
            row = kept.settled(module)
            if row is None:
                row = compare(module, chosen.mode, chosen.limit, chosen.only)
                kept.add(row)
            show(row, texts=chosen.texts)
            rows.append(row)
    tests = sum(row.tests for row in rows)
    listed, other = sum(row.listed for row in rows), sum(row.unexplained for row in rows)
    print(
        f"Python {VERSION}, {chosen.mode}: {tests} tests in {len(rows)} modules, {tests - listed - other} passed,"
        f" {listed} listed with a reason, {other} unexplained"
    )
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
