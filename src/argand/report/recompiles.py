"""report.recompiles: what was compiled again: because of what, with all values that were seen, and when it was too often.

In: the reasons that were heard, each "`x` was A, is B" or another sentence. Out: one problem per function and thing that changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from argand.report import lines
from argand.report.causes import Seen, make_problem
from argand.report.turns import IN_PYTHON

_CHANGED: Final = re.compile(r"`(?P<what>.*)` was (?P<was>.*), is (?P<now>.*?)")
_MOST_VALUES: Final = 12


def found(seen: Seen) -> Iterator[dict[str, Any]]:
    """The same function compiled again: per function and thing that changed."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for made in seen.collected.compiles:
        if made.reason is not None:
            groups.setdefault((made.reason["where"], what_changed(made.reason)), []).append(made)
    for (where, what), group in groups.items():
        reasons = [made.reason for made in group]
        limits = [each for each in _limit_notes(seen) if each["where"] == where]
        more = [each for each in limits if what_changed(each) == what]
        name, count = lines.function_name(where.function), len(group)
        row = make_problem(
            "recompile",
            f"compiled again because {changes([*reasons, *more])}",
            lines.located(reasons[0]["at"] or where),
            count,
            sum(made.seconds for made in group) * 1e3,
            reasons[0]["hint"],
            note=f"{name} was compiled {count + 1} times" if count > 1 else "",
            compiles=[made.number for made in group],
        )
        yield row | {"function": lines.located(where)}


def limits(seen: Seen) -> Iterator[dict[str, Any]]:
    """Functions that are not compiled any more."""
    for fields in _limit_notes(seen):
        where = lines.located(fields["where"])
        ran = [
            function["kinds"].get(IN_PYTHON, 0)
            for function in seen.data["functions"]
            if where
            and (function["where"]["file"], function["where"]["line"])
            == (where["file"], where["line"])
        ]
        after = f": {sum(ran)} calls so far" if sum(ran) else ""
        row = make_problem(
            "recompile limit",
            f"compiled {fields['entries']} times (recompile_limit): other cases run in Python from now on{after}",
            lines.located(fields["at"] or fields["where"]),
            sum(ran) or 1,
            None,
            f"{fields['hint']}; or raise recompile_limit",
            note=f"the last time because {fields['change']}",
        )
        yield row | {"function": where}


def what_changed(reason: Mapping[str, Any]) -> str:
    """The thing, without its values."""
    return str(reason["change"]).partition(" was ")[0].partition(" no longer")[0]


def changes(reasons: Sequence[Mapping[str, Any]]) -> str:
    """What changed, with all values that were seen, each once, in the order they came."""
    texts = list(dict.fromkeys(str(reason["change"]) for reason in reasons))
    parsed = [_CHANGED.fullmatch(text) for text in texts]
    if len(texts) == 1 or not all(parsed):
        return (
            texts[0] if len(texts) == 1 else f"{texts[0]} (and {len(texts) - 1} more changes of it)"
        )
    pairs = [(each["was"], each["now"]) for each in parsed if each is not None]
    values = list(dict.fromkeys(value for pair in pairs for value in pair))
    shown = ", ".join(values[1:_MOST_VALUES])
    left = len(values) - _MOST_VALUES
    return f"{texts[0].partition(' was ')[0]} was {values[0]}, then {shown}" + (
        f" and {left} more values" if left > 0 else ""
    )


def _limit_notes(seen: Seen) -> list[Mapping[str, Any]]:
    return [fields for name, fields in seen.collected.nothing.notes if name == "limit"]
