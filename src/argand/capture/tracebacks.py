"""capture.tracebacks: exceptions show the user's lines though the interpreter or generated code raised them.

In: an exception, and a place (code, index of the instruction).  Out: its traceback has an entry for the place, as if
CPython had run the instruction there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from argand.capture.bytecode import assemble, decode
from argand.capture.polyfills import throw
from argand.runtime.tracebacks import trim


def _template(call: Callable[[], Any]) -> Any:
    return call()


@functools.lru_cache(maxsize=256)
def _stub(code: CodeType, index: int) -> FunctionType:
    """A function that makes a call and stands at the user's place while it does."""
    positions = decode(code).instructions[index].positions
    template = _template.__code__.replace(co_firstlineno=code.co_firstlineno)
    moved = [dataclasses.replace(i, positions=positions) for i in decode(template).instructions]
    made = assemble(moved, template, co_filename=code.co_filename, co_name=code.co_name, co_qualname=code.co_qualname)
    return FunctionType(made, {})


def raise_at(code: CodeType, index: int, error: BaseException) -> None:
    """Raise as if the instruction had."""
    _stub(code, index)(functools.partial(throw, error))


def pass_through(error: BaseException, code: CodeType, index: int) -> None:
    """Put the place on top of the traceback, as when the exception leaves the instruction."""
    try:
        raise_at(code, index, error)
    except BaseException as caught:
        trim(caught)
