"""capture.interpret.opcodes.control: jumps, loops, returns, stack shuffling, pattern matching."""

from __future__ import annotations

import collections.abc
from typing import Any, Final

from argand.bytecode import Instruction, collected_on_stack
from argand.capture.attempts import ReadLists
from argand.capture.interpret import checks
from argand.capture.interpret.frame import Frame, Handler
from argand.capture.markers import END, MISSING, NULL
from argand.capture.objects import attributes, operate
from argand.capture.outside import real
from argand.sizes.refusals import Stop


def nothing(frame: Frame, ins: Instruction) -> None:
    """RESUME, NOP, copy_free_vars and the like: the frame was made ready before."""


def pop_top(frame: Frame, ins: Instruction) -> None:
    """Drop the top."""
    frame.stack.pop()


def push_null(frame: Frame, ins: Instruction) -> None:
    """Push the NULL below a callable."""
    frame.stack.append(NULL)


def copy(frame: Frame, ins: Instruction) -> None:
    """Push a value from below again."""
    frame.stack.append(frame.stack[-(ins.arg or 1)])


def swap(frame: Frame, ins: Instruction) -> None:
    """Exchange the top with a value below."""
    stack, at = frame.stack, -(ins.arg or 1)
    stack[-1], stack[at] = stack[at], stack[-1]


def jump(frame: Frame, ins: Instruction) -> int | None:
    """Continue at the target."""
    return ins.target


def _pop_jump(when: bool) -> Handler:
    """`if`: skip the body when the top is false, or true."""

    def handler(frame: Frame, ins: Instruction) -> int | None:
        taken = checks.branch(frame, ins, when) == when
        frame.stack.pop()
        return ins.target if taken else None

    return handler


def _pop_jump_none(when: bool) -> Handler:
    """`if x is None`, `if x is not None`."""
    return lambda frame, ins: ins.target if (frame.stack.pop() is None) == when else None


def to_bool(frame: Frame, ins: Instruction) -> None:
    """The truth of the top."""
    frame.stack[-1] = operate.truth(frame.tracer, frame.stack[-1])


def get_iter(frame: Frame, ins: Instruction) -> None:
    """`iter(a)`, `yield from a`."""
    frame.stack[-1] = operate.get_iter(frame.tracer, frame.stack[-1])


def for_iter(frame: Frame, ins: Instruction) -> int | None:
    """Push the next item, or drop the iterator and leave the loop."""
    item = operate.advance(frame.tracer, frame.stack[-1])
    if item is END:
        frame.stack.pop()
        _end_collecting(frame)
        return ins.target
    frame.stack.append(item)
    return None


def _end_collecting(frame: Frame) -> None:
    """The loop of a comprehension has ended: the list it built is a value now, and may be read."""
    if not collected_on_stack(frame.code) or not frame.stack:
        return
    known = frame.tracer.world.known.get(id(frame.stack[-1]))
    if known is not None and known.partial:
        raise Stop(ReadLists())


def return_value(frame: Frame, ins: Instruction) -> int:
    """Leave the frame."""
    frame.result = frame.stack.pop()
    return -1


def get_len(frame: Frame, ins: Instruction) -> None:
    """`match`: push the length of the subject."""
    frame.stack.append(operate.length(frame.tracer, frame.stack[-1]))


def match_mapping(frame: Frame, ins: Instruction) -> None:
    """`case {...}`."""
    frame.stack.append(isinstance(frame.stack[-1], collections.abc.Mapping))


def match_sequence(frame: Frame, ins: Instruction) -> None:
    """`case [...]`."""
    subject = frame.stack[-1]
    plain = isinstance(subject, str | bytes | bytearray)
    frame.stack.append(isinstance(subject, collections.abc.Sequence) and not plain)


def match_keys(frame: Frame, ins: Instruction) -> None:
    """`case {"a": x}`: push the values of all keys, or None."""
    subject, keys = frame.stack[-2:]
    values: list[Any] = []
    for key in keys:
        if not operate.contains(frame.tracer, key, subject):
            frame.stack.append(None)
            return
        values.append(operate.subscript(frame.tracer, subject, key))
    frame.stack.append(tuple(values))


def match_class(frame: Frame, ins: Instruction) -> None:
    """`case Point(x, y=0)`: push the attributes, or None."""
    subject, kind, names = frame.stack[-3:]
    frame.stack[-3:] = (_matched(frame, subject, kind, names, ins.arg or 0),)


def _matched(frame: Frame, subject: Any, kind: Any, names: Any, count: int) -> Any:
    if not real.apply(isinstance, subject, kind):
        return None
    positional = getattr(kind, "__match_args__", ())
    if count and not positional:
        return (subject,) if count == 1 else None
    values = []
    for name in (*positional[:count], *names):
        value = attributes.load_or(frame.tracer, subject, name, MISSING)
        if value is MISSING:
            return None
        values.append(value)
    return tuple(values)


TABLE: Final = {
    **dict.fromkeys(("resume", "nop", "copy_free_vars"), nothing),
    "jump_no_interrupt": jump,
    "get_yield_from_iter": get_iter,
    "pop_jump_if_false": _pop_jump(when=False),
    "pop_jump_if_true": _pop_jump(when=True),
    "pop_jump_if_none": _pop_jump_none(when=True),
    "pop_jump_if_not_none": _pop_jump_none(when=False),
}
