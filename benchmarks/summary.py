"""benchmarks.summary: a run as tables and a plot. In: rows. Out: text, PNG."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.figures import geomean

Row = dict[str, Any]


@dataclass(frozen=True)
class Digest:
    """One engine in one phase and mode."""

    engine: str
    geomean: float
    worst: float
    worst_case: str
    cases: int
    failures: int


def group(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows by (phase, mode), in the order they came."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["phase"], row["mode"]), []).append(row)
    return groups


def digest(rows: list[Row], engine: str) -> Digest:
    """Geomean and worst case of an engine over the rows of one phase and mode."""
    own = [row for row in rows if row["engine"] == engine]
    good = [row for row in own if row["status"] == "ok" and "ratio" in row]
    if not good:
        return Digest(engine, math.nan, math.nan, "", 0, len(own))
    worst = min(good, key=lambda row: row["ratio"])
    mean = geomean([row["ratio"] for row in good])
    failed = sum(row["status"] != "ok" for row in own)
    return Digest(engine, mean, worst["ratio"], worst["case"], len(good), failed)


def time_text(seconds: float) -> str:
    """Seconds with a unit that fits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 0.995 or unit == "us":
            return f"{seconds * scale:.3g} {unit}"
    raise AssertionError("unreachable")


def cell(row: Row | None) -> str:
    """One number of the table: time, ratio with quartiles, memory."""
    if row is None:
        return ""
    if "seconds" not in row:
        return f"{row['status']}"
    text = time_text(row["seconds"])
    if "ratio" in row and row["engine"] != row["base"]:
        text += f"  {row['ratio']:.2f}x [{row['ratio_low']:.2f}-{row['ratio_high']:.2f}]"
    if "run_mb" in row:
        text += f"  +{row['compile_mb']:.0f}/{row['run_mb']:.0f} MB"
    return text if row["status"] == "ok" else f"{text} {row['status'].upper()}"


TITLES = {
    "cold": "first result, fresh process, empty caches (memory: compiling / running)",
    "warm": "first result, fresh process, filled caches (memory: compiling / running)",
    "steady": "one call, interleaved rounds",
    "overhead": "a call on tiny tensors whose graphs return at once",
    "capture": "first result, fresh process, backend eager",
    "trace": "first forward result, fresh process, backend aot_eager",
}


def print_tables(rows: list[Row], console: Console) -> None:
    """One table per phase and mode, with geomean and worst case under each engine."""
    for (phase, mode), members in group(rows).items():
        engines = list(dict.fromkeys(row["engine"] for row in members))
        base = members[0]["base"]
        table = Table(title=f"{phase}, {mode}: {TITLES[phase]}; ratios: times faster than {base}")
        table.add_column("program")
        for engine in engines:
            table.add_column(engine, justify="right")
        by_place = {(row["case"], row["engine"]): row for row in members}
        for case in dict.fromkeys(row["case"] for row in members):
            table.add_row(case, *(cell(by_place.get((case, engine))) for engine in engines))
        table.add_section()
        digests = [digest(members, engine) for engine in engines]
        table.add_row("geomean", *(_mean_text(d, base) for d in digests))
        table.add_row("worst", *(_worst_text(d, base) for d in digests))
        console.print(table)
        for row in members:
            if row.get("detail"):
                console.print(f"  {row['case']} {row['engine']}: {row['detail']}", style="dim")


def _mean_text(item: Digest, base: str) -> str:
    if item.engine == base or not item.cases:
        return ""
    failed = f", {item.failures} failed" if item.failures else ""
    return f"{item.geomean:.3f}x of {item.cases}{failed}"


def _worst_text(item: Digest, base: str) -> str:
    return "" if item.engine == base or not item.cases else f"{item.worst:.3f}x {item.worst_case}"


def plot(rows: list[Row], path: Path, across: int = 3) -> bool:
    """Bars of the ratios with their spread, one panel per phase and mode; False: nothing to draw."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = [row for row in rows if "ratio" in row and row["engine"] != row["base"]]
    panels = group(drawn)
    if not panels:
        return False
    most = max(len({row["case"] for row in members}) for members in panels.values())
    across = min(len(panels), across)
    down = -(-len(panels) // across)
    figure, axes = pyplot.subplots(
        down, across, figsize=(5.5 * across, (1.6 + 0.45 * most) * down), squeeze=False
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, ((phase, mode), members) in zip(axes.flat, panels.items(), strict=False):
        _panel(axis, members)
        axis.set_title(f"{TITLES[phase].partition(' (')[0]}; {mode}", fontsize="medium")
        axis.set_xlabel(f"times faster than {members[0]['base']}")
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    return True


def _panel(axis: Any, rows: list[Row]) -> None:
    cases = list(dict.fromkeys(row["case"] for row in rows))
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    height = 0.8 / len(engines)
    for number, engine in enumerate(engines):
        own = [row for row in rows if row["engine"] == engine]
        places = [cases.index(row["case"]) + number * height for row in own]
        middles = [row["ratio"] for row in own]
        errors = [
            [max(row["ratio"] - row["ratio_low"], 0) for row in own],
            [max(row["ratio_high"] - row["ratio"], 0) for row in own],
        ]
        axis.barh(places, middles, height, xerr=errors, label=engine, left=0)
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.set_yticks([i + 0.4 - height / 2 for i in range(len(cases))], cases)
    axis.set_xscale("log")
    axis.invert_yaxis()
    axis.legend(fontsize="small")
