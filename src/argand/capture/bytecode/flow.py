"""capture.bytecode.flow: what is on the stack before each instruction, and which variables are still read.

In: instructions in normal form.  Out: `stack_before` (kinds of the stack's slots), `live_locals`.
Exceptions are edges too: from an instruction to its handler, with the stack cut to the handler's depth.
"""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Final

from argand.capture.bytecode.instruction import Instruction, Origin
from argand.capture.bytecode.version import decode, dialect


class Slot(enum.Enum):
    """What a slot of the value stack may hold."""

    VALUE = "value"
    NULL = "null"  # PUSH_NULL or LOAD_GLOBAL: always NULL
    METHOD = "method"  # LOAD_METHOD: an unbound method, or NULL
    PREVIOUS = "previous"  # PUSH_EXC_INFO: what was being handled before; the handler is active
    LASTI = "lasti"  # where the exception above came from


Stack = tuple[Slot, ...]

_READS: Final = frozenset({"LOAD_FAST", "DELETE_FAST", "MAKE_CELL", "LOAD_CLOSURE", "LOAD_DEREF"})

_ENDS: Final = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE"})
_UNCONDITIONAL: Final = frozenset({"JUMP", "JUMP_NO_INTERRUPT"})
# These read every variable of the frame behind its back.
_FRAME_READERS: Final = {
    "LOAD_GLOBAL": frozenset({"locals", "vars", "dir", "eval", "exec"}),
    "LOAD_METHOD": frozenset({"_getframe", "currentframe"}),
}


def falls_through(instruction: Instruction) -> bool:
    """Whether the next instruction can follow."""
    return instruction.op not in _ENDS and instruction.op not in _UNCONDITIONAL


def successors(instruction: Instruction) -> Iterator[int]:
    """Where control goes without an exception."""
    if falls_through(instruction):
        yield instruction.index + 1
    if instruction.target is not None:
        yield instruction.target


def _after(stack: Stack, instruction: Instruction, *, jumps: bool) -> Stack:
    arg = instruction.arg or 0
    match instruction.op:
        case "SWAP":
            swapped = list(stack)
            swapped[-1], swapped[-arg] = swapped[-arg], swapped[-1]
            return tuple(swapped)
        case "COPY":
            # `COPY 3; POP_EXCEPT` leaves the handler through the copy: the copy is the active one.
            kind = stack[-arg]
            below = list(stack)
            if kind is Slot.PREVIOUS:
                below[-arg] = Slot.VALUE
            return (*below, kind)
        case "PUSH_EXC_INFO":
            return (*stack[:-1], Slot.PREVIOUS, Slot.VALUE)
        case "PUSH_NULL":
            return (*stack, Slot.NULL)
        case "LOAD_METHOD":
            return (*stack[:-1], Slot.METHOD, Slot.VALUE)
        case "LOAD_GLOBAL" if instruction.pushes_null:
            return (*stack, Slot.NULL, Slot.VALUE)
        case "CHECK_EXC_MATCH" | "CHECK_EG_MATCH" | "WITH_EXCEPT_START":
            popped, pushed = dialect.effect(instruction.op, arg, jumps=jumps)
            new = pushed - popped
            return stack if new == 0 else (*stack, Slot.VALUE)
        case _:
            popped, pushed = dialect.effect(instruction.op, arg, jumps=jumps)
            return stack[: len(stack) - popped] + (Slot.VALUE,) * pushed


def compute_stacks(instructions: Sequence[Instruction], start: int = 0, stack: Stack = ()) -> list[Stack | None]:
    """The stack before each instruction, from `start` on; None where control never comes."""
    found: list[Stack | None] = [None] * len(instructions)
    todo = [(start, stack)]
    while todo:
        index, stack = todo.pop()
        if found[index] is not None:
            continue
        found[index] = stack
        instruction = instructions[index]
        if falls_through(instruction):
            todo.append((index + 1, _after(stack, instruction, jumps=False)))
        if instruction.target is not None:
            todo.append((instruction.target, _after(stack, instruction, jumps=True)))
        handler = instruction.handler
        # PUSH_EXC_INFO stands in the range of its own clean-up, but cannot raise.
        if handler is not None and instruction.op != "PUSH_EXC_INFO":
            lasti = (Slot.LASTI,) if handler.lasti else ()
            todo.append((handler.target, (*stack[: handler.depth], *lasti, Slot.VALUE)))
    return found


