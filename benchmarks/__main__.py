"""benchmarks: the command line of the harness (``make bench``, ``python -m benchmarks --help``)."""

from __future__ import annotations

import argparse
import compileall
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.engines import ENGINES, find
from benchmarks.models import CASES, GROUPS, select
from benchmarks.models.case import MODES
from benchmarks.peers import run as peers
from benchmarks.phases import PHASES, ROOT, Settings, measure
from benchmarks.selftest import run_self_test
from benchmarks.summary import cell, plot, print_tables


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Argand beside eager and torch.compile, side by side in one run.",
        epilog=f"groups: {', '.join(GROUPS)}; models: {', '.join(CASES)}",
    )
    parser.add_argument("--models", default="main", help="names and groups (default: main)")
    parser.add_argument("--engines", default=",".join(ENGINES), help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--modes", default=",".join(MODES), help=f"of {', '.join(MODES)}")
    parser.add_argument("--phases", default=",".join(PHASES), help=f"of {', '.join(PHASES)}")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds (steady)")
    parser.add_argument("--cold-rounds", type=int, default=1, help="fresh processes per engine")
    parser.add_argument("--round-seconds", type=float, default=0.05, help="length of a turn")
    parser.add_argument("--threads", type=int, default=0, help="0: as torch decides")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds per process")
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder of the results")
    parser.add_argument("--self-test", action="store_true", help="test the harness, then stop")
    return parser.parse_args(argv)


def chosen(text: str, valid: tuple[str, ...], what: str) -> tuple[str, ...]:
    """The parts of a comma-separated list, checked."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    for part in parts:
        if part not in valid:
            raise KeyError(f"no {what} {part!r}; valid: {', '.join(valid)}")
    return parts


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The checked settings of a command line; raises KeyError with what is valid."""
    engines = tuple(part.strip() for part in arguments.engines.split(",") if part.strip())
    for engine in engines:
        find(engine)
    return Settings(
        cases=tuple(select(arguments.models)),
        modes=chosen(arguments.modes, MODES, "mode"),
        engines=engines,
        phases=chosen(arguments.phases, PHASES, "phase"),
        rounds=arguments.rounds,
        cold_rounds=arguments.cold_rounds,
        round_seconds=arguments.round_seconds,
        limit=arguments.limit,
        threads=arguments.threads,
    )


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    lines = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":")[1].strip() for line in lines.splitlines() if "model name" in line]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit.stdout.strip(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def run(settings: Settings, out: Path, console: Console) -> Path:
    """Measure, print, and write the JSON and the plot; the path of the JSON."""
    out.mkdir(parents=True, exist_ok=True)
    # as an installed package, and torch, have their bytecode
    compileall.compile_dir(ROOT / "src", quiet=2)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    path = out / f"bench-{stamp}.json"
    rows: list[dict[str, Any]] = []
    about = machine()
    for row in measure(settings):
        rows.append(row)
        place = f"{row['phase']:<9}{row['mode']:<6} {row['case']:<20} {row['engine']:<8}"
        console.print(f"{place} {cell(row)}", style="dim", markup=False)
        path.write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
    print_tables(rows, console)
    drawn = plot(rows, path.with_suffix(".png"))
    names = [path.name, path.with_suffix(".png").name] if drawn else [path.name]
    console.print(f"written to {os.path.relpath(out)}: {', '.join(names)}")
    return path


def main() -> None:
    """Run the harness or its self-test."""
    if sys.argv[1:2] == ["peers"]:
        return peers.main(sys.argv[2:])
    arguments = parse()
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    if arguments.self_test:
        sys.exit(run_self_test(console))
    try:
        settings = settings_of(arguments)
    except KeyError as error:
        sys.exit(str(error.args[0]))
    run(settings, arguments.out, console)


if __name__ == "__main__":
    main()
