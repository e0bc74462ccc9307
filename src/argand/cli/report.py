"""cli.report: ``argand report SCRIPT [args]``: run a program, and write a page about what the compiler did with it."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path
from typing import Any

from argand.cli.run import run_program
from argand.cli.tables import write_json
from argand.report.page import milliseconds
from argand.report.session import report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument(
        "--output", "-o", type=Path, default=Path("argand-report.html"), help="the page; JSON beside it"
    )
    parser.add_argument("--no-compare", action="store_true", help="no call runs in eager for comparison")
    parser.add_argument("--json", action="store_true", help="print verdict and problems as JSON when it is done")
    add_program(parser)


def add_program(parser: argparse.ArgumentParser) -> None:
    """The program of a command that runs one; all that follows it is its own."""
    parser.add_argument("program", metavar="SCRIPT", help="FILE.py, or -m MODULE")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")


def run(options: argparse.Namespace) -> int:
    """Run the program under a report; its own exit code, 1 when it raised."""
    with report(options.output, compare=not options.no_compare) as made:
        made.program = " ".join([options.program, *options.arguments])
        code = guarded([options.program, *options.arguments])
    if options.json:
        write_json({"page": str(options.output), **{k: made.data[k] for k in ("verdict", "problems")}})
    else:
        print("\n".join(_summary(made.data, options.output)), file=sys.stderr)
    return code


def guarded(words: list[str]) -> int:
    """Run a program to its end, however that comes."""
    try:
        return run_program(words)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


def _summary(data: dict[str, Any], path: Path) -> list[str]:
    verdict = data["verdict"]
    speed = f"{verdict['speedup']:.2f} times eager's speed" if verdict["speedup"] else "not compared with eager"
    rows = [f"{speed}; compiling took {milliseconds(verdict['compile_ms'])}; {len(data['problems'])} to mend"]
    for problem in data["problems"][:5]:
        where = problem["where"]
        at = f"{where['short']}:{where['line']}: " if where else ""
        rows.append(f"  {at}{problem['title']} ({problem['count']}x) -> {problem['fix']}")
    return [*rows, f"{path}"]
