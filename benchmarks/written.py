"""benchmarks.written: write the measured ratios into docs/benchmarks.md and README.md.

``make bench && python -m benchmarks.written`` measures and writes. In: a results file of the harness (the newest, or the
one given). Out: the tables between the markers, and the picture of both pages.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.phases import ROOT
from benchmarks.summary import digest, group, plot, time_text

BEGIN = "<!-- measured:begin (python -m benchmarks.written) -->"
END = "<!-- measured:end -->"
SUMMARY_BEGIN = "<!-- summary:begin (python -m benchmarks.written) -->"
SUMMARY_END = "<!-- summary:end -->"
WORDS = {"infer": "inference", "train": "training"}
SUMMARY = (  # rows of the README's table: words, phase, engine
    ("first result, empty caches: times faster than torch.compile", "cold", "argand"),
    ("the same, ONNX Runtime (its export is part of it)", "cold", "onnxruntime"),
    ("first result, filled caches: times faster than torch.compile", "warm", "argand"),
    ("one call: times faster than eager", "steady", "argand"),
    ("the same, torch.compile", "steady", "torch"),
    ("the same, ONNX Runtime", "steady", "onnxruntime"),
)
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
        return "-" if row is None or row["status"] == "missing" else row["status"]
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
    means = [
        "" if d.engine == base or not d.cases else f"{d.geomean:.2f}x, worst {d.worst:.2f}x"
        for d in found
    ]
    lines.append("| **geomean** | " + " | ".join(means) + " |")
    return [*lines, ""]


def _between(text: str, begin: str, end: str, lines: list[str]) -> str:
    """The text with these lines between two markers; ValueError when they are missing."""
    return text[: text.index(begin)] + "\n".join([begin, *lines]) + "\n" + text[text.index(end) :]


def fill(text: str, data: dict[str, Any]) -> str:
    """The page with all tables of a run."""
    about = data["machine"]
    lines = [
        f"Measured on {about['cpu']}, {about['cores']} cores, torch {about['torch']}, "
        f"at {about['commit']}; medians, contenders interleaved.",
        "",
    ]
    for (phase, mode), rows in group(data["rows"]).items():
        lines += table(phase, mode, rows)
    return _between(text, BEGIN, END, lines)


def summary(text: str, data: dict[str, Any]) -> str:
    """The README with the geomeans of a run."""
    groups, about = group(data["rows"]), data["machine"]
    modes = [mode for mode in ("infer", "train") if any(found == mode for _, found in groups)]
    cases = list(
        dict.fromkeys(
            row["case"] for (phase, _), rows in groups.items() if phase == "steady" for row in rows
        )
    )
    lines = [
        f"Geomean over {', '.join(cases)} ({about['cpu']}, {about['cores']} cores, torch {about['torch']}, "
        f"at {about['commit']}); worst in brackets.",
        "",
        "| | " + " | ".join(WORDS[mode] for mode in modes) + " |",
        "|---" * (len(modes) + 1) + "|",
    ]
    for words, phase, engine in SUMMARY:
        cells = [_mean(groups.get((phase, mode), []), engine) for mode in modes]
        if any(cells):
            lines.append(f"| {words} | " + " | ".join(cell or "-" for cell in cells) + " |")
    return _between(text, SUMMARY_BEGIN, SUMMARY_END, lines)


def _mean(rows: list[Row], engine: str) -> str:
    if not any(row["engine"] == engine for row in rows):
        return ""
    found = digest(rows, engine)
    return f"{found.geomean:.2f} [{found.worst:.2f}]" if found.cases else ""


def main() -> None:
    """Fill docs/benchmarks.md, README.md and their picture from the newest results, or from the file given."""
    found = sorted((ROOT / "results").glob("bench-*.json"))
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else (found[-1] if found else None)
    if path is None:
        sys.exit("no results yet: run `make bench` first")
    data = json.loads(path.read_text())
    for target, write in ((ROOT / "docs" / "benchmarks.md", fill), (ROOT / "README.md", summary)):
        target.write_text(write(target.read_text(), data))
        print(f"{target.name} filled from {path.name}")
    drawn = [row for row in data["rows"] if row["phase"] in ("cold", "steady")]
    if plot(drawn, ROOT / "docs" / "benchmark.png", across=2):
        print("docs/benchmark.png drawn")


if __name__ == "__main__":
    main()
