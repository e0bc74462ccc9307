"""Print the error of every maths function: python -m tests.vector_math.ulp_table [--write] [names]

``--write`` puts what was measured, and the bounds of ``table``, into docs/maths.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.vector_math import measure
from tests.vector_math.table import TABLE

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "maths.md"
COLUMN = {np.float32: 2, np.float64: 7}  # of `max` in the table of the document; `bound` follows


def written(text, name, kind, greatest):
    """The document with one measured error and its bound."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith(f"| {name} |"):
            cells = line.split("|")
            bound = TABLE[name].ulp[int(kind == np.float64)]
            cells[COLUMN[kind] : COLUMN[kind] + 2] = [f" {greatest:.2f} ", f" {bound} "]
            lines[number] = "|".join(cells)
    return "\n".join(lines) + "\n"


def main():
    names = [name for name in sys.argv[1:] if name != "--write"]
    print(f"{'function':10s} {'type':8s} {'max ULP':>8s} {'mean':>6s} {'promised':>8s}  worst at")
    for name in names or TABLE:
        for kind, per_exponent, dense in (
            (np.float32, 20_000, 2_000_000),
            (np.float64, 200, 200_000),
        ):
            greatest, mean, where, got, wanted = measure.worst(name, kind, per_exponent, dense)
            promised = TABLE[name].ulp[int(kind == np.float64)]
            places = ", ".join(f"{float(x):.9g}" for x in where)
            print(
                f"{name:10s} {kind.__name__:8s} {greatest:8.3f} {mean:6.3f} {promised:8.1f}  "
                f"{places} -> {float(got):.9g}",
                flush=True,
            )
            if "--write" in sys.argv:
                DOCUMENT.write_text(written(DOCUMENT.read_text(), name, kind, greatest))


if __name__ == "__main__":
    main()
