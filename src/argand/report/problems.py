"""report.problems: what a reader should mend, by his own lines: what, how often, what it cost, and the fix.

In: the data of a report and what was collected. Out: rows, in the order they should be mended (``report.causes``). Every kind
of problem is one function below and one row of ``_FINDERS``; recompiles have a module of their own.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from argand.report import lines, recompiles
from argand.report.calls import Watcher
from argand.report.causes import Seen, make_problem, ordered
from argand.report.collect import Collected
from argand.report.turns import COMPILED, IN_PYTHON

_MUCH: Final = 0.2  # of the time, from which on an operator of torch is worth a word


def find_problems(
    data: Mapping[str, Any], collected: Collected, watcher: Watcher
) -> list[dict[str, Any]]:
    """All problems: what recurs at every call first, effects under their causes."""
    seen = Seen(data, collected, watcher)
    return ordered([problem for finder in _FINDERS for problem in finder(seen)], seen)


# --- wrong results ---------------------------------------------------------------------------


def _wrong(seen: Seen) -> Iterator[dict[str, Any]]:
    """Where compiled code and eager gave different results, when that was looked at."""
    for difference in (seen.data["differences"] or {}).get("found", []):
        fix = f"argand bisect {seen.data['program']} finds the guilty part and writes a script that fails by itself"
        yield make_problem("wrong result", difference["text"], difference["where"], 1, None, fix)


# --- graph breaks ----------------------------------------------------------------------------


def _breaks(seen: Seen) -> Iterator[dict[str, Any]]:
    """Graphs that ended early: how often the end was passed, and the time until the next graph began."""
    costs: dict[int, list[float]] = collections.defaultdict(list)
    for function in seen.watcher.functions.values():
        for call in function.calls:
            if call.kind == "compiled":
                for graph, seconds in call.gaps:
                    costs[seen.collected.graphs[graph]["compile"]].append(seconds)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for made in seen.collected.compiles:
        broken = (made.frame or {}).get("broken")
        if broken is None:
            continue
        key = (broken["reason"], broken["where"])
        stack = [lines.located(place) for place in broken["stack"]]
        row = rows.setdefault(
            key,
            make_problem(
                "graph break",
                broken["reason"],
                lines.of_user(broken["where"], broken["stack"]),
                0,
                0.0,
                broken["hint"],
                stack=stack,
                edit=lines.of_origin(broken["edit"]),
            ),
        )
        hits = made.entry["entry"].hits if made.entry else 0
        row["count"] += hits
        row["cost_ms"] += (
            statistics.mean(costs[made.number]) * hits * 1e3 if costs[made.number] else 0.0
        )
        row["compiles"].append(made.number)
        row["note"] = (
            "the cost is Python and guards between two graphs; what fusing across it would save comes on top"
        )
    for row in rows.values():
        row["cost_ms"] = row["cost_ms"] or None
    yield from rows.values()


def _left(seen: Seen) -> Iterator[dict[str, Any]]:
    """Frames that run in Python as a whole."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for made in (seen.collected.nothing, *seen.collected.compiles):
        for name, fields in made.notes:
            if name != "left":
                continue
            stack = [lines.located(place) for place in fields["stack"]]
            key = (fields["reason"], fields["where"])
            note = f"{lines.function_name(made.label)} runs in Python, with nothing compiled in it"
            row = rows.setdefault(
                key,
                make_problem(
                    "runs in Python",
                    fields["reason"],
                    lines.of_user(fields["where"], fields["stack"]),
                    0,
                    None,
                    fields["hint"],
                    stack=stack,
                    note=note,
                    edit=lines.of_origin(fields.get("edit", "")),
                ),
            )
            row["count"] += 1
            row["compiles"].append(made.number)
            if row["count"] > 1:
                row["note"] = f"{note}; tried {row['count']} times, each time later"
    yield from rows.values()


def _failures(seen: Seen) -> Iterator[dict[str, Any]]:
    """Frames that our own failure left to eager."""
    for made in (seen.collected.nothing, *seen.collected.compiles):
        for name, fields in made.notes:
            if name == "failed":
                fix = "report it with this page; argand.disable on this function keeps it quiet"
                title = f"Argand could not compile it: {fields['error'].splitlines()[0]}"
                note = "the function runs in eager"
                yield make_problem(
                    "fallback",
                    title,
                    lines.located(fields["where"]),
                    1,
                    made.seconds * 1e3,
                    fix,
                    note=note,
                    compiles=[made.number],
                )


_FALLBACKS: Final = {
    "autograd.fallback": (
        "the graph could not be differentiated ahead of time and runs as captured, by torch's kernels one by one",
        "move what it names out of the compiled function, or call it under torch.no_grad()",
    ),
    "foreign.eager": ("the graph runs in eager", "look at the reason"),
    "native.not_functional": (
        "the graph writes to intermediate values and is run op by op",
        "use the out-of-place form of the operators",
    ),
    "graph.raised": (
        "a compiled graph raised, and the call was run again in Python",
        "mend the error it tells",
    ),
    "capture.too_deep": ("it recurses too deep to be traced", "turn the recursion into a loop"),
}


def _fallbacks(seen: Seen) -> Iterator[dict[str, Any]]:
    for made in (seen.collected.nothing, *seen.collected.compiles):
        for (counter, detail), amount in made.counts.items():
            if counter in _FALLBACKS:
                title, fix = _FALLBACKS[counter]
                where = lines.located(
                    (made.frame or {}).get("where") or (made.entry or {}).get("where")
                )
                title = f"{title}: {detail}" if detail else title
                yield make_problem(
                    "fallback", title, where, amount, None, fix, compiles=[made.number]
                )


