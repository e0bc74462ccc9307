"""benchmarks.language.table: the rows, printed and counted."""

from __future__ import annotations

from collections import Counter

from benchmarks.language.program import Program
from benchmarks.sweep import Row

RANKS = {"one graph": 2, "graphs": 1, "eager": 0}


def show(programs: dict[str, Program], ours: list[Row], theirs: list[Row]) -> int:
    """Print the table; 1 when a row of ours is wrong, an error, or behind without a reason."""
    rival = {row["task"]: row for row in theirs}
    print(f"\n{'program':<52} {'argand':<14} {'torch.compile':<14} remarks")
    bad: list[str] = []
    for row in ours:
        key, other = row["task"], rival.get(row["task"])
        program = programs[key]
        behind = is_behind(row, other) and not program.reason
        failed = row["status"] not in ("one graph", "graphs", "eager")
        mark = "BEHIND " if behind else "BAD " if failed else ""
        remark = program.reason or row.get("cause", "")
        print(f"{key:<52} {_cell(row):<14} {_cell(other):<14} {mark}{remark[:150]}")
        if behind or failed:
            bad.append(key)
    _count("argand", ours)
    if theirs:
        _count("torch.compile", theirs)
        both = [(row, rival[row["task"]]) for row in ours if row["task"] in rival]
        ahead = sum(is_behind(other, row) for row, other in both)
        print(f"captured further here: {ahead}; there: {sum(is_behind(a, b) for a, b in both)}")
        print(f"more graphs here than there: {[a['task'] for a, b in both if _more(a, b)]}")
    print(f"{len(ours)} programs; bad or behind without a reason: {len(bad)} {bad}")
    return int(bool(bad))


def is_behind(row: Row, other: Row | None) -> bool:
    """Whether the other one captured more: one graph against several or none, some against none."""
    return other is not None and RANKS.get(row["status"], -1) < RANKS.get(other["status"], -1)


def _more(row: Row, other: Row) -> bool:
    return row["status"] == other["status"] in RANKS and row["graphs"] > other["graphs"]


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    number = row.get("graphs", 0)
    text = {"graphs": f"{number} graphs", "one graph": "one graph"}.get(
        row["status"], row["status"]
    )
    return f"{text} ({number})" if row["status"] == "one graph" and number > 1 else text


def _count(name: str, rows: list[Row]) -> None:
    counts = Counter(row["status"] for row in rows)
    print(f"{name}: " + ", ".join(f"{number} {status}" for status, number in counts.most_common()))
