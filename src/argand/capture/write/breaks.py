"""capture.write.breaks: what a compiled function does at a graph break.

In: the frames a break went through, innermost first. Out: statements that run the one operation in Python and
continue in resume functions. Outer frames call the inner one through a thunk, so that all of them are one
frame again for the next capture.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any, Final, final

from argand.bytecode import (
    HERE,
    ROWS,
    Instruction,
    closure_of_resume,
    handled_slots,
    live_locals,
    make_resume,
    original_code,
)
from argand.capture.attempts import BreakAt
from argand.capture.generated import again
from argand.capture.generated.again import unpacked
from argand.capture.generated.tails import NAMES, entered_code
from argand.capture.interpret.frame import Frame
from argand.capture.interpret.opcodes.calling import call_ex_operands, call_operands
from argand.capture.interpret.variables import WaitingLocals
from argand.capture.markers import NULL, SavedCell
from argand.capture.objects import operate
from argand.capture.objects.tracer import places_of
from argand.capture.write.rebuild import Rebuilder
from argand.runtime.sources import Local
from argand.sizes.refusals import Stop
from argand.support.dataclass import dataclass
from argand.support.errors import Break, CaptureBreak


@final
@dataclass(slots=True)
class Operation:
    """The broken instruction as a statement, and where the program continues."""

    text: str  # an expression; its value is named `result`
    stack: list[Any]  # values below the result
    index: int
    pushes: tuple[str, ...] = ("result",)
    prepare: tuple[str, ...] = ()  # statements before it


def write_break(
    rebuilder: Rebuilder, frames: list[Frame], effects: Callable[[], None], tail: bool
) -> None:
    """Emit the operation and the resume chain."""
    inner = frames[0]
    instruction = inner.program[inner.index][1]
    chained = [(frame, _stack_below(frame)) for frame in frames[1:]]
    operation = _operation(rebuilder, inner, instruction)
    caught = _write_caught(rebuilder, inner, chained)
    ways = []
    for condition, stack, index in _ways(inner, instruction, operation):
        call, handled = _resume(
            rebuilder, inner, index, stack, inner.tracer.exceptions.current, not chained
        )
        ways.append((condition, _wrap(rebuilder, call, chained, handled)))
    text, handled = operation.text, inner.tracer.exceptions.current
    if handled is not None:
        text = f"handling({rebuilder.value(handled)}, lambda: {text})"
    effects()
    if instruction.op in ("call", "call_function_ex"):
        rebuilder.namespace.update(again.NAMES)
        rebuilder.emit(f"places = {places_of(frames[::-1])!r}")
    for line in operation.prepare:
        rebuilder.emit(line)
    go = "return tail" if tail else "return run_tails"
    rebuilder.namespace.update(NAMES)
    rebuilder.emit("try:")
    rebuilder.emit(f"    result = {text}")
    rebuilder.emit("except BaseException as error:")
    rebuilder.emit(f"    {go}({caught})")
    for condition, call in ways:
        rebuilder.emit(f"if {condition}: {go}({call})" if condition else f"{go}({call})")


def _ways(inner: Frame, ins: Instruction, operation: Operation) -> list[tuple[str, list[Any], Any]]:
    """Where the program can go after the operation: condition, stack, instruction."""
    on = ("", [*operation.stack, *map(_Text, operation.pushes)], operation.index)
    return (
        [("result is END", operation.stack[:-1], ins.target), on] if ins.op == "for_iter" else [on]
    )


def _wrap(
    rebuilder: Rebuilder,
    call: str,
    chained: list[tuple[Frame, list[Any]]],
    handled: BaseException | None,
) -> str:
    partial = rebuilder.constant(functools.partial)
    for i, (frame, stack) in enumerate(chained):
        last = i == len(chained) - 1
        first = f"{partial}({call})"
        call, handled = _resume(
            rebuilder, frame, frame.index, stack, handled, last, first=first, thunk=True
        )
    return call


def _write_caught(
    rebuilder: Rebuilder, inner: Frame, chained: list[tuple[Frame, list[Any]]]
) -> str:
    """The continuation when the operation raises: a `try` of one of the frames, or the user's lines in the traceback."""
    handler, handled = inner.program[inner.index][1].handler, inner.tracer.exceptions.current
    if handler is not None:
        stack = inner.stack[: handler.depth]
        call, handled = _resume(
            rebuilder, inner, inner.index, stack, handled, not chained, first="error", raises=True
        )
    else:
        code = rebuilder.constant(inner.code, "code")
        call = f"raise_at, {code}, {inner.index}, error"
        slots = handled_slots(inner.code, inner.index)
        handled = inner.stack[slots[0]] if slots else handled
    return _wrap(rebuilder, call, chained, handled)


@final
class _Text:
    """A stack slot that is an expression of the generated code."""

    def __init__(self, text: str) -> None:
        self.text = text


