"""cli.profile: ``argand profile SCRIPT [args]``: the time of every kernel of a program, with its lines."""

from __future__ import annotations

import argparse

from argand.cli.program import add_program, program_of
from argand.cli.report import run_watched, watched
from argand.cli.tables import NOTHING, show, write_json
from argand.report.page import bytes_text, milliseconds, percent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one object with all kernels")
    parser.add_argument("--first", type=int, default=40, help="how many kernels to print")
    add_program(parser)


def run(options: argparse.Namespace) -> int:
    """Run the program and print its kernels, longest first; its own exit code."""
    words = program_of(options)
    with watched(words, None, compare=False) as made:
        code = run_watched(words, made)
    kernels = made.data["kernels"]
    if options.json:
        write_json({"machine": made.data["machine"], "kernels": kernels})
        return code
    if not kernels:
        print(f"argand profile: {NOTHING}")
        return code
    rows = [
        (
            k["name"],
            k["kind"],
            str(k["calls"]),
            milliseconds(k["seconds"] * 1e3),
            percent(k["share"]),
            bytes_text(k["bytes"] / k["calls"] if k["calls"] else None),
            percent(k["bandwidth"]),
            ", ".join(f"{where['short']}:{where['line']}" for where in k["lines"][:3]),
        )
        for k in kernels[: options.first]
    ]
    show(("kernel", "kind", "calls", "time", "share", "bytes", "of bandwidth", "lines"), rows)
    return code
