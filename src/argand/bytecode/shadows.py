"""bytecode.shadows: what a comprehension hides of its function's variables while it runs.

In: code in normal form.  Out: for each place, the cells on the stack and the slots that hold plain variables. From 3.12 on a
comprehension is part of its function, and has the slots of its function's variables of the same names:

    y = 1; g = lambda: y
    [y for y in xs if print(y)]         #  stack at print: [cell of y, ...]; the slot of y holds a plain variable
    [(lambda: y) for y in xs]           #  stack inside: [cell of y, ...]; the slot holds another cell

A resume function has the cells of its frame as closure, one for each variable. So the first one saved of a variable is its
closure's, and the others come in further free variables; its prologue puts all of them where they belong.
"""

from __future__ import annotations

import functools
from types import CodeType
from typing import Any, Final, final

from argand.bytecode import flow
from argand.bytecode.instruction import Instruction
from argand.bytecode.origin import Origin
from argand.bytecode.version import decode
from argand.support.dataclass import dataclass

HERE: Final = -1  # in place of a slot of the stack: the cell is in the slot of its variable


@final
@dataclass(frozen=True, slots=True)
class _Saved:
    """A slot of the stack while a comprehension runs."""

    name: str
    is_cell: bool


@final
@dataclass(frozen=True, slots=True)
class Shadows:
    """What is hidden at one place."""

    saved: tuple[
        tuple[int, str], ...
    ] = ()  # slots of the stack with cells, lowest first, and their variables
    plain: frozenset[str] = frozenset()  # variables whose slots would hold cells, and hold values


NOTHING: Final = Shadows()


def in_cell_slot(code: CodeType, access: Instruction) -> bool:
    """Whether an instruction for plain variables is for a slot that holds a cell outside of comprehensions."""
    return access.argval in code.co_cellvars or (access.arg or 0) >= len(code.co_varnames)


@functools.lru_cache(maxsize=1024)
def shadows(code: CodeType) -> tuple[Shadows, ...]:
    """What comprehensions hide before each instruction."""
    instructions = decode(code).instructions
    if not flow.shares_slots(code):
        return (NOTHING,) * len(instructions)
    found = [NOTHING] * len(instructions)
    todo: list[tuple[int, tuple[Any, ...], frozenset[str]]] = [(0, (), frozenset())]
    seen = set()
    while todo:
        index, stack, plain = todo.pop()
        if index in seen:
            continue
        seen.add(index)
        saved = [(slot, each.name) for slot, each in enumerate(stack) if _is_saved_cell(each)]
        found[index] = Shadows(tuple(saved), plain)
        todo += _ways(code, instructions[index], stack, plain)
    return tuple(found)


def _is_saved_cell(slot: object) -> bool:
    return isinstance(slot, _Saved) and slot.is_cell


def _ways(
    code: CodeType, ins: Instruction, stack: tuple[Any, ...], plain: frozenset[str]
) -> list[tuple[int, tuple[Any, ...], frozenset[str]]]:
    """Where control goes from an instruction, and with what."""
    hidden, name = plain, str(ins.argval)
    top = None
    match ins.op:
        case "make_cell":
            hidden = plain - {name}
        case "load_fast_and_clear":
            shared = in_cell_slot(code, ins)
            top = _Saved(name, shared and name not in plain)
            hidden = plain | {name} if shared else plain
        case "store_fast" if _is_saved_cell(stack[-1]):
            hidden = plain - {name}
        case "store_fast" if isinstance(stack[-1], _Saved) and in_cell_slot(code, ins):
            hidden = plain | {name}
    ways = []
    for following, jumps in ((ins.index + 1, False), (ins.target, True)):
        if following is not None and (jumps or flow.falls_through(ins)):
            after = flow.after(stack, ins, jumps=jumps)
            ways.append((following, after if top is None else (*after[:-1], top), hidden))
    if ins.handler is not None:
        above = (None,) * (1 + ins.handler.lasti)
        ways.append((ins.handler.target, (*stack[: ins.handler.depth], *above), plain))
    return ways


def mixed_cells(code: CodeType, index: int) -> str:
    """Why the cells at a place cannot be told apart; "" if they can."""
    if not set(code.co_cellvars).isdisjoint(code.co_freevars):
        return "a comprehension in it has a cell with the name of a free variable"
    read = code.co_varnames[:1] if "__class__" in code.co_freevars else ()  # by `super()`
    if any(name in read for _, name in shadows(code)[index].saved):
        return "a comprehension hides the argument that `super()` reads"
    return ""


def live_locals(code: CodeType, index: int) -> tuple[str, ...]:
    """Local variables (no cells) that `code` may still read when it continues at `index`.

    A function that looks at its own frame (`locals()`, `eval`) reads them all; one with `super()` always reads its
    first argument, which is in the answer even if it is a cell.
    """
    code, index = Origin.of(code, index)
    mask, plain = flow.live_masks(code)[index], shadows(code)[index].plain
    for_super = "__class__" in code.co_freevars and code.co_argcount > 0
    names = (*code.co_varnames, *(n for n in code.co_cellvars if n not in code.co_varnames))
    return tuple(
        name
        for slot, name in enumerate(names)
        if (slot == 0 and for_super)
        or (mask >> slot & 1 and (name not in code.co_cellvars or name in plain))
    )


def closure_of_resume(code: CodeType, index: int, depth: int) -> tuple[tuple[str, int], ...]:
    """The cells to give a resume function that keeps `depth` slots of the stack, in the order of its `co_freevars`.

    Each is a variable and the slot of the stack its cell is in, or HERE.
    """
    code, index = Origin.of(code, index)
    here = shadows(code)[index]
    slots: dict[str, list[int]] = {}
    for slot, name in here.saved:
        if slot < depth:
            slots.setdefault(name, []).append(slot)
    first = [(name, slots.get(name, [HERE])[0]) for name in (*code.co_cellvars, *code.co_freevars)]
    further = [(name, slot) for name, found in slots.items() for slot in found[1:]]
    current = [(name, HERE) for name in slots if name not in here.plain]
    return (*first, *further, *current)
