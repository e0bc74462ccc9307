"""Makes a failing program small: fewer statements, fewer results, plainer inputs, as long as it fails alike."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.programs.generator import Program
from tests.programs.worlds import World


def kind_of(failure: str) -> str:
    """What two failures of one kind have in common."""
    text = re.sub(r"^call \d: |result \d+|input \d+", "", failure.split(";")[0])
    return re.sub(r"[-+]?[\d.]+(e[-+]?\d+)?|\bnan\b|\binf\b|\(.*?\)|\[.*?\]", "", text)[:40]


def shrink(program: Any, failure: str, fails: Callable[[Any], str | None]) -> Any:
    """The smallest one that is found by leaving things out, one at a time."""
    wanted, progress = kind_of(failure), True
    while progress:
        progress = False
        rows = program.smaller() if isinstance(program, World) else _smaller(program)
        for smaller in rows:
            found = fails(smaller)
            if found is not None and kind_of(found) == wanted:
                program, progress = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    for k in range(len(program.lines)):
        yield dataclasses.replace(program, lines=program.lines[:k] + program.lines[k + 1 :])
    if len(program.results) > 1:
        for k in range(len(program.results)):
            yield dataclasses.replace(
                program, results=program.results[:k] + program.results[k + 1 :]
            )
    if program.dynamic:
        yield dataclasses.replace(program, dynamic=False)
    for k, text in enumerate(program.inputs):
        for plainer in (
            re.sub(r"True\)$", "False)", text),
            re.sub(r"(, '\w+'), '\w+', \d+", r"\1, 'plain', 0", text),
        ):
            if plainer != text:
                yield dataclasses.replace(
                    program, inputs=[*program.inputs[:k], plainer, *program.inputs[k + 1 :]]
                )