def _resume(
    rebuilder: Rebuilder,
    frame: Frame,
    index: int,
    stack: list[Any],
    handled: BaseException | None,
    entered: bool,
    first: str = "",
    thunk: bool = False,
    raises: bool = False,
) -> tuple[str, BaseException | None]:
    """`function, arguments` of a resume function, and what the calling frame handles."""
    code = frame.code
    slots = handled_slots(code, frame.index if thunk or raises else index)
    slots = tuple(slot for slot in slots if slot < len(stack))
    stack = list(stack)
    outer = stack[slots[0]] if slots else handled
    for at, slot in enumerate(slots):
        stack[slot] = stack[slots[at + 1]] if at + 1 < len(slots) else handled
    names = [n for n in live_locals(code, index) if n in frame.locals or _is_own_cell(frame, n)]
    made = make_resume(
        code,
        index,
        stack=tuple([_is_given(value) for value in stack]),
        bound=tuple(names),
        thunk=thunk,
        raises=raises,
    )
    if entered:
        made = entered_code(made)
    args = [first] if first else []
    for value in stack:
        if _is_given(value):
            args.append(value.text if isinstance(value, _Text) else rebuilder.value(value))
    for name in names:
        args.append(_local(rebuilder, frame, name))
    cells = [
        _cell(rebuilder, frame, name) if slot == HERE else rebuilder.value(stack[slot].cell)
        for name, slot in closure_of_resume(code, index, len(stack))
    ]
    return ", ".join([_function(rebuilder, frame, made, cells), *args]), outer


def _is_given(value: Any) -> bool:
    """Whether a value of the stack is an argument of the resume function: cells come in its closure."""
    return value is not NULL and not isinstance(value, SavedCell)


def _is_own_cell(frame: Frame, name: str) -> bool:
    """Whether a variable has a cell of the function's own (`self` of `super()`), and not one of an outer function's."""
    return name in frame.cells and name in original_code(frame.code).co_cellvars


def _local(rebuilder: Rebuilder, frame: Frame, name: str) -> str:
    """A variable at the break; an argument that the trace did not look at is handed on as it came."""
    if isinstance(frame.locals, WaitingLocals) and frame.locals.waits(name):
        return rebuilder.source(rebuilder.tracer.world.child(Local, None, name))
    return rebuilder.value(
        frame.locals[name] if name in frame.locals else frame.cells[name].cell_contents
    )


def _function(rebuilder: Rebuilder, frame: Frame, code: types.CodeType, cells: list[str]) -> str:
    if not cells:
        return rebuilder.constant(types.FunctionType(code, frame.globals, code.co_name), "resume")
    make, names = (
        rebuilder.constant(types.FunctionType),
        rebuilder.constant(frame.globals, "globals"),
    )
    text = f"{make}({rebuilder.constant(code, 'code')}, {names}, {code.co_name!r}, None, ({', '.join(cells)},))"
    return rebuilder.fresh(text)


def _cell(rebuilder: Rebuilder, frame: Frame, name: str) -> str:
    if name in frame.cell_sources:
        return rebuilder.source(frame.tracer.cell_source(frame, name))
    return rebuilder.value(frame.cells[name])


def _stack_below(frame: Frame) -> list[Any]:
    """The stack of a frame below the operands of its call."""
    ins = frame.program[frame.index][1]
    if ins.op == "call":
        return frame.stack[: -(ins.arg or 0) - 2]
    if ins.op == "call_function_ex":
        return frame.stack[: -4 if (ins.arg or 0) & 1 else -3]
    count = ROWS[ins.op].operands
    if count is None:
        raise Stop(BreakAt(frame.count, CaptureBreak(Break.B013, None, what=ins.op)))
    return frame.stack[: len(frame.stack) - count]


# -- operations --------------------------------------------------------------------------------


