"""``python -m tests.strangers.run [names]``: all programs in one process, what differs is printed."""

from __future__ import annotations

import sys
import time

import torch

import tests.strangers.programs  # noqa: F401
from tests.strangers.harness import PROGRAMS, check


def main() -> int:
    """Run them."""
    torch.set_num_threads(1)
    bad = 0
    start = time.monotonic()
    backends = [word[10:] for word in sys.argv[1:] if word.startswith("--backend=")] or ["argand"]
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    chosen = [p for p in PROGRAMS.values() if not names or p.name in names]
    for program in chosen:
        for backend in backends:
            found = check(program, backend=backend)
            if found:
                bad += 1
                print(f"{program.name} [{backend}]: {found[:600]}", flush=True)
    print(f"{len(chosen)} programs, {bad} differ, {time.monotonic() - start:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
