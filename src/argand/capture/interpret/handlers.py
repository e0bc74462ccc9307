"""capture.interpret.handlers: whether an exception raised now would be seen by code of the user.

In: the frames of a trace. Out: yes, if an `except`, a `finally` or a `__exit__` of the user is around the instruction of one
of them. Contexts of torch (no_grad, autocast) only put back what the trace itself puts back, so they do not count.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import CodeType
from typing import Any

from argand.bytecode import decode
from argand.capture.objects.parts import StackFrame
from argand.runtime import skips

_TRY = -1  # instead of the place of a context manager's `__exit__` on the stack


@functools.lru_cache(maxsize=4096)
def around(code: CodeType, index: int) -> tuple[int, ...]:
    """The handlers around an instruction, innermost first: `with` as the stack slot of its `__exit__`, or _TRY."""
    program, found = decode(code).instructions, list[int]()
    handler, seen = program[index].handler, set[int]()
    while handler is not None and handler.target not in seen:
        seen.add(handler.target)
        first = program[handler.target]
        if first.op == "push_exc_info":
            leaves = program[handler.target + 1].op == "with_except_start"
            found.append(handler.depth - 1 if leaves else _TRY)
        # of the handler itself: it cleans up and hands over to the next one
        handler = first.handler
        while handler is not None and program[handler.target].op in (
            "copy",
            "pop_except",
            "reraise",
        ):
            if handler.target in seen:
                break
            seen.add(handler.target)
            handler = _reraised(program, handler.target)
    return tuple(found)


def _reraised(program: tuple[Any, ...], index: int) -> Any:
    """The handler of the RERAISE that ends a clean-up."""
    while program[index].op != "reraise":
        index += 1
    return program[index].handler


def is_handled(frames: Sequence[StackFrame]) -> bool:
    """Whether code of the user would see an exception raised by the innermost frame."""
    for frame in frames:
        if frame.instruction.handler is None or skips.is_library(frame.code):
            continue
        for slot in around(frame.code, frame.index):
            if slot == _TRY or not _is_of_torch(frame.stack[slot]):
                return True
    return False


def _is_of_torch(leave: object) -> bool:
    owner = getattr(leave, "__self__", leave)
    return str(type(owner).__module__).partition(".")[0] in {"torch", "argand"}
