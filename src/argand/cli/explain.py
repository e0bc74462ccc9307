"""cli.explain: ``argand explain SCRIPT [args]``: what was captured of a program, and what to mend, by line."""

from __future__ import annotations

import argparse
from typing import Any, Final

from argand.cli.program import add_program, program_of
from argand.cli.report import run_watched, watched
from argand.cli.tables import NOTHING, show, write_json
from argand.report.page import milliseconds

_HEAD: Final = (
    "",
    "function",
    "line",
    "operations",
    "guards",
    "ran",
    "compiled in",
    "ends by, or compiled again because",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one object with graphs and problems")
    add_program(parser)


def run(options: argparse.Namespace) -> int:
    """Run the program and tell; its own exit code."""
    words = program_of(options)
    with watched(words, None, compare=False) as made:
        code = run_watched(words, made)
    graphs, problems = made.data["compiles"], made.data["problems"]
    if options.json:
        write_json({"graphs": graphs, "problems": problems})
        return code
    if graphs:
        show(_HEAD, [_row(graph) for graph in graphs])
    else:
        print(f"argand explain: {NOTHING}")
    for problem in problems:
        print(
            f"\n{_place(problem['where'])} {problem['kind']}: {problem['title']} ({problem['count']} times)".strip()
        )
        if problem["where"] and problem["where"]["source"]:
            print(f"    {problem['where']['source']}")
        print(f"  fix: {problem['fix']}")
        if problem["edit"]:
            print(f"  to be edited: {_place(problem['edit'])} {problem['edit']['source']}")
        for effect in problem["effects"]:
            print(f"  comes with it: {effect['title']} ({effect['count']} times)")
    return code


def _row(graph: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(graph["number"]),
        graph["label"],
        _place(graph["where"]),
        str(graph["calls"]),
        str(graph["guards"]),
        str(graph["hits"]),
        milliseconds(graph["seconds"] * 1e3),
        graph["ends_by"] or graph["again"] or "",
    )


def _place(where: dict[str, object] | None) -> str:
    return f"{where['short']}:{where['line']}" if where else ""
