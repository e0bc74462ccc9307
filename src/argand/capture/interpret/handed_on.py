"""capture.interpret.handed_on: checks that an instruction hands on what an inner frame gave it. Only under ``verify``.

A break inside of an inner frame resumes the instruction that called it with the inner frame's result as its own. An
instruction that would have done more with the result stands in a `Seal`; one that forgot to is found here, also where
nothing breaks.
"""

from __future__ import annotations

from typing import Any

from argand.bytecode.instruction import Instruction
from argand.capture.interpret.frame import HandledCode, Handler
from argand.support.errors import InternalError


def checked(program: HandledCode) -> HandledCode:
    """The same program; each instruction is looked at when it has ended."""
    return tuple((_checking(handler), instruction) for handler, instruction in program)


def _checking(handler: Handler) -> Handler:
    def step(frame: Any, instruction: Instruction) -> int | None:
        answers = frame.tracer.answers
        answers.clear()
        following = handler(frame, instruction)
        if answers:
            _check(frame, instruction, answers)
        return following

    return step


def _check(frame: Any, instruction: Instruction, answers: list[Any]) -> None:
    result, held = answers[-1], frame.stack
    if len(answers) > 1 or not (result is None or (held and held[-1] is result)):
        got, left = (
            [type(value).__name__ for value in answers],
            type(held[-1]).__name__ if held else "nothing",
        )
        made = f"{instruction} got {got} from inner frames and left {left}: it needs a Seal"
        raise InternalError("capture", made)
