"""cli.explain: ``argand explain SCRIPT [args]``: what was captured of a program, and what to mend, by line."""

from __future__ import annotations

import argparse

from argand.cli.report import add_program, guarded
from argand.cli.tables import show, write_json
from argand.report.page import milliseconds
from argand.report.session import report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one object with graphs and problems")
    add_program(parser)


def run(options: argparse.Namespace) -> int:
    """Run the program and tell; its own exit code."""
    with report(None, compare=False) as made:
        code = guarded([options.program, *options.arguments])
    graphs, problems = made.data["compiles"], made.data["problems"]
    if options.json:
        write_json({"graphs": graphs, "problems": problems})
        return code
    rows = [
        (str(g["number"]), g["label"], _place(g["where"]), str(g["calls"]), str(g["guards"]), str(g["hits"]),
         milliseconds(g["seconds"] * 1e3), g["ends_by"] or g["again"] or "")
        for g in graphs
    ]  # fmt: skip
    show(
        ("", "function", "line", "operations", "guards", "ran", "compiled in", "ends by, or compiled again because"),
        rows,
    )
    for problem in problems:
        print(f"\n{_place(problem['where'])} {problem['kind']}: {problem['title']} ({problem['count']} times)".strip())
        if problem["where"] and problem["where"]["source"]:
            print(f"    {problem['where']['source']}")
        print(f"  fix: {problem['fix']}")
    return code


def _place(where: dict[str, object] | None) -> str:
    return f"{where['short']}:{where['line']}" if where else ""
