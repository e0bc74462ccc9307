"""benchmarks.peers.roof: the ceiling of models, as a table and as a picture. In: rows of ``ceiling``. Out: text, SVG.

The roof: operations per second can be no more than the processor's, and no more than memory feeds it with.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

Row = Mapping[str, Any]
SHORT: Final = {"convolution": "conv", "product": "product", "attention": "attention", "kernel": "kernels",
                "torch": "torch", "keep": "watch", "overhead": "rest"}  # fmt: skip
WIDE, HIGH, EDGE = 720, 440, 50


def ceilings(names: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[Row]:
    """The rows of some models, each measured in a process of its own."""
    found = []
    for name in names:
        command = [sys.executable, "-m", "benchmarks.peers.ceiling", name]
        ran = subprocess.run(
            command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
        )
        lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
        found += [json.loads(line) for line in lines]
    return found


def print_ceilings(rows: Sequence[Row]) -> None:
    """One line for each model: shares of its time, operations and bytes against the peaks."""
    heads = "".join(f"{name:>10}" for name in SHORT.values())
    print(f"{'':<16}{'ms':>9}{heads}{'GFLOP/s':>10}{'of peak':>9}{'GB/s':>8}{'of peak':>9}")
    for row in rows:
        seconds, (operations, moved) = row["seconds"], row["peaks"]
        total = sum(row["kinds"].values())
        shares = "".join(f"{row['kinds'][kind] / total:>10.1%}" for kind in SHORT)
        rate, read = row["flops"] / seconds, row["bytes"] / seconds
        numbers = (
            f"{rate / 1e9:>10.1f}{rate / operations:>9.0%}{read / 1e9:>8.1f}{read / moved:>9.0%}"
        )
        print(f"{row['model']:<16}{seconds * 1e3:>9.3f}{shares}{numbers}")


def draw(rows: Sequence[Row]) -> str:
    """All models under the roof, in logarithmic scales: operations per byte, operations per second."""
    operations, moved = (max(row["peaks"][k] for row in rows) for k in (0, 1))
    points = [
        (row["flops"] / max(row["bytes"], 1), row["flops"] / row["seconds"], row["model"])
        for row in rows
    ]
    left, right = min(0.5, *(p[0] for p in points)) / 2, max(100.0, *(p[0] for p in points)) * 2
    low, high = min(p[1] for p in points) / 4, operations * 2

    def x(intensity: float) -> float:
        return EDGE + (WIDE - 2 * EDGE) * math.log(intensity / left) / math.log(right / left)

    def y(rate: float) -> float:
        return (
            HIGH - EDGE - (HIGH - 2 * EDGE) * math.log(max(rate, low) / low) / math.log(high / low)
        )

    roof = [(left, left * moved), (operations / moved, operations), (right, operations)]
    line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in roof)
    marks = "".join(
        f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="4"/><text x="{x(a) + 6:.1f}" y="{y(b) + 4:.1f}">{name}</text>'
        for a, b, name in points
    )
    title = f"{operations / 1e9:.0f} GFLOP/s, {moved / 1e9:.0f} GB/s; right: operations per byte, up: per second"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" font-family="sans-serif" font-size="11">'
        f'<text x="{EDGE}" y="20">{title}</text><polyline points="{line}" fill="none" stroke="black"/>{marks}</svg>'
    )
