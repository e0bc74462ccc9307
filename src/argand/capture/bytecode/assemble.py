"""capture.bytecode.assemble: instructions in normal form back to a code object.

In: instructions, jumps and handlers by index, and the code object they stem from.  Out: a code object.
Jumps get the shortest encoding that reaches (EXTENDED_ARG only where needed); caches, the location table and the
exception table are written as CPython's own assembler writes them, so that decode then assemble is the identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import CodeType

from argand.capture.bytecode.flow import stack_size
from argand.capture.bytecode.instruction import Handler, Instruction, Positions
from argand.capture.bytecode.version import dialect


def assemble(instructions: Sequence[Instruction], code: CodeType, **changes: object) -> CodeType:
    """A copy of `code` with these instructions; `changes` go to `code.replace` (names, constants, ...)."""
    opcodes = [_raw_opcode(instruction) for instruction in instructions]
    starts, arguments = _lay_out(instructions, opcodes)
    return code.replace(
        co_code=_emit(opcodes, starts, arguments),
        co_linetable=_location_table(instructions, starts, code.co_firstlineno),
        co_exceptiontable=_exception_table(instructions, starts),
        co_stacksize=stack_size(instructions),
        **changes,  # type: ignore[arg-type]  # the caller names fields of a code object
    )


def _raw_opcode(instruction: Instruction) -> int:
    backward = instruction.target is not None and instruction.target <= instruction.index
    return dialect.CODES[dialect.raw_name(instruction.op, backward=backward)]


def _extensions(argument: int) -> int:
    return 0 if argument < 256 else (argument.bit_length() - 1) // 8


def _lay_out(instructions: Sequence[Instruction], opcodes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Start of each instruction (and the end of the last one) in code units, and all arguments.

    Starts from the shortest jumps and lengthens those that do not reach until all do: sizes only grow, so it ends.
    """
    arguments = [0 if i.target is not None else i.arg or 0 for i in instructions]
    jumps = [(i.index, i.target) for i in instructions if i.target is not None]
    sizes = [
        1 + _extensions(argument) + dialect.CACHES[opcode] for argument, opcode in zip(arguments, opcodes, strict=True)
    ]
    while True:
        starts = [0, *itertools.accumulate(sizes)]
        grown = False
        for index, target in jumps:
            arguments[index] = abs(starts[target] - starts[index + 1])
            size = 1 + _extensions(arguments[index]) + dialect.CACHES[opcodes[index]]
            if size > sizes[index]:
                sizes[index] = size
                grown = True
        if not grown:
            return starts, arguments


def _emit(opcodes: Sequence[int], starts: Sequence[int], arguments: Sequence[int]) -> bytes:
    extended = dialect.CODES["EXTENDED_ARG"]
    out = bytearray()
    for index, (opcode, argument) in enumerate(zip(opcodes, arguments, strict=True)):
        cache = dialect.CACHES[opcode]
        extensions = starts[index + 1] - starts[index] - 1 - cache
        for shift in range(8 * extensions, 0, -8):
            out += bytes((extended, argument >> shift & 0xFF))
        out += bytes((opcode, argument & 0xFF)) + bytes(2 * cache)
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


def _location_table(instructions: Sequence[Instruction], starts: Sequence[int], line: int) -> bytes:
    out = bytearray()
    for instruction in instructions:
        units = starts[instruction.index + 1] - starts[instruction.index]
        while units > 0:
            out += _location_entry(min(units, 8), instruction.positions, line)
            if instruction.line is not None:
                line = instruction.line
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


def _exception_table(instructions: Sequence[Instruction], starts: Sequence[int]) -> bytes:
    out = bytearray()
    begin = 0
    current: Handler | None = None
    for index in range(len(instructions) + 1):
        handler = instructions[index].handler if index < len(instructions) else None
        if handler == current and index < len(instructions):
            continue
        if current is not None:
            out += _table_number(starts[begin], first=True)
            out += _table_number(starts[index] - starts[begin], first=False)
            out += _table_number(starts[current.target], first=False)
            out += _table_number(current.depth << 1 | current.lasti, first=False)
        begin, current = index, handler
    return bytes(out)
