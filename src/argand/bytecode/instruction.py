"""bytecode.instruction: the normal form of CPython bytecode, the same for every version.

In: nothing.  Out: `Instruction`, `CodeHandler` and `Decoded`, which the version modules make and the interpreter,
the analyses and the assembler read.

What the instructions mean is in `normal`, one row each. Every instruction names the handler that an exception
raised by it goes to; a jump names its target by index.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

from typing_extensions import override

from argand.support.dataclass import dataclass


class CodeHandler(NamedTuple):
    """Where an exception goes: unwind the stack to `depth`, push (lasti,) exception, continue at `target`."""

    target: int
    depth: int
    lasti: bool  # push the index of the raising instruction below the exception


class Positions(NamedTuple):
    """The part of the source an instruction was compiled from."""

    line: int | None = None
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None


@final
@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction. Never changed after it is made (not frozen: that makes decoding twice as slow)."""

    index: int
    op: str  # name in the normal form
    # what the row of `normal` says; for names, constants and variables an index to write them back
    arg: int | None
    argval: object  # the constant, name, variable, operator or keyword names that `arg` stands for
    offset: int  # in co_code, of the raw instruction it is (a part of); -1 when made by us
    positions: Positions
    target: int | None = None  # index of the instruction a jump goes to
    handler: CodeHandler | None = None

    @property
    def line(self) -> int | None:
        """Line in the user's file."""
        return self.positions.line

    @override
    def __str__(self) -> str:
        """One line of a listing: `12 load_fast x`."""
        text = f"{self.index:4d} {self.op}"
        if self.target is not None:
            text += f" -> {self.target}"
        elif self.op == "call":
            names: Any = self.argval or ()
            text += f" {self.arg}" + "".join(f" {name}=" for name in names)
        elif self.arg is not None:
            named = self.argval is not None or self.op == "load_const"
            text += f" {self.argval!r}" if named else f" {self.arg}"
        return text if self.handler is None else f"{text}   [{self.handler.target}]"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A code object in normal form."""

    instructions: tuple[Instruction, ...]

    @override
    def __str__(self) -> str:
        """The listing, one instruction per line."""
        return "\n".join(map(str, self.instructions))
