"""cli.report: ``argand report SCRIPT [args]``: run a program, and write a page about what the compiler did with it."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from argand.cli.program import add_program, program_of
from argand.cli.run import run_program
from argand.cli.tables import write_json
from argand.report.page import milliseconds
from argand.report.session import ReportInTheMaking, report
from argand.support.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        default=Path("argand-report.html"),
        help="the page; JSON beside it",
    )
    parser.add_argument(
        "--no-compare", action="store_true", help="no call runs in eager for comparison"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare each compiled call with eager, in place of timing it, and show what differs",
    )
    parser.add_argument(
        "--json", action="store_true", help="print verdict and problems as JSON when it is done"
    )
    add_program(parser)


def run(options: argparse.Namespace) -> int:
    """Run the program under a report; its own exit code, 1 when it raised."""
    words = program_of(options)
    check_place(options.output)
    how = {"compare": not options.no_compare, "verify": options.verify}
    with watched(words, options.output, **how) as made:
        code = run_watched(words, made)
    if options.json:
        write_json(
            {"page": str(options.output), **{k: made.data[k] for k in ("verdict", "problems")}}
        )
    else:
        print("\n".join(_summary(made.data, options.output)), file=sys.stderr)
    return code


def check_place(output: Path) -> None:
    """Refuse a place where no page can be written, before the program runs."""
    if output.is_dir():
        raise UserError(f"{str(output)!r} is a folder", hint="name a file: -o FOLDER/page.html")
    parent = next(folder for folder in output.absolute().parents if folder.exists())
    if not os.access(parent, os.W_OK):
        raise UserError(f"no file can be written into {str(parent)!r}")


@contextlib.contextmanager
def watched(
    words: list[str], output: Path | None, *, compare: bool, verify: bool = False
) -> Iterator[ReportInTheMaking]:
    """A report of a program."""
    with report(output, compare=compare, verify=verify) as made:
        made.program = shlex.join(words)
        yield made


def run_watched(words: list[str], made: ReportInTheMaking) -> int:
    """Run a program; the report knows how it ended."""
    ended = run_program(words)
    if ended.error is not None:
        made.tell_end(ended.error)
    return ended.code


def _summary(data: dict[str, Any], path: Path) -> list[str]:
    verdict = data["verdict"]
    speed = (
        f"{verdict['speedup']:.2f} times eager's speed"
        if verdict["speedup"]
        else "not compared with eager"
    )
    if data["differences"]:
        different = len(data["differences"]["found"])
        speed = f"{data['differences']['calls']} calls of graphs compared with eager, {different or 'none'} different"
    elif verdict["in_python"] and not verdict["compiled_calls"]:
        speed = "nothing compiled ran"
    rows = [
        f"{speed}; compiling took {milliseconds(verdict['compile_ms'])}; {len(data['problems'])} to mend"
    ]
    for problem in data["problems"][:5]:
        where = problem["where"]
        at = f"{where['short']}:{where['line']}: " if where else ""
        rows.append(f"  {at}{problem['title']} ({problem['count']}x) -> {problem['fix']}")
    return [*rows, f"{path}"]
