"""report.machine: what the machine is and does: its bandwidth, and the memory of the process over time."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from typing import Any, Final, final

import torch

from argand.runtime import _native
from argand.support.platform import processor_lines, resident_bytes

_EVERY: Final = 0.02  # seconds between two looks
_MOST: Final = 4_000  # points; then every other one is dropped and looks are half as frequent
_COPIED: Final = 1 << 26  # bytes


def measure_bandwidth() -> float:
    """Bytes per second that a copy by all threads reads and writes together."""
    source = torch.ones(_COPIED // 4)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(4):
        begin = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - begin)
    return 2 * _COPIED / best


def describe() -> dict[str, Any]:
    """The machine and the versions."""
    names = [line.partition(":")[2].strip() for line in processor_lines(("model name",))]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "bandwidth": measure_bandwidth(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }


@final
class MemoryWatch:
    """A thread that looks at the memory of the process every few milliseconds."""

    def __init__(self, begin: float) -> None:
        self.points: list[
            tuple[float, int, int]
        ] = []  # seconds, bytes of the process, bytes of our arenas
        self._begin, self._every = begin, _EVERY
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="argand-report-memory", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """One point."""
        resident = resident_bytes()
        if resident is not None:
            held = sum(value for key, value in _native.arena_statistics().items() if "bytes" in key)
            self.points.append((time.perf_counter() - self._begin, resident, held))

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self.look()
            if len(self.points) > _MOST:
                self.points, self._every = self.points[::2], self._every * 2

    def stop(self) -> None:
        """No more looks."""
        self._stop.set()
        self._thread.join()
        self.look()
