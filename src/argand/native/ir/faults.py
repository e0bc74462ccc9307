"""native.ir.faults: what a verifier found, by the number of the broken rule in docs/ir.md."""

from __future__ import annotations

from typing import NamedTuple

from argand.support.errors import InternalError


class Fault(NamedTuple):
    """A broken rule; ``line`` is the line of the printed value it shows at, -1 when it is none."""

    rule: str
    what: str
    line: int = -1


def report(fault: Fault | None, after: str, text: str) -> None:
    """InternalError when something is wrong: the pass, the rule, and the value with the guilty line marked."""
    if fault is None:
        return
    lines = [("> " if k == fault.line else "  ") + line for k, line in enumerate(text.splitlines())]
    # A long dump is cut when it is shown: the guilty line must be among the first.
    shown = lines[max(0, fault.line - 20) :] if fault.line > 25 else lines
    message = f"after pass {after!r}: {fault.rule} {fault.what}"
    raise InternalError("native.verify", message, dump="\n".join(shown))
