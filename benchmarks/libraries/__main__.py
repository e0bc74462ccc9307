"""benchmarks.libraries: the command line. Each program runs in a child of its own; earlier rows are kept (``--fresh``)."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from pathlib import Path

os.environ["ARGAND_OPTIONS"] = os.environ.get("ARGAND_OPTIONS", "cache=0")  # a restored frame counts no graphs
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy  # noqa: F401  # before the fork: children need not import it
import torch

import argand  # noqa: F401
from benchmarks.libraries.judge import judge
from benchmarks.libraries.programs import PROGRAMS
from benchmarks.libraries.torchvision_names import declare
from benchmarks.sweep import Row, Sweep

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    """Run the programs and print the table; 1 when one of ours is wrong or fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.libraries", description=__doc__)
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    parser.add_argument("--rival", action="store_true", help="run torch.compile beside it")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds per program")
    parser.add_argument("--fresh", action="store_true", help="forget the rows of earlier runs")
    parser.add_argument("--reasons", action="store_true", help="print why graphs break")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "libraries")
    given = parser.parse_args()
    torch.set_num_threads(1)
    declare()
    names = [name for name in PROGRAMS if given.only in name]
    engines = ["eager", "argand", *(["torch"] if given.rival else [])]
    rows = {engine: _sweep(names, engine, given) for engine in engines}
    return _show(names, rows, given.reasons)


def _sweep(names: list[str], engine: str, given: argparse.Namespace) -> dict[str, Row]:
    sweep = Sweep(given.out.with_name(f"{given.out.name}-{engine}.jsonl"), given.limit, 1)
    if given.fresh:
        sweep.forget(names)
    return {row["task"]: row for row in sweep.run(names, functools.partial(_work, engine))}


def _work(engine: str, name: str) -> Row:
    torch.set_num_threads(1)
    return judge(PROGRAMS[name], engine)


def _cell(row: Row | None) -> str:
    if row is None or "graphs" not in row:
        return "-" if row is None else row["status"]
    counts = f"{row['graphs']} graphs, {row['breaks']} breaks, {row['recompiles']} again, {row['seconds']:.1f} s"
    return f"{row['status']}: {counts}"


def _show(names: list[str], rows: dict[str, dict[str, Row]], reasons: bool) -> int:
    bad = []
    print(f"\n{'program':<30} " + " ".join(f"{engine:<52}" for engine in rows if engine != "eager"))
    for name in names:
        ours = rows["argand"].get(name, {"status": "missing"})
        cells = " ".join(f"{_cell(found.get(name)):<52}" for engine, found in rows.items() if engine != "eager")
        print(f"{name:<30} {cells} {ours.get('cause', '')[:150]}")
        if reasons:
            for reason, number in sorted(ours.get("reasons", {}).items(), key=lambda pair: -pair[1]):
                print(f"    {number:>4} {reason}")
        if ours["status"] != "right":
            bad.append(name)
    print(f"{len(names)} programs, {len(names) - len(bad)} right; not right: {bad}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
