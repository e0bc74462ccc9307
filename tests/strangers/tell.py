"""``python -m tests.strangers.tell [names] [--backend=...]``: sessions in one process, what differs is printed."""

from __future__ import annotations

import sys
import time

import torch

import tests.strangers.stories  # noqa: F401
from tests.strangers.sessions import SESSIONS, tell


def main() -> int:
    """Run them."""
    torch.set_num_threads(1)
    backends = [word[10:] for word in sys.argv[1:] if word.startswith("--backend=")] or [
        "argand",
        "aot_eager",
        "eager",
    ]
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    start, bad = time.thread_time(), 0
    for name in names or SESSIONS:
        for backend in backends:
            found = tell(name, backend)
            if found:
                bad += 1
                print(f"{name} [{backend}]: {found[:500]}", flush=True)
    print(f"{len(names or SESSIONS)} sessions, {bad} differ, {time.thread_time() - start:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
