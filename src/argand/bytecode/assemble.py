"""bytecode.assemble: instructions in normal form back to a code object.

In: instructions, jumps and handlers by index, and the code object they stem from.  Out: a code object that runs as
they say. Raw instructions that were split stay apart, so it need not be the code they were read from.
Jumps get the shortest encoding that reaches (EXTENDED_ARG only where needed); the location table and the exception
table are written as CPython's own assembler writes them.
"""

from __future__ import annotations

import dis
import itertools
from collections.abc import Sequence
from types import CodeType
from typing import Any, Final, NamedTuple

from argand.bytecode.dialect import PADDING
from argand.bytecode.flow import falls_through, stack_size
from argand.bytecode.instruction import CodeHandler, Instruction, Positions
from argand.bytecode.version import DIALECT

_EXTENDED: Final = dis.opmap["EXTENDED_ARG"]


class _Item(NamedTuple):
    """A raw instruction to write."""

    opcode: int
    arg: int
    cache: int  # code units after it
    label: tuple[str, int] | None  # of the place a jump goes to
    positions: Positions
    handler: CodeHandler | None


def assemble(instructions: Sequence[Instruction], code: CodeType, **changes: Any) -> CodeType:
    """A copy of `code` with these instructions; `changes` go to `code.replace` (names, constants, ...)."""
    items, places = _expand(instructions, changes.get("co_consts", code.co_consts))
    starts, arguments = _lay_out(items, places)
    return code.replace(
        co_code=_emit(items, starts, arguments),
        co_linetable=_location_table(items, starts, code.co_firstlineno),
        co_exceptiontable=_exception_table(items, starts, places),
        co_stacksize=stack_size(instructions),
        **changes,
    )


def relocated(code: CodeType, positions: Positions, **changes: Any) -> CodeType:
    """`code` as if all of it stood at one place of the source."""
    units = len(code.co_code) // 2
    table = bytearray()
    line = changes.get("co_firstlineno", code.co_firstlineno)
    while units > 0:
        table += _location_entry(min(units, 8), positions, line)
        line = positions.line if positions.line is not None else line
        units -= 8
    return code.replace(co_linetable=bytes(table), **changes)


def _expand(
    instructions: Sequence[Instruction], constants: Sequence[object]
) -> tuple[list[_Item], dict[tuple[str, int], int]]:
    """The raw instructions, and where each normal one (and the landing of each loop) begins among them."""
    items: list[_Item] = []
    places: dict[tuple[str, int], int] = {}
    landings = {i.target for i in instructions if i.op == "for_iter"} if DIALECT.landing else set()
    for instruction in instructions:
        at = instruction.index
        if at in landings:
            # Running into the landing would pop what is not there; no compiler lets code fall out of a loop.
            assert at == 0 or not falls_through(instructions[at - 1])
            places["landing", at] = len(items)
            items += [_item(name, 0, instruction, None) for name in DIALECT.landing]
        places["", at] = len(items)
        if DIALECT.looks_before and items and items[-1].handler != instruction.handler:
            # decoding drops it, so that indices stay the same
            items.append(_item("NOP", PADDING, instruction, None))
        for name, arg in _raw(instruction, constants):
            jumps = instruction.target is not None and name in DIALECT.jumps
            kind = "landing" if DIALECT.landing and instruction.op == "for_iter" else ""
            label = (kind, instruction.target) if jumps and instruction.target is not None else None
            items.append(_item(name, arg, instruction, label))
    places["", len(instructions)] = len(items)
    return items, places


