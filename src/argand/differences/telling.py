"""differences.telling: what is said about a difference, and to whom.

In: where it is and what differs. Out: `ResultsDiffer` under ``verify="results"``; an event and one warning per region under
``"report"``, where the program continues.
"""

from __future__ import annotations

import re
import warnings
from typing import Any, Final

from argand.differences.values import Difference
from argand.support import events
from argand.support.errors import Location, ResultsDiffer
from argand.support.options import Options

_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')

EQUAL: Final = "equal"  # detail of an event that tells of no difference


def location(stack_trace: Any) -> Location | None:
    """The innermost line of a stack trace as nodes keep it."""
    found = list(_FRAME.finditer(stack_trace or ""))
    if not found:
        return None
    last = found[-1]
    return Location(last["file"], int(last["line"]), last["function"])


def tell(
    options: Options, stage: str, where: Location | None, difference: Difference, call: int
) -> None:
    """Raise, or report and continue."""
    region = f"region {options.name!r}, " if options.name else ""
    text = f"{region}call {call}: {stage} is wrong: {difference}"
    events.count("verify.differs", detail=stage)
    events.artifact(
        "differences", lambda: text if where is None else f"{text}\n  at {where}", stage
    )
    if options.verify == "results":
        raise ResultsDiffer(text, where=where, hint="argand bisect SCRIPT finds the guilty part")
    warnings.warn(
        f"argand: {text}" + (f"\n  at {where}" if where else ""), RuntimeWarning, stacklevel=2
    )
