"""capture.interpret.opcodes.containers: operators, subscripts, and building and unpacking of containers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from argand.bytecode import Instruction
from argand.capture.interpret.frame import Frame, Handler
from argand.capture.markers import END
from argand.capture.objects import callbacks, operate
from argand.capture.objects.conversions import as_dict, formatted
from argand.capture.outside import real


def _binary(rows: dict[str, operate.OperatorRow]) -> Handler:
    """`a + b` with its in-place forms, `a < b`."""

    def handler(frame: Frame, ins: Instruction) -> None:
        stack = frame.stack
        stack[-2:] = (operate.binary(frame.tracer, rows[str(ins.argval)], stack[-2], stack[-1]),)

    return handler


def _unary(function: Callable[[Any], Any], method: str) -> Handler:
    """`-a`, `+a`, `~a`."""

    def handler(frame: Frame, ins: Instruction) -> None:
        frame.stack[-1] = operate.unary(frame.tracer, function, method, frame.stack[-1])

    return handler


def is_op(frame: Frame, ins: Instruction) -> None:
    """`a is b`, `a is not b`."""
    stack = frame.stack
    stack[-2:] = (operate.identical(frame.tracer.world, stack[-2], stack[-1]) != bool(ins.arg),)


def contains_op(frame: Frame, ins: Instruction) -> None:
    """`a in b`, `a not in b`."""
    stack = frame.stack
    stack[-2:] = (operate.contains(frame.tracer, stack[-2], stack[-1]) != bool(ins.arg),)


def unary_not(frame: Frame, ins: Instruction) -> None:
    """`not a`."""
    frame.stack[-1] = not operate.truth(frame.tracer, frame.stack[-1])


def binary_subscr(frame: Frame, ins: Instruction) -> None:
    """`a[b]`."""
    stack = frame.stack
    stack[-2:] = (operate.subscript(frame.tracer, stack[-2], stack[-1]),)


def store_subscr(frame: Frame, ins: Instruction) -> None:
    """`a[b] = c`; the stack holds c, a, b."""
    stack = frame.stack
    operate.store_subscript(frame.tracer, stack[-2], stack[-1], stack[-3])
    del stack[-3:]


def delete_subscr(frame: Frame, ins: Instruction) -> None:
    """`del a[b]`."""
    stack = frame.stack
    operate.delete_subscript(frame.tracer, stack[-2], stack[-1])
    del stack[-2:]


def _take(frame: Frame, count: int) -> list[Any]:
    if not count:
        return []
    items = frame.stack[-count:]
    del frame.stack[-count:]
    return items


def build_tuple(frame: Frame, ins: Instruction) -> None:
    """`(a, b)`."""
    frame.stack.append(tuple(_take(frame, ins.arg or 0)))


def build_list(frame: Frame, ins: Instruction) -> None:
    """`[a, b]`."""
    frame.stack.append(_take(frame, ins.arg or 0))


def build_set(frame: Frame, ins: Instruction) -> None:
    """`{a, b}`."""
    items = _take(frame, ins.arg or 0)
    callbacks.hash_all(frame.tracer, items)
    frame.stack.append(real.apply(set, items))


def build_map(frame: Frame, ins: Instruction) -> None:
    """`{a: b}`."""
    items = _take(frame, 2 * (ins.arg or 0))
    callbacks.hash_all(frame.tracer, items[::2])
    frame.stack.append(real.apply(dict, zip(items[::2], items[1::2], strict=True)))


def build_const_key_map(frame: Frame, ins: Instruction) -> None:
    """`{a: b}` with constant keys."""
    keys = frame.stack.pop()
    frame.stack.append(dict(zip(keys, _take(frame, ins.arg or 0), strict=True)))


def build_string(frame: Frame, ins: Instruction) -> None:
    """The parts of an f-string."""
    frame.stack.append("".join(_take(frame, ins.arg or 0)))


def build_slice(frame: Frame, ins: Instruction) -> None:
    """`a:b:c`."""
    frame.stack.append(slice(*_take(frame, ins.arg or 2)))


def list_append(frame: Frame, ins: Instruction) -> None:
    """An item of a list comprehension."""
    value = frame.stack.pop()
    frame.stack[-(ins.arg or 1)].append(value)


def set_add(frame: Frame, ins: Instruction) -> None:
    """An item of a set comprehension."""
    target = frame.stack[-(ins.arg or 1) - 1]
    real.apply(target.add, callbacks.settle_key(frame.tracer, target, frame.stack[-1]))
    frame.stack.pop()


def map_add(frame: Frame, ins: Instruction) -> None:
    """An item of a dict comprehension."""
    key, value = frame.stack[-2:]
    target = frame.stack[-(ins.arg or 1) - 2]
    real.apply(operator.setitem, target, callbacks.settle_key(frame.tracer, target, key), value)
    del frame.stack[-2:]


def list_extend(frame: Frame, ins: Instruction) -> None:
    """`[*a]`."""
    target, value = frame.stack[-(ins.arg or 1) - 1], frame.stack[-1]
    if type(value) is not list and type(value) is not tuple:
        value = list(operate.iterate(frame.tracer, value))
    target.extend(value)
    frame.stack.pop()


def set_update(frame: Frame, ins: Instruction) -> None:
    """`{*a}`."""
    target = frame.stack[-(ins.arg or 1) - 1]
    real.apply(target.update, list(operate.iterate(frame.tracer, frame.stack[-1])))
    frame.stack.pop()


def dict_update(frame: Frame, ins: Instruction) -> None:
    """`{**a}`."""
    target = frame.stack[-(ins.arg or 1) - 1]
    real.apply(target.update, as_dict(frame.tracer, frame.stack[-1]))
    frame.stack.pop()


def dict_merge(frame: Frame, ins: Instruction) -> None:
    """`f(**a)`: a key given twice is an error."""
    target = frame.stack[-(ins.arg or 1) - 1]
    given = as_dict(frame.tracer, frame.stack[-1])
    for key in given:
        if key in target:
            real.raise_(TypeError(f"got multiple values for keyword argument '{key}'"))
    target.update(given)
    frame.stack.pop()


def list_to_tuple(frame: Frame, ins: Instruction) -> None:
    """`(*a,)`."""
    frame.stack[-1] = tuple(frame.stack[-1])


def _items(frame: Frame, value: Any, count: int) -> list[Any]:
    if type(value) is tuple or type(value) is list:
        return list(value)
    items: list[Any] = []
    with frame.tracer.seal():
        iterator = operate.get_iter(frame.tracer, value)
    while len(items) <= count and (item := operate.advance(frame.tracer, iterator)) is not END:
        items.append(item)
    return items


def unpack_sequence(frame: Frame, ins: Instruction) -> None:
    """`a, b = c`."""
    count = ins.arg or 0
    items = _items(frame, frame.stack[-1], count)
    if len(items) != count:
        few = f"not enough values to unpack (expected {count}, got {len(items)})"
        real.raise_(
            ValueError(
                few if len(items) < count else f"too many values to unpack (expected {count})"
            )
        )
    items.reverse()
    frame.stack[-1:] = items


def unpack_ex(frame: Frame, ins: Instruction) -> None:
    """`a, *b, c = d`."""
    before, after = (ins.arg or 0) & 0xFF, (ins.arg or 0) >> 8
    items = list(operate.iterate(frame.tracer, frame.stack[-1]))
    if len(items) < before + after:
        text = f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        real.raise_(ValueError(text))
    end = len(items) - after
    parts = [*items[:before], items[before:end], *items[end:]]
    parts.reverse()
    frame.stack[-1:] = parts


def format_value(frame: Frame, ins: Instruction) -> None:
    """One `{value!r:spec}` of an f-string."""
    flags = ins.arg or 0
    take = 2 if flags & 4 else 1
    spec = frame.stack[-1] if flags & 4 else ""
    value = formatted(
        frame.tracer, frame.stack[-take], ("", "str", "repr", "ascii")[flags & 3], spec
    )
    frame.stack[-take:] = (value,)


def convert_value(frame: Frame, ins: Instruction) -> None:
    """The `!r` of an f-string, where it is an instruction of its own."""
    convert = ("", "str", "repr", "ascii")[ins.arg or 0]
    frame.stack[-1] = formatted(frame.tracer, frame.stack[-1], convert, None)


TABLE: Final = {
    "binary_op": _binary(operate.BINARY),
    "compare_op": _binary(operate.COMPARE),
    "unary_negative": _unary(operator.neg, "__neg__"),
    "unary_positive": _unary(operator.pos, "__pos__"),
    "unary_invert": _unary(operator.invert, "__invert__"),
}
