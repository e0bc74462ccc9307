"""bytecode.steps: generators and coroutines as plain functions, one call per step.

In: the code of a generator, coroutine or asynchronous generator.  Out: what stands in for its yields when `make_resume`
makes plain functions of it, and a function that takes its arguments. Of

    def rows(xs):               #  begin(xs) -> (cells, xs)
        for x in xs:
            y = yield x * 2     #  step -> (index of the yield, x * 2, iterator); go on with what is sent, and the iterator
        return y                #  step -> (y,)

each step is a function that Python can call, and capture can take: a yield is a return of the value with the state of the
frame, which are the arguments of the next one. Whoever drives the steps does what
only a frame of a generator can, and what a trace cannot see: a `yield from` or an `await` (index, the other one, state) comes back with
its result, and a loop with a yield in it (index, None, iterator) with its next item. What is in the stack below the value goes out in its own way: a NULL is
thrown away, and in a handler the exception that is handled there stands for the one before it, as `make_resume` wants it.
"""

from __future__ import annotations

import enum
import functools
import inspect
from types import CodeType
from typing import Final, NamedTuple

from argand.bytecode import flow
from argand.bytecode.assemble import assemble
from argand.bytecode.bound import bound_before
from argand.bytecode.instruction import Instruction
from argand.bytecode.read import variables
from argand.bytecode.shadows import NOTHING, live_locals, mixed_cells, shadows
from argand.bytecode.version import decode

FLAGS: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# What only a frame of a generator may do; the one who drives the steps does it.
UNDONE: Final = frozenset({"async_gen_wrap", "stop_iteration_error"})


class Exit(enum.Enum):
    """Why a step ends, by the instruction of the generator."""

    RETURN = "return_value"
    YIELD = "yield_value"
    FROM = "get_yield_from_iter"
    AWAIT = "get_awaitable"
    NEXT = "get_anext"  # `async for`
    LOOP = "for_iter"


_BY_INSTRUCTION: Final = {exit.value: exit for exit in Exit}
_WAITS: Final = frozenset({Exit.FROM, Exit.AWAIT, Exit.NEXT})
# Where the top of the stack leaves it as the value.
_TAKES: Final = frozenset({Exit.YIELD, Exit.FROM, Exit.AWAIT})


class Suspension(NamedTuple):
    """A place where a step ends: what of the frame goes out beside the value, and how the frame goes on."""

    at: int
    why: Exit
    stack: tuple[bool, ...]  # the slots below the value; False: NULL
    bound: tuple[str, ...]  # variables that are still read
    goes_on: int  # where, with one more value on the stack
    ends_at: int  # a loop whose iterator has ended: where, without the iterator


class WayOut(NamedTuple):
    """An instruction of ours: of a variable or constant of the new function, or of none."""

    op: str
    name: str = ""  # a variable of the user's, or with `own` one of ours
    constant: object = None
    arg: int = 0
    own: bool = False


def is_generator(code: CodeType) -> bool:
    """Whether a call of it makes a generator, a coroutine or an asynchronous generator."""
    return bool(code.co_flags & FLAGS)


def begin_of(code: CodeType) -> int:
    """Where the body begins."""
    return 1 + next(found.index for found in decode(code).instructions if found.op == "resume")


@functools.lru_cache(maxsize=1024)
def suspension(code: CodeType, index: int) -> Suspension:
    """What a step that ends at an index leaves with."""
    instructions = decode(code).instructions
    place, why = instructions[index], _BY_INSTRUCTION[instructions[index].op]
    given = tuple(kind is not flow.StackSlot.NULL for kind in _kept_kinds(code, place))
    goes_on = index + 1
    if why in _WAITS:  # behind `send` and `end_send`
        goes_on = 1 + next(i.target for i in instructions[index:] if i.op == "send" and i.target)
        assert instructions[goes_on - 1].op == "end_send"
    bound = _variables_after(code, place)
    return Suspension(index, why, given, bound, goes_on, place.target or -1)


def _kept_kinds(code: CodeType, place: Instruction) -> flow.Stack:
    """The stack without the value."""
    stack = flow.stack_before(code)[place.index] or ()
    return stack[:-1] if _BY_INSTRUCTION[place.op] in _TAKES else stack


def _variables_after(code: CodeType, place: Instruction) -> tuple[str, ...]:
    """Those that are read later. One that looks at its own frame reads all that are set."""
    live = live_locals(code, place.index + (place.op == "yield_value"))
    if not flow.reads_own_frame(code):
        return live
    bound = bound_before(code)[place.index] or frozenset()
    return tuple(name for name in live if name in bound or name in code.co_cellvars)


@functools.lru_cache(maxsize=1024)
def exits(code: CodeType) -> frozenset[int]:
    """Where a step ends. A loop is left for its items if there are yields in it, and it can be left at its head."""
    return frozenset(
        found.index
        for found in _reached(code)
        if found.op in _BY_INSTRUCTION
        and not _is_of_wait(code, found)
        and (
            found.op != Exit.LOOP.value or (_yields_inside(code, found) and not _unfit(code, found))
        )
    )


