"""cli.bench: ``argand bench FILE.py:FUNCTION``: eager, Argand and torch.compile side by side."""

from __future__ import annotations

import argparse
import math

from argand.cli.factory import load
from argand.cli.tables import show, write_json
from argand.report.page import milliseconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one object with all times, in seconds")
    parser.add_argument("--rounds", type=int, default=30, help="timed calls of each")
    parser.add_argument(
        "--train", action="store_true", help="with the backward pass of the sum of all results"
    )
    parser.add_argument(
        "--no-rival", action="store_true", help="without torch.compile, which takes long to compile"
    )
    parser.add_argument("factory", help="FILE.py:FUNCTION, which returns (model, inputs)")


def run(options: argparse.Namespace) -> int:
    """Time them; exit code 1 when one could not run."""
    from argand.report.bench import bench  # noqa: PLC0415  # it loads torch

    model, inputs = load(options.factory)
    names = ["argand", *["torch.compile"] * (not options.no_rival)]
    rows = bench(model, inputs, names, rounds=max(options.rounds, 2), train=options.train)
    if options.json:
        write_json(
            {
                "rounds": options.rounds,
                "train": options.train,
                "rows": [row._asdict() for row in rows],
            }
        )
    else:
        texts = [
            (
                row.name,
                *map(_time, (row.first, row.best, row.median)),
                f"{_time(row.low)} to {_time(row.high)}",
                "" if math.isnan(row.speedup) else f"{row.speedup:.2f}",
                row.problem,
            )
            for row in rows
        ]
        show(("", "first call", "best", "median", "middle half", "x eager", ""), texts)
    return int(any(row.problem for row in rows))


def _time(seconds: float) -> str:
    return "" if math.isnan(seconds) else milliseconds(seconds * 1e3)