@functools.lru_cache(maxsize=1024)
def stack_before(code: CodeType) -> tuple[Stack | None, ...]:
    """The stack before each instruction of `code`, bottom first; None in unreachable code."""
    return tuple(compute_stacks(decode(code).instructions))


def stack_size(instructions: Sequence[Instruction]) -> int:
    """The deepest the stack gets: what an instruction pushes is there before the next one or before a handler."""
    stacks = compute_stacks(instructions)
    return max((len(stack) for stack in stacks if stack is not None), default=0)


def reads_own_frame(code: CodeType) -> bool:
    """Whether the code may look at its variables by `locals()`, `eval` or through its frame."""
    found = decode(code).instructions
    return any(step.argval in _FRAME_READERS.get(step.op, ()) for step in found)


@functools.lru_cache(maxsize=1024)
def _live_masks(code: CodeType) -> tuple[int, ...]:
    """Per instruction: bit i set if local i may be read from there on before it is written."""
    instructions = decode(code).instructions
    if reads_own_frame(code):
        return (-1,) * len(instructions)
    live = [0] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for instruction in reversed(instructions):
            mask = 0
            for following in successors(instruction):
                mask |= live[following]
            bit = 1 << (instruction.arg or 0)
            if instruction.op == "STORE_FAST":
                mask &= ~bit
            elif instruction.op in ("LOAD_FAST", "DELETE_FAST"):
                mask |= bit
            if instruction.handler is not None:
                mask |= live[instruction.handler.target]
            if mask != live[instruction.index]:
                live[instruction.index] = mask
                changed = True
    return tuple(live)


def live_locals(code: CodeType, index: int) -> tuple[str, ...]:
    """Local variables (no cells) that `code` may still read when it goes on at `index`.

    A function that looks at its own frame (`locals()`, `eval`) reads them all; one with `super()` always reads its
    first argument, which is in the answer even if it is a cell.
    """
    code, index = Origin.of(code, index)
    mask = _live_masks(code)[index]
    for_super = "__class__" in code.co_freevars and code.co_argcount > 0
    return tuple(
        name
        for slot, name in enumerate(code.co_varnames)
        if (slot == 0 and for_super) or (mask >> slot & 1 and name not in code.co_cellvars)
    )


@functools.lru_cache(maxsize=1024)
def append_only(code: CodeType) -> frozenset[str]:
    """Arguments that are only appended to and returned, if they are lists.

    So a loop that collects its results goes on after a graph break without a look at what it has collected. The list a
    comprehension builds is the lowest slot of its stack.
    """
    found = {name for name in code.co_varnames if name not in code.co_cellvars}
    in_comprehension = code.co_qualname.endswith("<listcomp>")
    instructions = decode(code).instructions
    read: set[object] = set()
    for instruction, following in itertools.pairwise(instructions):
        if instruction.op == "LOAD_FAST":
            read.add(instruction.argval)
            appends = following.op == "LOAD_METHOD" and following.argval == "append"
            restored = in_comprehension and str(instruction.argval).endswith("stack_0")
            if not (appends or restored or following.op == "RETURN_VALUE"):
                found.discard(str(instruction.argval))
    return frozenset() if reads_own_frame(code) else frozenset(found & read)


@functools.lru_cache(maxsize=4096)
def used_names(code: CodeType) -> frozenset[object]:
    """Variables that `code` reads anywhere; `super()` reads the first argument."""
    names = {found.argval for found in decode(code).instructions if found.op in _READS}
    if "__class__" in code.co_freevars and code.co_varnames:
        names.add(code.co_varnames[0])
    return frozenset(names)
