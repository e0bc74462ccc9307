"""cli.profile: ``argand profile SCRIPT [args]``: the time of every kernel of a program, with its lines."""

from __future__ import annotations

import argparse

from argand.cli.report import add_program, guarded
from argand.cli.tables import show, write_json
from argand.report.page import bytes_text, milliseconds, percent
from argand.report.session import report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one object with all kernels")
    parser.add_argument("--first", type=int, default=40, help="how many kernels to print")
    add_program(parser)


def run(options: argparse.Namespace) -> int:
    """Run the program and print its kernels, longest first; its own exit code."""
    with report(None, compare=False) as made:
        code = guarded([options.program, *options.arguments])
    kernels = made.data["kernels"]
    if options.json:
        write_json({"machine": made.data["machine"], "kernels": kernels})
        return code
    rows = [
        (k["name"], k["kind"], str(k["calls"]), milliseconds(k["seconds"] * 1e3), percent(k["share"]),
         bytes_text(k["bytes"] / k["calls"] if k["calls"] else None), percent(k["bandwidth"]),
         ", ".join(f"{where['short']}:{where['line']}" for where in k["lines"][:3]))
        for k in kernels[: options.first]
    ]  # fmt: skip
    show(("kernel", "kind", "calls", "time", "share", "bytes", "of bandwidth", "lines"), rows)
    return code
