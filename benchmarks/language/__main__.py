"""benchmarks.language: the command line. Each program runs in a child of its own; ``--fresh`` forgets earlier rows."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from pathlib import Path

# a restored frame counts no graphs
os.environ["ARGAND_OPTIONS"] = os.environ.get("ARGAND_OPTIONS", "cache=0")

import numpy  # noqa: F401  # before the fork: children need not import it
import torch

import argand  # noqa: F401
from benchmarks.language.judge import Ours, Rival, judge
from benchmarks.language.program import Program, load
from benchmarks.language.table import show
from benchmarks.sweep import Row, Sweep

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    """Run the programs and print the table; 1 when a row is wrong, or misses a graph without a reason."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.language", description=__doc__)
    parser.add_argument("--area", default="", help="one area (default: all)")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    parser.add_argument("--rival", action="store_true", help="run torch.compile beside it")
    parser.add_argument(
        "--rival-backend", default="aot_eager", help="of torch.compile (default: aot_eager)"
    )
    parser.add_argument("--limit", type=float, default=180.0, help="seconds per program")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget the rows of earlier runs")
    parser.add_argument(
        "--fresh-ours", action="store_true", help="forget ours, keep torch.compile's"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "language")
    given = parser.parse_args()
    torch.set_num_threads(1)
    programs = {key: found for key, found in load(given.area).items() if given.only in key}
    ours = _sweep(programs, Ours(), given, fresh=given.fresh or given.fresh_ours)
    theirs: list[Row] = []
    if given.rival:
        with_rival = {key: found for key, found in programs.items() if found.rival}
        theirs = _sweep(with_rival, Rival(given.rival_backend), given, fresh=given.fresh)
    return show(programs, ours, theirs)


def _sweep(
    programs: dict[str, Program], engine: Ours | Rival, given: argparse.Namespace, *, fresh: bool
) -> list[Row]:
    path = given.out.with_name(f"{given.out.name}-{engine.name}.jsonl")
    sweep = Sweep(path, given.limit, given.jobs)
    if fresh:
        sweep.forget(programs)
    return sweep.run(programs, functools.partial(_work, programs, engine))


def _work(programs: dict[str, Program], engine: Ours | Rival, key: str) -> Row:
    torch.set_num_threads(1)
    return judge(programs[key], engine)


if __name__ == "__main__":
    sys.exit(main())
