"""benchmarks.memory: the largest resident memory of this process since a mark, on Linux."""

from __future__ import annotations

import contextlib
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _megabytes(field: str) -> float:
    if not STATUS.exists():
        return float("nan")
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return float("nan")


def mark() -> float:
    """Forget the peak so far; what is resident now, in MB."""
    with contextlib.suppress(OSError):
        CLEAR.write_text("5")
    return _megabytes("VmRSS")


def peak() -> float:
    """The most that was resident since the last mark, in MB."""
    return _megabytes("VmHWM")
