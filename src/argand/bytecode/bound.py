"""bytecode.bound: which local variables are set for sure.

In: code in normal form.  Out: before each instruction the variables that have a value whatever way control came there.
"""

from __future__ import annotations

import functools
import inspect
from types import CodeType

from argand.bytecode import flow
from argand.bytecode.instruction import Instruction
from argand.bytecode.version import decode


@functools.lru_cache(maxsize=1024)
def bound_before(code: CodeType) -> tuple[frozenset[str] | None, ...]:
    """The variables (no cells) that are set before each instruction; None where control never comes."""
    instructions = decode(code).instructions
    found: list[frozenset[str] | None] = [None] * len(instructions)
    todo = [(0, frozenset(code.co_varnames[: _argument_count(code)]))]
    while todo:
        index, names = todo.pop()
        known = found[index]
        if known is not None:
            names &= known
            if names == known:
                continue
        found[index] = names
        todo += _ways(code, instructions[index], names)
    return tuple(found)


def _argument_count(code: CodeType) -> int:
    flags = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)
    further = sum(bool(code.co_flags & flag) for flag in flags)
    return code.co_argcount + code.co_kwonlyargcount + further


def _ways(
    code: CodeType, ins: Instruction, names: frozenset[str]
) -> list[tuple[int, frozenset[str]]]:
    after = _after(code, ins, names)
    ways = [(following, after) for following in flow.successors(ins)]
    if ins.handler is not None:  # before or after what the instruction does
        ways.append((ins.handler.target, names & after))
    return ways


def _after(code: CodeType, ins: Instruction, names: frozenset[str]) -> frozenset[str]:
    name = str(ins.argval)
    if ins.op == "store_fast":
        stack = flow.stack_before(code)[ins.index] or ()
        # what a comprehension hid may have been unset; of its own variable nobody knows afterwards
        restores = bool(stack) and stack[-1] is flow.StackSlot.SAVED
        return names - {name} if restores else names | {name}
    return names - {name} if ins.op in ("delete_fast", "load_fast_and_clear") else names
