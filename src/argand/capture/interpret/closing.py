"""capture.interpret.closing: whether anybody would notice that a suspended generator is closed.

A generator that is dropped is closed at that moment, which a trace does not see. Where closing it runs nothing but
`except` clauses that do not take `GeneratorExit`, there is nothing to see.
"""

from __future__ import annotations

from typing import Any, Final

from argand.bytecode import Instruction
from argand.capture.interpret.frame import Frame, Handler
from argand.capture.interpret.handlers import around
from argand.capture.objects.generators import Generator

# What the clauses of a `try` are made of, besides their bodies.
_TESTS: Final = frozenset(
    {
        "yield_value",
        "push_exc_info",
        "check_exc_match",
        "pop_jump_if_false",
        "load_global",
        "load_const",
    }
    | {"build_tuple", "reraise", "copy", "pop_except", "nop", "stop_iteration_error"}
)


def closes_silently(generator: Generator) -> bool:
    """Close a suspended generator, and tell whether that ran nothing of the user's."""
    frame: Any = generator.frame
    if not around(frame.code, frame.index):
        return True
    ran: set[str] = set()
    frame.program = tuple(
        [(_noting(handler, ran), instruction) for handler, instruction in frame.program]
    )
    try:
        generator.close()
    except Exception:  # a break, or what the user's code raises: it is more than a test
        return False
    return ran <= _TESTS


def _noting(handler: Handler, ran: set[str]) -> Handler:
    def run(frame: Frame, instruction: Instruction) -> int | None:
        ran.add(instruction.op)
        return handler(frame, instruction)

    return run
