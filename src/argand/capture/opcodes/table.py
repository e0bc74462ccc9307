"""capture.opcodes.table: every instruction of the normal form and its handler, which has its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from argand.capture.bytecode import Instruction
from argand.capture.opcodes import calling, containers, control, loads
from argand.support.errors import Break, CaptureBreak

if TYPE_CHECKING:
    from argand.capture.frame import Frame


def refuse(frame: Frame, ins: Instruction) -> None:
    """Leave the instruction to Python."""
    raise CaptureBreak(Break.B001, None, opname=ins.op, version="3.11")


HANDLED: Final[dict[str, Any]] = {**loads.TABLE, **containers.TABLE, **control.TABLE, **calling.TABLE}
REFUSED: Final[dict[str, Any]] = dict.fromkeys([*loads.REFUSED.split(), *calling.REFUSED.split()], refuse)
HANDLERS: Final[dict[str, Any]] = {**HANDLED, **REFUSED}
