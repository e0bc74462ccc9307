"""capture.interpret.show: what the logs tell of a trace: the user's lines and instructions as they are traced, graphs as tables.

A frame that nobody watches pays nothing: a watched one runs handlers of its own.
"""

from __future__ import annotations

import linecache
import types
from collections.abc import Sequence
from typing import Any, Final

import torch

from argand.bytecode import Instruction
from argand.capture.interpret.frame import HandledCode, Handler
from argand.support import events
from argand.support.errors import Location

TRACED: Final = frozenset({"trace_source", "trace_bytecode"})


def watched(program: HandledCode, code: types.CodeType, shown: frozenset[str]) -> HandledCode:
    """The same program, telling what it does."""
    last = [0]  # the line shown before

    def tell(instruction: Instruction) -> None:
        line = instruction.line or last[0]
        place = f"{code.co_filename}:{line} in {code.co_qualname}"
        if "trace_source" in shown and line != last[0]:
            events.artifact(
                "trace_source", lambda: linecache.getline(code.co_filename, line).rstrip(), place
            )
        if "trace_bytecode" in shown:
            events.artifact("trace_bytecode", lambda: str(instruction), place)
        last[0] = line

    def telling(handler: Handler) -> Handler:
        def step(frame: Any, instruction: Instruction) -> int | None:
            tell(instruction)
            return handler(frame, instruction)

        return step

    return tuple((telling(handler), instruction) for handler, instruction in program)


def table(graph: torch.fx.Graph) -> str:
    """A graph as a table, one node in a row."""
    rows = [("op", "name", "target", "args", "kwargs")]
    rows += [
        (
            node.op,
            node.name,
            getattr(node.target, "__name__", str(node.target)),
            str(node.args),
            str(node.kwargs or ""),
        )
        for node in graph.nodes
    ]
    widths = [min(max(map(len, column)), 40) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def tell_effects(lines: Sequence[str], where: Location) -> None:
    """The statements that replay what a program did outside of its graph."""
    if lines:
        events.artifact("side_effects", lambda: "\n".join(lines), str(where))