def _operation(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    maker = _OPERATIONS.get(ins.op)
    if maker is None:
        raise CaptureBreak(Break.B012, None, what=f"the state at {ins.op}")
    return maker(rebuilder, frame, ins)


def _call(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    operands = call_operands(frame, ins) if ins.op == "call" else call_ex_operands(frame, ins)
    function, args, kwargs = operands
    parts = "".join(f"{rebuilder.value(item)}, " for item in args)
    names = ", ".join(f"{key!r}: {rebuilder.value(value)}" for key, value in kwargs.items())
    text = f"at(places, {rebuilder.value(function)}, ({parts}), {{{names}}})"
    return Operation(text, _stack_below(frame), ins.index + 1)


def _applied(function: Any, count: int) -> Callable[..., Operation]:
    """An instruction that is `function(*operands)`."""

    def make(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
        text = f"{rebuilder.constant(function)}({rebuilder.items(frame.stack[-count:])})"
        return Operation(text, frame.stack[:-count], ins.index + 1)

    return make


def _replaced(function: Any) -> Callable[..., Operation]:
    """An instruction that is run again with its top operand made simple."""

    def make(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
        text = f"{rebuilder.constant(function)}({rebuilder.value(frame.stack[-1])})"
        return Operation(text, frame.stack[:-1], ins.index)

    return make


def _unpack(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    """`a, b = value`: no more is asked of the value than Python asks."""
    text = f"{rebuilder.constant(unpacked)}({rebuilder.value(frame.stack[-1])}, {ins.arg or 0})"
    return Operation(text, frame.stack[:-1], ins.index)


def _operator(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    table = operate.BINARY if ins.op == "binary_op" else operate.COMPARE
    return _applied(table[str(ins.argval)][0], 2)(rebuilder, frame, ins)


def _contains(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    key, container = map(rebuilder.value, frame.stack[-2:])
    text = f"{key} {'not in' if ins.arg else 'in'} {container}"
    return Operation(text, frame.stack[:-2], ins.index + 1)


def _load_attr(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    text = f"getattr({rebuilder.value(frame.stack[-1])}, {ins.argval!r})"
    return Operation(text, frame.stack[:-1], ins.index + 1)


def _load_super_attr(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    kind, owner, instance = map(rebuilder.value, frame.stack[-3:])
    return Operation(
        f"getattr({kind}({owner}, {instance}), {ins.argval!r})", frame.stack[:-3], ins.index + 1
    )


def _statement(text: str, count: int) -> Callable[..., Operation]:
    """An instruction that gives nothing: its operands and its name put into a text."""

    def make(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
        operands = map(rebuilder.value, frame.stack[-count:])
        filled = text.format(*operands, name=repr(ins.argval))
        return Operation(filled, frame.stack[:-count], ins.index + 1, pushes=())

    return make


def _for_iter(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    text = f"next({rebuilder.value(frame.stack[-1])}, END)"
    return Operation(text, list(frame.stack), ins.index + 1)


def _before_with(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    manager = rebuilder.value(frame.stack[-1])
    leave = (f"leave = {manager}.__exit__",)
    below = [*frame.stack[:-1], _Text("leave")]
    return Operation(f"{manager}.__enter__()", below, ins.index + 1, prepare=leave)


def _with_except_start(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    leave, error = rebuilder.value(frame.stack[-4]), rebuilder.value(frame.stack[-1])
    text = f"{leave}(type({error}), {error}, {error}.__traceback__)"
    return Operation(text, list(frame.stack), ins.index + 1)


def _format(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    flags = ins.arg or 0
    take = 2 if flags & 4 else 1
    spec = rebuilder.value(frame.stack[-1]) if flags & 4 else "''"
    convert = ("", "str", "repr", "ascii")[flags & 3]
    text = f"format({convert}({rebuilder.value(frame.stack[-take])}), {spec})"
    return Operation(text, frame.stack[:-take], ins.index + 1)


def _convert(rebuilder: Rebuilder, frame: Frame, ins: Instruction) -> Operation:
    convert = ("", "str", "repr", "ascii")[ins.arg or 0]
    return Operation(
        f"{convert}({rebuilder.value(frame.stack[-1])})", frame.stack[:-1], ins.index + 1
    )


_TESTS: Final = ("pop_jump_if_false", "pop_jump_if_true", "unary_not", "to_bool")
_OPERATIONS: Final[dict[str, Callable[..., Operation]]] = {
    **dict.fromkeys(("call", "call_function_ex"), _call),
    **dict.fromkeys(("binary_op", "compare_op"), _operator),
    "contains_op": _contains,
    "binary_subscr": _applied(operator.getitem, 2),
    "load_attr": _load_attr,
    "load_super_attr": _load_super_attr,
    "store_attr": _statement("setattr({1}, {name}, {0})", 2),
    "delete_attr": _statement("delattr({0}, {name})", 1),
    "store_subscr": _statement("{1}.__setitem__({2}, {0})", 3),
    "delete_subscr": _statement("{0}.__delitem__({1})", 2),
    "get_iter": _applied(iter, 1),
    "for_iter": _for_iter,
    "before_with": _before_with,
    "with_except_start": _with_except_start,
    "format_value": _format,
    "convert_value": _convert,
    "unary_negative": _applied(operator.neg, 1),
    "unary_positive": _applied(operator.pos, 1),
    "unary_invert": _applied(operator.invert, 1),
    **dict.fromkeys(_TESTS, _replaced(bool)),
    "unpack_sequence": _unpack,
    "unpack_ex": _replaced(tuple),
    **dict.fromkeys(("list_extend", "set_update"), _replaced(list)),
    **dict.fromkeys(("dict_update", "dict_merge"), _replaced(dict)),
}