def _reached(code: CodeType) -> list[Instruction]:
    stacks = flow.stack_before(code)
    return [found for found in decode(code).instructions if stacks[found.index] is not None]


def _is_of_wait(code: CodeType, found: Instruction) -> bool:
    """Whether it is the yield of a `yield from` or an `await`, which is left before it."""
    before = decode(code).instructions[found.index - 1]
    return found.op == Exit.YIELD.value and before.op == "send"


def _yields_inside(code: CodeType, head: Instruction) -> bool:
    """Whether the frame can be suspended while the iterator of a loop is on its stack."""
    instructions, stacks = decode(code).instructions, flow.stack_before(code)
    depth = len(stacks[head.index] or ())
    seen: set[int] = set()
    todo = [head.index + 1]
    while todo:
        index = todo.pop()
        if index in seen or len(stacks[index] or ()) < depth:
            continue
        seen.add(index)
        found = instructions[index]
        if found.op == "yield_value":
            return True
        todo += flow.successors(found)
        todo += () if found.handler is None else (found.handler.target,)
    return False


@functools.lru_cache(maxsize=1024)
def refusal(code: CodeType) -> str:
    """Why its steps cannot be functions; "" if they can."""
    left = [found for found in _reached(code) if found.index in exits(code)]
    reasons = (_unfit(code, found) for found in left if found.op != Exit.RETURN.value)
    return next(filter(None, reasons), "")


def _unfit(code: CodeType, place: Instruction) -> str:
    """Why the frame cannot be left at a place."""
    stack = flow.stack_before(code)[place.index] or ()
    if shadows(code)[place.index] != NOTHING or flow.StackSlot.SAVED in stack:
        return "it yields or awaits inside of a comprehension"
    unset = set(_variables_after(code, place)) - set(code.co_cellvars)
    unset -= bound_before(code)[place.index] or frozenset()
    if unset:
        return f"{min(unset)!r} may not be set where it yields"
    return mixed_cells(code, place.index)


def leaving(code: CodeType, place: Instruction) -> tuple[WayOut, ...]:
    """What stands in a step for an exit."""
    why = _BY_INSTRUCTION[place.op]
    if why is Exit.RETURN:
        return WayOut("build_tuple", arg=1), WayOut("return_value")
    found, kinds = suspension(code, place.index), _kept_kinds(code, place)
    taken = [WayOut("copy", arg=1)] if why is Exit.NEXT else []
    if why is not Exit.LOOP:
        taken.append(WayOut("store_fast", "value", own=True))
    for slot in reversed(range(len(kinds))):
        taken += _take(f"at_{slot}", kinds[slot])
    kept = [
        WayOut("load_const") if kind is flow.StackSlot.LASTI else _own(f"at_{slot}")
        for slot, kind in enumerate(kinds)
        if found.stack[slot]
    ]
    values = [
        WayOut("load_deref" if n in code.co_cellvars else "load_fast", n) for n in found.bound
    ]
    value = WayOut("load_const") if why is Exit.LOOP else _own("value")
    state = [WayOut("load_const", constant=place.index), value, *kept, *values]
    return (*taken, *state, WayOut("build_tuple", arg=len(state)), WayOut("return_value"))


def _own(name: str) -> WayOut:
    return WayOut("load_fast", name, own=True)


def _take(name: str, kind: flow.StackSlot) -> list[WayOut]:
    """Take the top of the stack into a variable of ours, or throw it away."""
    store = WayOut("store_fast", name, own=True)
    if kind is flow.StackSlot.LASTI:
        return [WayOut("pop_top")]
    if kind is not flow.StackSlot.PREVIOUS:
        return [store]  # of a NULL too
    # it gives what is handled now, and is handled itself; then the slot gives back what was before
    handled = [WayOut("load_const"), WayOut("push_exc_info"), WayOut("pop_top"), store]
    return [*handled, WayOut("pop_except")]


def begin_code(code: CodeType) -> CodeType:
    """A function of the same arguments that gives the cells of the frame in a tuple, then the arguments still read."""
    old = decode(code).instructions
    head = [found for found in old if found.op in ("copy_free_vars", "make_cell")]
    head = [found for found in head if found.index < begin_of(code)]
    slots = {name: slot for slot, name in enumerate(variables(code))}
    cells = [("load_closure", slots[name]) for name in (*code.co_cellvars, *code.co_freevars)]
    values = [
        ("load_deref" if name in code.co_cellvars else "load_fast", slots[name])
        for name in live_locals(code, begin_of(code))
    ]
    body = [
        ("resume", 0),
        *cells,
        ("build_tuple", len(cells)),
        *values,
        ("build_tuple", 1 + len(values)),
        ("return_value", None),
    ]
    place = old[begin_of(code) - 1].positions
    made = [(found.op, found.arg) for found in head] + body
    written = [Instruction(index, op, arg, None, -1, place) for index, (op, arg) in enumerate(made)]
    flags = code.co_flags & ~(FLAGS | inspect.CO_ITERABLE_COROUTINE)
    return assemble(written, code, co_flags=flags)
