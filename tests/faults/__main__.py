"""``python -m tests.faults [--only NAMES] [--json]``: 20 planted faults, what is found of each, and how long it takes."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.faults.planting import FAULTS, VARIABLE

ROOT = Path(__file__).resolve().parents[2]


def bisected(name: str, folder: Path) -> dict[str, Any]:
    """Run the command on the program of a fault, with the fault in it and in all it starts."""
    fault = FAULTS[name]
    script = folder / "program.py"
    script.write_text(fault.program)
    paths = [
        str(ROOT / "tests" / "faults" / "planted"),
        str(ROOT),
        os.environ.get("PYTHONPATH", ""),
    ]
    environment = os.environ | {VARIABLE: name, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    words = [
        "bisect",
        "--json",
        "-o",
        str(folder / "minimal.py"),
        *["--slow"] * fault.slow,
        str(script),
    ]
    begin = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", "argand", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not ended.stdout.startswith("{"):
        raise RuntimeError(f"{name}: {ended.stdout[-500:]}{ended.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(ended.stdout)
    minimal = folder / "minimal.py"
    found |= {
        "wall": time.perf_counter() - begin,
        "text_of_script": minimal.read_text() if minimal.exists() else "",
    }
    return found


def is_found(name: str, found: dict[str, Any]) -> bool:
    """Whether stage and part are those where the fault is."""
    culprit = found["culprit"] or {}
    named = " ".join([culprit.get("says", ""), culprit.get("part", ""), *found["kernels"]])
    return culprit.get("stage") == FAULTS[name].stage and FAULTS[name].part in named


def main() -> int:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(FAULTS))
    parser.add_argument("--scripts", action="store_true", help="print the minimal scripts")
    options = parser.parse_args()
    wrong = 0
    print(
        f"{'fault':<22} {'failure':<8} {'stage':<9} {'guilty':<58} {'alone':<6} {'ops':>3} {'lines':>5} {'runs':>4} {'time':>7}"
    )
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found = bisected(name, Path(folder))
        good = is_found(name, found) and found["fails_alone"]
        wrong += not good
        kind, culprit = (
            (found["symptom"] or {}).get("kind", "none"),
            found["culprit"] or {"stage": "-", "says": "-"},
        )
        row = f"{name:<22} {kind:<8} {culprit['stage']:<9} {culprit['says'][:58]:<58} {found['fails_alone']!s:<6}"
        print(
            f"{row} {found['nodes']:>3} {found['lines']:>5} {found['trials']:>4} {found['seconds']:>6.1f}s",
            end="",
        )
        print("" if good else "   NOT AS PLANTED", flush=True)
        if options.scripts:
            print(found["text_of_script"])
    print(f"{len(options.only.split(',')) - wrong} of {len(options.only.split(','))} as planted")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