def _raw(instruction: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    op = instruction.op
    writer = DIALECT.write.get(op)
    if writer is not None:
        return writer(instruction, constants)
    is_back = instruction.target is not None and instruction.target <= instruction.index
    name = (DIALECT.backward if is_back else DIALECT.forward).get(op) or op.upper()
    return ((name, 0 if instruction.target is not None else instruction.arg or 0),)


def _item(name: str, arg: int, instruction: Instruction, label: tuple[str, int] | None) -> _Item:
    cache = DIALECT.caches.get(name, 0)
    return _Item(dis.opmap[name], arg, cache, label, instruction.positions, instruction.handler)


def _extensions(argument: int) -> int:
    return 0 if argument < 256 else (argument.bit_length() - 1) // 8


def _lay_out(
    items: Sequence[_Item], places: dict[tuple[str, int], int]
) -> tuple[list[int], list[int]]:
    """Start of each raw instruction (and the end of the last one) in code units, and all arguments.

    Starts from the shortest jumps and lengthens those that do not reach until all do: sizes only grow, so it ends.
    """
    arguments = [item.arg for item in items]
    jumps = [(at, places[item.label]) for at, item in enumerate(items) if item.label is not None]
    sizes = [1 + _extensions(item.arg) + item.cache for item in items]
    while True:
        starts = [0, *itertools.accumulate(sizes)]
        grown = False
        for at, target in jumps:
            arguments[at] = abs(starts[target] - starts[at + 1])
            size = 1 + _extensions(arguments[at]) + items[at].cache
            if size > sizes[at]:
                sizes[at] = size
                grown = True
        if not grown:
            return starts, arguments


def _emit(items: Sequence[_Item], starts: Sequence[int], arguments: Sequence[int]) -> bytes:
    out = bytearray()
    for at, (item, argument) in enumerate(zip(items, arguments, strict=True)):
        extensions = starts[at + 1] - starts[at] - 1 - item.cache
        for shift in range(8 * extensions, 0, -8):
            out += bytes((_EXTENDED, argument >> shift & 0xFF))
        out += bytes((item.opcode, argument & 0xFF)) + bytes(2 * item.cache)
    return bytes(out)


def _varint(value: int) -> bytes:
    """Six bits per byte, lowest first (location table)."""
    out = bytearray()
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    out.append(value)
    return bytes(out)


def _signed_varint(value: int) -> bytes:
    return _varint((-value << 1) | 1 if value < 0 else value << 1)


def _location_entry(length: int, positions: Positions, line: int) -> bytes:
    """One entry of the location table for `length` <= 8 code units; `line` is the last entry's."""
    first, last, column, end_column = positions

    def entry(form: int, rest: bytes) -> bytes:
        return bytes((0x80 | form << 3 | length - 1,)) + rest

    if first is None:
        return entry(15, b"")
    delta = first - line
    if column is None or end_column is None:
        if last is None or last == first:
            return entry(13, _signed_varint(delta))
    elif last == first:
        if delta == 0 and column < 80 and 0 <= end_column - column < 16:
            return entry(column >> 3, bytes(((column & 7) << 4 | end_column - column,)))
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            return entry(10 + delta, bytes((column, end_column)))
    return entry(
        14,
        _signed_varint(delta)
        + _varint((last if last is not None else first) - first)
        + _varint(0 if column is None else column + 1)
        + _varint(0 if end_column is None else end_column + 1),
    )


def _location_table(items: Sequence[_Item], starts: Sequence[int], line: int) -> bytes:
    out = bytearray()
    for at, item in enumerate(items):
        units = starts[at + 1] - starts[at]
        while units > 0:
            out += _location_entry(min(units, 8), item.positions, line)
            if item.positions.line is not None:
                line = item.positions.line
            units -= 8
    return bytes(out)


def _table_number(value: int, *, first: bool) -> bytes:
    """Six bits per byte, highest first; bit 7 marks the start of an entry (exception table)."""
    digits = [value & 63]
    while value >= 64:
        value >>= 6
        digits.append(value & 63 | 64)
    digits.reverse()
    if first:
        digits[0] |= 128
    return bytes(digits)


def _exception_table(
    items: Sequence[_Item], starts: Sequence[int], places: dict[tuple[str, int], int]
) -> bytes:
    out = bytearray()
    begin = 0
    current: CodeHandler | None = None
    for at in range(len(items) + 1):
        handler = items[at].handler if at < len(items) else None
        if handler == current and at < len(items):
            continue
        if current is not None:
            out += _table_number(starts[begin], first=True)
            out += _table_number(starts[at] - starts[begin], first=False)
            out += _table_number(starts[places["", current.target]], first=False)
            out += _table_number(current.depth << 1 | current.lasti, first=False)
        begin, current = at, handler
    return bytes(out)
