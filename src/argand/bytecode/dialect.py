"""bytecode.dialect: what a module for one CPython version says of its bytecode.

In: nothing.  Out: `Dialect`, a frozen table, and the raw instructions its functions work on.  `read` turns
raw code into the normal form with it, `assemble` turns the normal form back into raw code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Final, NamedTuple, final

from argand.bytecode.instruction import Instruction
from argand.support.dataclass import dataclass

PADDING: Final = 255  # argument of a no-operation that is none of the compiler's


class Raw(NamedTuple):
    """One raw instruction; its EXTENDED_ARG prefix is part of it."""

    name: str
    arg: int
    start: int  # offset of its first code unit, where jumps to it go
    offset: int  # offset of the instruction itself
    end: int  # offset after its caches, from which jumps are counted


class Piece(NamedTuple):
    """One instruction of the normal form, made of (a part of) raw ones."""

    op: str
    arg: int | None = None
    argval: object = None
    jumps: bool = False  # it goes where the raw instruction goes


class NormalForm(NamedTuple):
    """The normal form of some raw instructions."""

    pieces: tuple[Piece, ...]
    used: int = 1  # how many raw instructions they stand for


class Context(NamedTuple):
    """The code object that is read, and the names of its variables by slot."""

    code: CodeType
    variables: tuple[str, ...]
    cells: frozenset[int]  # slots that are cells from the first instruction on


Splitter = Callable[[Context, Sequence[Raw], int], NormalForm]
InstructionWriter = Callable[[Instruction, Sequence[object]], tuple[tuple[str, int], ...]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The bytecode of one version."""

    version: tuple[int, int]
    caches: Mapping[str, int]  # code units after an instruction; they stay zero in co_code
    renamed: Mapping[str, str]  # raw name -> normal name; others are the raw name in lower case
    split: Mapping[str, Splitter]  # raw instructions that are not one of the normal form each
    # normal instructions that are not one raw instruction each
    write: Mapping[str, InstructionWriter]
    jumps: Mapping[str, int]  # raw name -> direction
    backward: Mapping[str, str]  # normal jump -> raw name, where the target is not later
    forward: Mapping[str, str]
    # what stands before the target of a loop that ends, and is jumped over
    landing: tuple[str, ...]
    close_gives_value: bool  # `close()` of a generator gives what it returned
    locals_are_new: bool  # each `locals()` of a function is a dict of its own; before, there is one of each frame
    send_drops: bool  # an exhausted SEND drops the receiver itself: END_SEND is ours
    null_last: bool  # the NULL of a call is above its callable
    looks_before: bool  # the handler of what a called function raises is that of the code unit before the call


def constant_index(constants: Sequence[object], wanted: tuple[str, ...]) -> int:
    """Where the names of keyword arguments stand among the constants: the compiler put them there."""
    return next(i for i, value in enumerate(constants) if type(value) is tuple and value == wanted)
