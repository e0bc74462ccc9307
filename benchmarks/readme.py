"""benchmarks.readme: write the measured ratios into README.md (``python -m benchmarks.readme``).

In: a results file of the harness (the newest, or the one given). Out: the table between the markers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.phases import ROOT
from benchmarks.summary import digest, group, time_text

BEGIN = "<!-- measured:begin (python -m benchmarks.readme) -->"
END = "<!-- measured:end -->"
HEADINGS = {
    "cold": "First result, empty caches",
    "warm": "First result, filled caches",
    "steady": "One call, steady state",
    "overhead": "Overhead of a call",
    "capture": "Capture alone (backend eager), fresh process",
    "trace": "Capture and joint graph (backend aot_eager), fresh process",
}
Row = dict[str, Any]


def _cell(row: Row | None) -> str:
    if row is None or "seconds" not in row:
        return "-" if row is None else row["status"]
    text = time_text(row["seconds"])
    if "ratio" in row and row["engine"] != row["base"]:
        text += f" ({row['ratio']:.2f}x)"
    return text if row["status"] == "ok" else f"{text} **{row['status']}**"


def table(phase: str, mode: str, rows: list[Row]) -> list[str]:
    """The Markdown table of one phase and mode."""
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    base = rows[0]["base"]
    lines = [f"{HEADINGS[phase]}, {mode}; in brackets: times faster than {base}", ""]
    lines.append("| program | " + " | ".join(engines) + " |")
    lines.append("|---" * (len(engines) + 1) + "|")
    places = {(row["case"], row["engine"]): row for row in rows}
    for case in dict.fromkeys(row["case"] for row in rows):
        cells = [_cell(places.get((case, engine))) for engine in engines]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    found = [digest(rows, engine) for engine in engines]
    means = ["" if d.engine == base or not d.cases else f"{d.geomean:.2f}x, worst {d.worst:.2f}x" for d in found]
    lines.append("| **geomean** | " + " | ".join(means) + " |")
    return [*lines, ""]


def fill(text: str, data: dict[str, Any]) -> str:
    """The text with the table of a run between the markers; ValueError when they are missing."""
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    about = data["machine"]
    lines = [
        BEGIN,
        f"Measured on {about['cpu']}, {about['cores']} cores, torch {about['torch']}, "
        f"at {about['commit']}; medians, contenders interleaved.",
        "",
    ]
    for (phase, mode), rows in group(data["rows"]).items():
        lines += table(phase, mode, rows)
    return head + "\n".join(lines) + tail


def main() -> None:
    """Fill README.md from the newest results, or from the file given."""
    found = sorted((ROOT / "results").glob("bench-*.json"))
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else (found[-1] if found else None)
    if path is None:
        sys.exit("no results yet: run `make bench` first")
    target = ROOT / "README.md"
    target.write_text(fill(target.read_text(), json.loads(path.read_text())))
    print(f"README.md filled from {path.name}")


if __name__ == "__main__":
    main()
