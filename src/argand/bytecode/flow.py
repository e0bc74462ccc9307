"""bytecode.flow: what is on the stack before each instruction, and which variables are still read.

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

from argand.bytecode.instruction import Instruction
from argand.bytecode.normal import ROWS, effect
from argand.bytecode.origin import Origin
from argand.bytecode.version import decode


class StackSlot(enum.Enum):
    """What a slot of the value stack may hold."""

    VALUE = "value"
    NULL = "null"  # push_null: always NULL
    # load_fast_and_clear: the variable a comprehension shadows; NULL when it was unset
    SAVED = "saved"
    PREVIOUS = "previous"  # push_exc_info: what was being handled before; the handler is active
    LASTI = "lasti"  # where the exception above came from


Stack = tuple[StackSlot, ...]

_READS: Final = frozenset(
    {"load_fast", "load_fast_and_clear", "delete_fast", "make_cell", "load_closure", "load_deref"}
)
# These read every variable of the frame behind its back.
_FRAME_READERS: Final = {
    "load_global": frozenset({"locals", "vars", "dir", "eval", "exec"}),
    "load_attr": frozenset({"_getframe", "currentframe"}),
}


def falls_through(instruction: Instruction) -> bool:
    """Whether the next instruction can follow."""
    return not ROWS[instruction.op].ends


def successors(instruction: Instruction) -> Iterator[int]:
    """Where control goes without an exception."""
    if falls_through(instruction):
        yield instruction.index + 1
    if instruction.target is not None:
        yield instruction.target


def after(stack: Stack, instruction: Instruction, *, jumps: bool) -> Stack:
    """The stack after an instruction, on the way to its target or to the next one."""
    arg = instruction.arg or 0
    match instruction.op:
        case "swap":
            swapped = list(stack)
            swapped[-1], swapped[-arg] = swapped[-arg], swapped[-1]
            return tuple(swapped)
        case "copy":
            # `copy 3; pop_except` leaves the handler through the copy: the copy is the active one.
            kind = stack[-arg]
            below = list(stack)
            if kind is StackSlot.PREVIOUS:
                below[-arg] = StackSlot.VALUE
            return (*below, kind)
        case "push_exc_info":
            return (*stack[:-1], StackSlot.PREVIOUS, StackSlot.VALUE)
        case "push_null":
            return (*stack, StackSlot.NULL)
        case "load_fast_and_clear":
            return (*stack, StackSlot.SAVED)
        case "check_exc_match" | "check_eg_match" | "with_except_start":
            popped, pushed = effect(instruction.op, arg, jumps=jumps)
            new = pushed - popped
            return stack if new == 0 else (*stack, StackSlot.VALUE)
        case _:
            popped, pushed = effect(instruction.op, arg, jumps=jumps)
            return stack[: len(stack) - popped] + (StackSlot.VALUE,) * pushed


def compute_stacks(
    instructions: Sequence[Instruction],
    start: int = 0,
    stack: Stack = (),
    ends: frozenset[int] = frozenset(),
) -> list[Stack | None]:
    """The stack before each instruction, from `start` on; None where control never comes. It ends at `ends`."""
    found: list[Stack | None] = [None] * len(instructions)
    todo = [(start, stack)]
    while todo:
        index, stack = todo.pop()
        if found[index] is not None:
            continue
        found[index] = stack
        if index in ends:
            continue
        instruction = instructions[index]
        if falls_through(instruction):
            todo.append((index + 1, after(stack, instruction, jumps=False)))
        if instruction.target is not None:
            todo.append((instruction.target, after(stack, instruction, jumps=True)))
        handler = instruction.handler
        # push_exc_info stands in the range of its own clean-up, but cannot raise.
        if handler is not None and instruction.op != "push_exc_info":
            lasti = (StackSlot.LASTI,) if handler.lasti else ()
            todo.append((handler.target, (*stack[: handler.depth], *lasti, StackSlot.VALUE)))
    return found


@functools.lru_cache(maxsize=1024)
def stack_before(code: CodeType) -> tuple[Stack | None, ...]:
    """The stack before each instruction of `code`, bottom first; None in unreachable code."""
    return tuple(compute_stacks(decode(code).instructions))


# Raw instructions of one normal one may need a slot more between them: the names of keyword arguments.
_SPARE: Final = 1


def stack_size(instructions: Sequence[Instruction]) -> int:
    """The deepest the stack gets: what an instruction pushes is there before the next one or before a handler."""
    stacks = compute_stacks(instructions)
    return _SPARE + max((len(stack) for stack in stacks if stack is not None), default=0)


def shares_slots(code: CodeType) -> bool:
    """Whether a slot is a plain variable in one part of the code and a cell in another, or two cells.

    So it is where a comprehension that is part of its function has a variable that a function in it uses, or one
    with the name of a variable that a function outside of it uses.
    """
    instructions = decode(code).instructions
    begin = next((found.index for found in instructions if found.op == "resume"), 0)
    plain = len(code.co_varnames)
    return any(
        found.op == "make_cell"
        or (
            found.op == "load_fast_and_clear"
            and (found.argval in code.co_cellvars or (found.arg or 0) >= plain)
        )
        for found in instructions[begin:]
    )


def reads_own_frame(code: CodeType) -> bool:
    """Whether the code may look at its variables by `locals()`, `eval` or through its frame."""
    found = decode(code).instructions
    return any(step.argval in _FRAME_READERS.get(step.op, ()) for step in found)


# load_closure too: in a comprehension, the slot of a cell may hold a plain variable
_READS_SLOT: Final = frozenset({"load_fast", "load_fast_and_clear", "delete_fast", "load_closure"})


@functools.lru_cache(maxsize=1024)
def live_masks(code: CodeType) -> tuple[int, ...]:
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
            if instruction.op == "store_fast":
                mask &= ~bit
            elif instruction.op in _READS_SLOT:
                mask |= bit
            if instruction.handler is not None:
                mask |= live[instruction.handler.target]
            if mask != live[instruction.index]:
                live[instruction.index] = mask
                changed = True
    return tuple(live)


@functools.lru_cache(maxsize=1024)
def append_only(code: CodeType) -> frozenset[str]:
    """Arguments that are only appended to and returned, if they are lists.

    So a loop that collects its results continues after a graph break without a look at what it has collected. The list a
    comprehension builds is the lowest slot of its stack.
    """
    found = {name for name in code.co_varnames if name not in code.co_cellvars}
    in_comprehension = code.co_qualname.endswith("<listcomp>")
    instructions = decode(code).instructions
    read: set[object] = set()
    for instruction, following in itertools.pairwise(instructions):
        if instruction.op == "load_fast":
            read.add(instruction.argval)
            appends = following.op == "load_attr" and following.argval == "append"
            restored = in_comprehension and str(instruction.argval).endswith("stack_0")
            if not (appends or restored or following.op == "return_value"):
                found.discard(str(instruction.argval))
    return frozenset() if reads_own_frame(code) else frozenset(found & read)


@functools.lru_cache(maxsize=1024)
def collected_on_stack(code: CodeType) -> frozenset[str]:
    """Arguments of a resume function that are lists a comprehension in it builds.

    As long as the loop of the comprehension runs, they are only appended to; when it ends, they are values like
    others. The list lies in the slot of the stack that the argument's name tells.
    """
    if not isinstance(code.co_consts[-1] if code.co_consts else None, Origin) or reads_own_frame(
        code
    ):
        return frozenset()
    stacks = stack_before(code)
    slots = set()
    for instruction in decode(code).instructions:
        stack = stacks[instruction.index]
        # above the list of a comprehension is its iterator; `[*a, b]` appends to the top
        if instruction.op == "list_append" and stack is not None and (instruction.arg or 1) > 1:
            slot = len(stack) - 1 - (instruction.arg or 1)
            if instruction.index in _reached_with(code, slot):
                slots.add(slot)
    arguments = code.co_varnames[: code.co_argcount]
    found = frozenset(
        name for name in arguments if name.startswith("___") and _slot_of(name) in slots
    )
    return found - append_only(code)


def _reached_with(code: CodeType, slot: int) -> frozenset[int]:
    """Instructions that a resume function comes to while a slot of its restored stack is never popped."""
    instructions, stacks = decode(code).instructions, stack_before(code)
    begin = next((found.target for found in instructions if found.op == "jump"), None)
    found: set[int] = set()
    todo = [begin]
    while todo:
        index = todo.pop()
        stack = None if index is None else stacks[index]
        if index is None or index in found or stack is None or len(stack) <= slot:
            continue
        found.add(index)
        todo.extend(successors(instructions[index]))
    return frozenset(found)


def _slot_of(argument: str) -> int:
    """The slot of the stack that an argument of a resume function is for; -1: for none."""
    _, found, slot = argument.partition("stack_")
    return int(slot) if found and slot.isdigit() else -1


@functools.lru_cache(maxsize=4096)
def used_names(code: CodeType) -> frozenset[object]:
    """Variables that `code` reads anywhere; `super()` reads the first argument, `eval` may read them all."""
    if reads_own_frame(code):
        return frozenset(code.co_varnames)
    names = {found.argval for found in decode(code).instructions if found.op in _READS}
    if "__class__" in code.co_freevars and code.co_varnames:
        names.add(code.co_varnames[0])
    return frozenset(names)
