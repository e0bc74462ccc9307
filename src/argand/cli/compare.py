"""cli.compare: ``argand compare FILE.py:FUNCTION``: a model under several backends."""

from __future__ import annotations

import argparse

from argand.cli.factory import load
from argand.cli.tables import write_json
from argand.report.compare import compare


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one object with all rows")
    parser.add_argument("factory", help="FILE.py:FUNCTION, which returns (model, inputs)")
    parser.add_argument("--backends", default="argand", help="comma-separated names")
    parser.add_argument("--rounds", type=int, default=10)


def run(options: argparse.Namespace) -> int:
    """Compare; exit code 1 when a backend is not right."""
    model, inputs = load(options.factory)
    comparison = compare(model, inputs, options.backends.split(","), rounds=options.rounds)
    if options.json:
        write_json({"rows": [row._asdict() for row in comparison.rows]})
    else:
        print(comparison)
    return 0 if all(row.correct for row in comparison.rows) else 1