# --- slow ------------------------------------------------------------------------------------


def _slower(seen: Seen) -> Iterator[dict[str, Any]]:
    """Graphs that lost against eager."""
    for name, fields in seen.collected.nothing.notes:
        if name == "trial" and not fields["fast"]:
            ours, eager = fields["ours"] * 1e3, fields["eager"] * 1e3
            title = f"the compiled graph is slower than eager ({ours:.3f} ms against {eager:.3f} ms): eager runs it from now on"
            fix = "nothing to do: it costs nothing more; options={'measure': False} would use the compiled one"
            yield make_problem("slower", title, lines.of_origin(fields["origin"]), 1, None, fix)


def _torch_time(seen: Seen) -> Iterator[dict[str, Any]]:
    """Operators of torch, not products, that take much of the time."""
    for kernel in seen.data["kernels"]:
        if kernel["kind"] == "torch" and kernel["share"] > _MUCH and kernel["calls"]:
            where = kernel["lines"][0] if kernel["lines"] else None
            why = next(
                (row["why"] for row in seen.data["torch_ops"] if row["op"] == kernel["name"]), ""
            )
            title = f"{kernel['name']} takes {kernel['share']:.0%} of the time in compiled graphs, in torch's own kernel"
            fix = f"{why or 'torch is called for it'}; if you can, say it with other operators, or give it code (argand.custom_op)"
            yield make_problem(
                "torch's operator",
                title,
                where,
                kernel["calls"],
                kernel["seconds"] * 1e3,
                fix,
                compiles=[kernel["compile"]],
            )


def _gradients(seen: Seen) -> Iterator[dict[str, Any]]:
    """Results that could be differentiated, and never are."""
    for function in seen.data["functions"]:
        if function["wants_gradients"] and not function["backward"] and function["calls"] > 1:
            title = "gradients are recorded in every call and no backward pass ever came"
            fix = "call it under torch.no_grad() or torch.inference_mode(): weights can then be packed once, and nothing is saved"
            yield make_problem(
                "wasted gradients", title, function["where"], function["calls"], None, fix
            )


def _threads(seen: Seen) -> Iterator[dict[str, Any]]:
    machine = seen.data["machine"]
    if machine["threads"] < machine["cores"] // 2 or (
        machine["threads"] == 1 and machine["cores"] > 1
    ):
        title = f"torch runs {machine['threads']} thread{'s' * (machine['threads'] > 1)} on a machine with {machine['cores']} cores"
        fix = f"torch.set_num_threads({machine['cores']}), or look at OMP_NUM_THREADS"
        yield make_problem("threads", title, None, 1, None, fix)


def _overhead(seen: Seen) -> Iterator[dict[str, Any]]:
    """Calls that spend their time outside of graphs although nothing breaks them."""
    broken = {number for problem in _breaks(seen) for number in problem["compiles"]}
    for function in seen.data["functions"]:
        forward, outside = function["forward_ms"], function["outside_ms"]
        if not forward or broken & set(function["compiles"]) or not function["compiles"]:
            continue
        if outside == forward:  # no graph ran: it is said elsewhere why
            continue
        if outside > 0.5 * forward and outside > 0.02:
            title = f"{outside:.3f} of {forward:.3f} ms of a call pass outside of graphs, in Python around them"
            fix = (
                "compile more of the loop around it, or give it more work per call (a larger batch)"
            )
            yield make_problem(
                "little work",
                title,
                function["where"],
                function["calls"],
                outside * function["calls"],
                fix,
            )


def _unseen(seen: Seen) -> Iterator[dict[str, Any]]:
    """What cannot be told: too little ran."""
    functions = seen.data["functions"]
    if not seen.data["compiles"] and not functions and not seen.data["ended"]:
        fix = "put argand.compile (or torch.compile) on the model or on the function of a step"
        yield make_problem(
            "nothing compiled", "nothing was compiled in this run", None, 1, None, fix
        )
    for function in functions:
        alone = IN_PYTHON in function["kinds"] and COMPILED not in function["kinds"]
        if function["speedup"] is None and seen.watcher.take_turns and not alone:
            kinds = ", ".join(
                f"{count} {_KINDS[kind]}" for kind, count in function["kinds"].items()
            )
            title = f"too few calls to compare with eager: {function['calls']} in all ({kinds})"
            fix = f"call it {_FEW_CALLS} times or more in the program, or use argand bench FILE.py:FUNCTION"
            yield make_problem(
                "too few calls", title, function["where"], function["calls"], None, fix
            )


_KINDS: Final = {
    "compile": "that compiled something",
    "beside": "while another thread compiled",
    "trial": "in which the compiler tried eager",
    COMPILED: "compiled",
    IN_PYTHON: "in Python",
    "eager": "in eager",
}
_FEW_CALLS: Final = 30


_FINDERS: Final[tuple[Callable[[Seen], Iterator[dict[str, Any]]], ...]] = (
    _wrong,
    _breaks,
    _left,
    _failures,
    _fallbacks,
    recompiles.found,
    recompiles.limits,
    _slower,
    _torch_time,
    _gradients,
    _threads,
    _overhead,
    _unseen,
)
