"""report.causes: problems in the order they should be mended, effects under their causes.

In: problems as they were found. Out: the same as a list of causes: what recurs at every call comes before what happens once,
and what goes away with something else stands under it (``effects``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from argand.report.calls import Watcher
from argand.report.collect import Collected
from argand.runtime.describe import is_of_a_break

# Kinds that happen once, each time something changes; all others recur at every call.
_ONCE: Final = frozenset({"recompile", "slower", "too few calls", "nothing compiled"})
# With these nothing compiled runs, or what runs is wrong: they come before what only costs time.
_FIRST: Final = frozenset({"wrong result", "recompile limit", "runs in Python", "fallback"})


class Seen(NamedTuple):
    """What finders look at."""

    data: Mapping[str, Any]
    collected: Collected
    watcher: Watcher


def make_problem(
    kind: str, title: str, where: Any, count: int, cost: float | None, fix: str, **more: Any
) -> dict[str, Any]:
    """One row; ``edit``: the line to be edited, where that is another one."""
    edit = more.get("edit")
    return {
        "kind": kind,
        "title": title,
        "where": where,
        "edit": None if edit is None or _line(edit) == _line(where) else edit,
        "count": count,
        "cost_ms": cost,
        "recurs": kind not in _ONCE,
        "fix": fix,
        "note": more.get("note", ""),
        "stack": more.get("stack", []),
        "compiles": more.get("compiles", []),
        "effects": [],
        "function": None,  # that was compiled again
    }


def ordered(problems: list[dict[str, Any]], seen: Seen) -> list[dict[str, Any]]:
    """Causes in their order, each with its effects."""
    for problem in problems:
        cause = _cause(problem, problems, seen)
        if cause is not None:
            cause["effects"].append(problem)
    under = {id(effect) for problem in problems for effect in problem["effects"]}
    causes = [problem for problem in problems if id(problem) not in under]
    for problem in causes:
        problem["effects"] = [each for effect in problem["effects"] for each in _flat(effect)]
    return sorted(causes, key=_rank)


def _flat(problem: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An effect and its own effects, side by side: a reader needs the cause, not the chain."""
    inner, problem["effects"] = problem["effects"], []
    yield problem
    for effect in inner:
        yield from _flat(effect)


def _rank(problem: Mapping[str, Any]) -> tuple[Any, ...]:
    cost = sum(each["cost_ms"] or 0.0 for each in (problem, *problem["effects"]))
    return (
        not problem["recurs"],
        problem["kind"] not in _FIRST,
        not cost,
        -cost,
        -problem["count"],
    )


def _line(where: Mapping[str, Any] | None) -> tuple[str, int] | None:
    return None if where is None else (where["file"], where["line"])


# --- what goes away with something else ------------------------------------------------------


def _cause(
    problem: Mapping[str, Any], problems: Iterable[dict[str, Any]], seen: Seen
) -> dict[str, Any] | None:
    """What a problem comes from: a recompile has three kinds of causes."""
    if problem["kind"] != "recompile":
        return None
    for other in problems:
        if other is not problem and (
            _is_past_its_limit(problem, other)
            or _is_of_its_break(problem, other)
            or _follows(problem, other, seen)
        ):
            return other
    return None


def _is_past_its_limit(problem: Mapping[str, Any], limit: Mapping[str, Any]) -> bool:
    """The compiles that used up the limit."""
    return limit["kind"] == "recompile limit" and limit["function"] == problem["function"]


def _is_of_its_break(problem: Mapping[str, Any], broken: Mapping[str, Any]) -> bool:
    """What changed is a value that a graph break left, on its line."""
    of_break = broken["kind"] == "graph break" and is_of_a_break(problem["title"])
    return of_break and _line(problem["where"]) == _line(broken["where"])


def _follows(problem: Mapping[str, Any], first: Mapping[str, Any], seen: Seen) -> bool:
    """Each time it was compiled again because something else had been, earlier in the same call."""
    if first["kind"] != "recompile" or min(first["compiles"]) > min(problem["compiles"]):
        return False
    leading = set(first["compiles"])
    calls = [
        call.compiles
        for function in seen.watcher.functions.values()
        for call in function.calls
        if call.compiles
    ]
    return all(
        any(
            number in call and leading.intersection(call[: call.index(number)] or ())
            for call in calls
        )
        for number in problem["compiles"]
    )
