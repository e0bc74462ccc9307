"""benchmarks.peers.run: all engines on all models, round by round. In: names. Out: rows, a table, JSON.

Each engine has a process of its own that is kept alive: preparing (compiles, exports) happens before, so the rounds
of one model take seconds. ``--around CMD`` runs the rounds of each model inside of a command that makes the machine quiet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import geomean, ratio, spread
from benchmarks.peers.child import ENGINES
from benchmarks.peers.models import GROUPS, MODELS, select
from benchmarks.peers.roof import ceilings, draw, print_ceilings

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = ("onnxruntime", "openvino")
LIMIT = 2e-2  # how far a result may be from eager's, of its largest value
Row = dict[str, Any]


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks peers",
        epilog=f"groups: {', '.join(GROUPS)}; models: {', '.join(MODELS)}",
    )
    parser.add_argument("--models", default="table", help="names and groups (default: table)")
    parser.add_argument("--engines", default="eager,argand,torch,freezing,onnxruntime,openvino")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds")
    parser.add_argument("--turn-seconds", type=float, default=0.15, help="length of a turn")
    parser.add_argument("--threads", type=int, default=0, help="0: as each engine decides")
    parser.add_argument(
        "--shared",
        action="store_true",
        help="one thread, least processor time: for a machine that others use too",
    )
    parser.add_argument(
        "--ceiling",
        action="store_true",
        help="then where our time goes, beside the machine's peaks",
    )
    parser.add_argument(
        "--around", default="", help="a command that runs the one after it on a quiet machine"
    )
    parser.add_argument(
        "--exports",
        type=Path,
        default=ROOT / "results" / "exports",
        help="folder of the ONNX files",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "peers.json")
    return parser.parse_args(argv)


def environment(threads: int) -> dict[str, str]:
    """What children get: this tree's modules, and a number of threads."""
    found = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    }
    return found | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


def exported(name: str, folder: Path) -> Path:
    """The folder of a model's export, made if it is not there."""
    if not (folder / name / "expected.npy").exists():
        command = [sys.executable, "-m", "benchmarks.peers.export", name, str(folder / name)]
        subprocess.run(command, cwd=ROOT, env=environment(0), check=True, stdout=subprocess.DEVNULL)
    return folder / name


class Contender:
    """The process of one engine."""

    def __init__(self, engine: str, name: str, folder: Path, threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.peers.child", engine, name, str(folder)]
        self.engine, self.samples = engine, list[float]()
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(threads),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.answer: Row = {"error": "crashed", **(self._read() or {})}
        if "distance" in self.answer:
            del self.answer["error"]

    def _read(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def turn(self, seconds: float, quickest: bool) -> None:
        """One turn of so many seconds."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"seconds": seconds, "quickest": quickest}) + "\n")
        self.process.stdin.flush()
        self.samples.append(self._read())

    def close(self) -> None:
        """Let the process end."""
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


@contextlib.contextmanager
def inside(command: str) -> Iterator[None]:
    """While the block runs, so does ``command sh -c ...``, which has said that it began."""
    if not command:
        yield
        return
    waiting = [*shlex.split(command), "sh", "-c", "echo begun; cat > /dev/null"]
    process = subprocess.Popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    process.stdout.readline()
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()


def measure(name: str, settings: argparse.Namespace) -> list[Row]:
    """The rows of one model, one per engine."""
    folder = exported(name, settings.exports)
    contenders = [Contender(engine, name, folder, settings.threads) for engine in settings.engines]
    running = [contender for contender in contenders if "error" not in contender.answer]
    order = list(running)
    try:
        with inside(settings.around):
            for _ in range(settings.rounds):
                for contender in order:
                    contender.turn(settings.turn_seconds, settings.shared)
                order.append(order.pop(0))
    finally:
        for contender in contenders:
            contender.close()
    base = next((c.samples for c in running if c.engine == "eager"), None)
    return [_row(name, contender, base) for contender in contenders]


def _row(name: str, contender: Contender, base: list[float] | None) -> Row:
    row: Row = {"model": name, "engine": contender.engine, **contender.answer}
    if contender.samples:
        row |= {"samples": contender.samples, "seconds": spread(contender.samples).middle}
    if contender.samples and base:
        faster = ratio(base, contender.samples)
        row |= {"faster": faster.middle, "low": faster.low, "high": faster.high}
    return row


def cell(row: Row) -> str:
    """One number of the table."""
    if "error" in row:
        return row["error"][:14]
    wrong = " WRONG" if row["distance"] > LIMIT else ""
    if row["engine"] == "eager":
        return f"{row['seconds'] * 1e3:.3f} ms{wrong}"
    return f"{row['faster']:.2f} ({row['low']:.2f}-{row['high']:.2f}){wrong}"


def against_better(rows: list[Row], engine: str) -> dict[str, float]:
    """By model: the speed of an engine over that of the better of the two peers."""
    found: dict[str, float] = {}
    for name in {row["model"]: None for row in rows}:
        faster = {
            row["engine"]: row["faster"] for row in rows if row["model"] == name and "faster" in row
        }
        best = max((faster[peer] for peer in PEERS if peer in faster), default=None)
        if engine in faster and best:
            found[name] = faster[engine] / best
    return found


def print_table(rows: list[Row], engines: list[str]) -> None:
    """Times faster than eager, and the digest."""
    by = {(row["model"], row["engine"]): row for row in rows}
    print(f"{'':<16}" + "".join(f"{engine:<20}" for engine in engines))
    for name in {row["model"]: None for row in rows}:
        print(f"{name:<16}" + "".join(f"{cell(by[name, engine]):<20}" for engine in engines))
    for engine in engines:
        good = [row["faster"] for row in rows if row["engine"] == engine and "faster" in row]
        ours = against_better(rows, engine)
        if good and ours:
            worst = min(ours, key=lambda name: ours[name])
            better = f"of the better peer {geomean(list(ours.values())):.2f}, worst {ours[worst]:.2f} ({worst})"
            print(f"{engine:<16}geomean over eager {geomean(good):.2f}, {better}")


def main(argv: list[str]) -> None:
    """Measure and print."""
    settings = parse(argv)
    settings.engines = [part.strip() for part in settings.engines.split(",") if part.strip()]
    unknown = [engine for engine in settings.engines if engine not in ENGINES]
    if settings.shared:
        settings.threads = 1
    if unknown:
        sys.exit(f"no engine {unknown[0]!r}; engines: {', '.join(ENGINES)}")
    rows: list[Row] = []
    for name in select(settings.models):
        found = measure(name, settings)
        rows += found
        print(f"{name}: " + ", ".join(f"{row['engine']} {cell(row)}" for row in found), flush=True)
        settings.out.parent.mkdir(parents=True, exist_ok=True)
        settings.out.write_text(json.dumps(rows, indent=1))
    print_table(rows, settings.engines)
    if settings.ceiling:
        found = ceilings(select(settings.models), ROOT, environment(settings.threads))
        print_ceilings(found)
        settings.out.with_suffix(".ceiling.json").write_text(json.dumps(found, indent=1))
        settings.out.with_suffix(".svg").write_text(draw(found))
