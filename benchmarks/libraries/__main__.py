"""benchmarks.libraries: the command line. Each program runs in a child of its own; earlier rows are kept (``--fresh``)."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from pathlib import Path

# a restored frame counts no graphs
os.environ["ARGAND_OPTIONS"] = os.environ.get("ARGAND_OPTIONS", "cache=0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # so that all its time is seen,
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # and none was spent before

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


def _cells(row: Row | None, eager: Row | None, counted: bool) -> list[str]:
    """Columns of one program under one compiler: right, breaks, recompiles, first call, steady state."""
    if row is None or "first" not in row:
        return ["-" if row is None else row["status"], *(["", ""] if counted else []), "", ""]
    against = (
        ""
        if eager is None or row is eager or "steady" not in eager
        else f" ({eager['steady'] / row['steady']:.2f}x)"
    )
    times = [f"{row['first']:.2f} s", f"{row['steady'] * 1e3:.2f} ms{against}"]
    return [row["status"], str(row["breaks"]), str(row["recompiles"]), *times] if counted else times


def _show(names: list[str], rows: dict[str, dict[str, Row]], reasons: bool) -> int:
    """Print the table, as Markdown, and why graphs broke; the exit code."""
    compilers = [engine for engine in rows if engine != "eager"]
    titles = ["program", "eager: first", "steady"]
    for engine in compilers:
        titles += [f"{engine}: right", "breaks", "recompiles", "first", "steady (against eager)"]
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    for name in names:
        eager = rows["eager"].get(name)
        cells = [name, *_cells(eager, eager, counted=False)[-2:]]
        for engine in compilers:
            cells += _cells(rows[engine].get(name), eager, counted=True)
        print("| " + " | ".join(cells) + " |")
    bad = [name for name in names if rows["argand"].get(name, {}).get("status") != "right"]
    for name in names:
        ours = rows["argand"].get(name, {})
        if reasons or name in bad:
            print(f"{name}: {ours.get('status', 'missing')} {ours.get('cause', '')[:150]}")
            for reason, number in sorted(
                ours.get("reasons", {}).items(), key=lambda pair: -pair[1]
            ):
                print(f"    {number:>4} {reason}")
    print(f"{len(names)} programs, {len(names) - len(bad)} right; not right: {bad}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
