"""capture.interpret.opcodes.table: every instruction of the normal form and its handler, which has its name."""

from __future__ import annotations

import functools
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from argand.bytecode import ROWS, VERSION, Instruction, decode
from argand.capture.interpret.frame import Frame, HandledCode, Handler
from argand.capture.interpret.opcodes import calling, containers, control, loads
from argand.support.errors import Break, CaptureBreak


def refuse(frame: Frame, ins: Instruction) -> None:
    """Leave the instruction to Python."""
    raise CaptureBreak(Break.B001, None, opname=ins.op, version=VERSION)


def _named(family: ModuleType) -> dict[str, FunctionType]:
    """The functions of a family that have the name of an instruction."""
    own = {name: value for name, value in vars(family).items() if isinstance(value, FunctionType)}
    return {name: handler for name, handler in own.items() if name in ROWS}


HANDLED: Final[dict[str, Any]] = {
    **{
        name: handler
        for family in (loads, containers, control, calling)
        for name, handler in _named(family).items()
    },
    **loads.TABLE,
    **containers.TABLE,
    **control.TABLE,
}
REFUSED: Final[dict[str, Any]] = dict.fromkeys(
    [*loads.REFUSED.split(), *calling.REFUSED.split()], refuse
)
HANDLERS: Final[dict[str, Handler]] = {**HANDLED, **REFUSED}


@functools.lru_cache(maxsize=4096)
def program_of(code: CodeType) -> HandledCode:
    """The instructions of a code object, each with its handler."""
    return tuple((HANDLERS[ins.op], ins) for ins in decode(code).instructions)
