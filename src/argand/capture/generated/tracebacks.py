"""capture.generated.tracebacks: exceptions show the user's lines though the interpreter or generated code raised them.

In: an exception, and a place (code, index of the instruction).  Out: its traceback has an entry for the place, as if
CPython had run the instruction there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, TracebackType

from argand.bytecode import decode, relocated
from argand.runtime.tracebacks import trim


def _template() -> Iterator[None]:
    yield


@functools.lru_cache(maxsize=256)
def _frame(code: CodeType, index: int) -> FrameType:
    """A frame that stands at the user's place. It is a generator's: no caller, so it keeps nothing alive."""
    positions = decode(code).instructions[index].positions
    template = _template.__code__.replace(co_firstlineno=code.co_firstlineno)
    named = {
        "co_filename": code.co_filename,
        "co_name": code.co_name,
        "co_qualname": code.co_qualname,
    }
    made = relocated(template, positions, **named)
    frame: FrameType = FunctionType(made, {})().gi_frame
    return frame


def pass_through(error: BaseException, code: CodeType, index: int) -> None:
    """Put the place on top of the traceback, as when the exception leaves the instruction."""
    frame = _frame(code, index)
    line = decode(code).instructions[index].line or code.co_firstlineno
    error.__traceback__ = TracebackType(trim(error).__traceback__, frame, 0, line)


def raise_at(code: CodeType, index: int, error: BaseException) -> None:
    """Raise as if the instruction had."""
    pass_through(error, code, index)
    raise error
