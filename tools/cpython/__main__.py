"""``python -m tools.cpython [modules] [--mode beside]``: CPython's tests under the compiler, against plain Python.

Each module has child processes of its own, with a limit for each test; a child that dies takes one test with it. What
is printed: counts per module, and each test whose outcome differs, with the listed reason if there is one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from tools.cpython.reasons import MODULES, reason_for

LOADING = 120  # seconds more for torch to be imported
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


def _wait(child: subprocess.Popen[bytes], path: pathlib.Path, limit: float) -> str:
    """How the child ended: "" or the reason. It may be silent for `limit` seconds."""
    last, size = time.monotonic() + LOADING, 0
    while child.poll() is None:
        time.sleep(0.05)
        now = path.stat().st_size
        if now != size:
            last, size = time.monotonic(), now
        elif time.monotonic() - last > limit:
            child.kill()
            child.wait()
            return f"no end within {limit:.0f} s"
    return f"the process ended with {child.returncode}" if child.returncode else ""


def run_module(module: str, mode: str, limit: float, only: str) -> Report:
    """All tests of a module in one mode."""
    begin = time.monotonic()
    outcomes: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(DEATHS):
            path = pathlib.Path(folder) / str(attempt)
            path.touch()
            command = [sys.executable, "-m", "tools.cpython.child", module, mode, str(path)]
            with open(path.with_suffix(".log"), "wb") as log:
                child = subprocess.Popen([*command, json.dumps([*outcomes]), only], stdout=log, stderr=log)
                why = _wait(child, path, limit)
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


def compare(module: str, mode: str, limit: float, *, only: str, texts: bool) -> tuple[int, int, int]:
    """Run a module in both ways and print what differs; (tests, listed differences, other differences)."""
    plain, found = (run_module(module, each, limit, only) for each in ("plain", mode))
    listed = other = 0
    for test, wanted in plain.outcomes.items():
        got = found.outcomes.get(test, ["was not run"])
        if [*map(_kind, got)] == [*map(_kind, wanted)]:
            continue
        reason = reason_for(test)
        listed, other = listed + bool(reason), other + (not reason)
        print(f"  {test}: {got[-1]}\n      plainly: {wanted[-1]}" + (f"\n      listed: {reason}" if reason else ""))
        if texts and not reason:
            print("      | " + found.texts.get(test, "").replace("\n", "\n      | "))
    print(
        f"{module}: {len(plain.outcomes)} tests, {listed} listed, {other} differ; {plain.seconds:.0f} s plainly,"
        f" {found.seconds:.0f} s compiled",
        flush=True,
    )
    return len(plain.outcomes), listed, other


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--mode", choices=("beside", "alone"), default="beside")
    parser.add_argument("--limit", type=float, default=60, help="seconds that a test may take")
    parser.add_argument("--only", default="", help="a part of the tests' names")
    parser.add_argument("--texts", action="store_true", help="tracebacks of differences")
    chosen = parser.parse_args()
    present = [module for module in chosen.modules if importlib.util.find_spec(f"test.{module}")]
    totals = [compare(module, chosen.mode, chosen.limit, only=chosen.only, texts=chosen.texts) for module in present]
    tests, listed, other = map(sum, zip(*totals, strict=True))
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"Python {version}, {chosen.mode}: {tests} tests, {listed} differ for listed reasons, {other} for others")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
