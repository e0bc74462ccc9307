"""capture.bytecode.py311: CPython 3.11's bytecode to the normal form, and the facts to write it back.

In: a code object.  Out: its `Instruction`s.  Everything that is true of 3.11 only is in this file; a new Python
version is a new module with the same public names (`read`, `raw_name`, `CACHES`, `NORMAL`, `call_of_local`,
`effect`).
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Callable
from types import CodeType
from typing import Final

from argand.capture.bytecode.instruction import Handler, Instruction, Positions

NAMES: Final = tuple(dis.opname)
CODES: Final = dict(dis.opmap)
# Cache units after each opcode; they are part of the instruction's length and stay zero in co_code.
CACHES: Final = tuple(opcode._inline_cache_entries)  # type: ignore[attr-defined]  # the only table of them there is

_POPPING: Final = ("NOT_NONE", "NONE", "FALSE", "TRUE")
_BACKWARD: Final = {
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_NO_INTERRUPT",
    **{f"POP_JUMP_BACKWARD_IF_{what}": f"POP_JUMP_IF_{what}" for what in _POPPING},
}
_FORWARD: Final = {
    "JUMP_FORWARD": "JUMP",
    **{f"POP_JUMP_FORWARD_IF_{what}": f"POP_JUMP_IF_{what}" for what in _POPPING},
    **{name: name for name in ("JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "FOR_ITER", "SEND")},
}
_RAW_BACKWARD: Final = {normal: raw for raw, normal in _BACKWARD.items()}
_RAW_FORWARD: Final = {normal: raw for raw, normal in _FORWARD.items()}

# The name in the normal form, by opcode.
NORMAL: Final = tuple(_BACKWARD.get(name) or _FORWARD.get(name) or name for name in NAMES)
_DIRECTION: Final = tuple(-1 if n in _BACKWARD else 1 if n in _FORWARD else 0 for n in NAMES)
_HAVE_ARGUMENT: Final = opcode.HAVE_ARGUMENT
_EXTENDED_ARG: Final = CODES["EXTENDED_ARG"]
_CACHE: Final = CODES["CACHE"]
_CALL: Final = CODES["CALL"]
_KW_NAMES: Final = CODES["KW_NAMES"]

_CONST, _NAME, _GLOBAL, _VARIABLE, _COMPARE, _BINARY = range(1, 7)


def _argument_kinds() -> tuple[int, ...]:
    kinds = [0] * 256
    for table, kind in (
        (dis.hasconst, _CONST),
        (dis.hasname, _NAME),
        (dis.haslocal, _VARIABLE),
        (dis.hasfree, _VARIABLE),
        (dis.hascompare, _COMPARE),
    ):
        for code in table:
            kinds[code] = kind
    kinds[CODES["LOAD_GLOBAL"]] = _GLOBAL
    kinds[CODES["BINARY_OP"]] = _BINARY
    kinds[_KW_NAMES] = _CONST
    return tuple(kinds)


_KINDS: Final = _argument_kinds()
_OPERATORS: Final = tuple(symbol for _, symbol in opcode._nb_ops)  # type: ignore[attr-defined]


def variables(code: CodeType) -> tuple[str, ...]:
    """Names of the frame's slots: arguments and locals, cells that are not arguments, free variables."""
    own_cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return (*code.co_varnames, *own_cells, *code.co_freevars)


def read(code: CodeType) -> tuple[Instruction, ...]:
    """The instructions of `code` in normal form."""
    raw = code.co_code
    tables: dict[int, tuple[object, ...]] = {
        _CONST: code.co_consts,
        _NAME: code.co_names,
        _VARIABLE: variables(code),
        _COMPARE: dis.cmp_op,
        _BINARY: _OPERATORS,
    }
    positions = list(code.co_positions())
    found: list[Instruction] = []
    index_at: dict[int, int] = {}  # from the first EXTENDED_ARG of an instruction, where jumps go
    extended, start, keywords = 0, -1, ()
    for offset in range(0, len(raw), 2):
        op = raw[offset]
        if op == _CACHE:
            continue
        if start < 0:
            start = offset
        arg = raw[offset + 1] | extended
        if op == _EXTENDED_ARG:
            extended = arg << 8
            continue
        index_at[start] = len(found)
        extended, start = 0, -1
        kind = _KINDS[op]
        if kind == 0:
            value: object = keywords if op == _CALL else None
        elif kind == _GLOBAL:
            value = code.co_names[arg >> 1]
        else:
            value = tables[kind][arg]
        if op == _KW_NAMES:
            keywords = value  # type: ignore[assignment]  # the compiler puts a tuple of str there
        elif op == _CALL:
            keywords = ()
        argument = arg if op >= _HAVE_ARGUMENT else None
        place = tuple.__new__(Positions, positions[offset >> 1])  # twice as fast as Positions(...)
        found.append(Instruction(len(found), NORMAL[op], argument, value, offset, place))
    _resolve(code, raw, found, index_at)
    return tuple(found)


def _resolve(code: CodeType, raw: bytes, found: list[Instruction], index_at: dict[int, int]) -> None:
    """Turn relative jumps into indices, and give each instruction its exception handler."""
    for instruction in found:
        op = raw[instruction.offset]
        direction = _DIRECTION[op]
        if direction:
            after = instruction.offset + 2 + 2 * CACHES[op]
            instruction.target = index_at[after + 2 * direction * (instruction.arg or 0)]
    if not code.co_exceptiontable:
        return
    for start, end, target, depth, lasti in read_exception_table(code.co_exceptiontable):
        handler = Handler(index_at[target], depth, lasti)
        last = index_at[end] if end in index_at else len(found)
        for instruction in found[index_at[start] : last]:
            instruction.handler = handler


def read_exception_table(table: bytes) -> list[tuple[int, int, int, int, bool]]:
    """Entries (start, end, target, depth, lasti) of `co_exceptiontable`, in byte offsets."""
    numbers: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            numbers.append(value)
            value = 0
    entries = []
    for i in range(0, len(numbers), 4):
        start, size, target, flags = numbers[i : i + 4]
        entries.append((2 * start, 2 * (start + size), 2 * target, flags >> 1, bool(flags & 1)))
    return entries


def raw_name(op: str, *, backward: bool) -> str:
    """The opcode that stands for the normal form's `op`, a jump in the given direction."""
    return (_RAW_BACKWARD if backward else _RAW_FORWARD).get(op, op)


def call_of_local(slot: int) -> tuple[tuple[str, int], ...]:
    """What calls the callable in local `slot` without arguments, and forgets it before the call."""
    return (("PUSH_NULL", 0), ("LOAD_FAST", slot), ("DELETE_FAST", slot), ("PRECALL", 0), ("CALL", 0))


# (popped, pushed) of the instructions whose effect does not depend on their argument.
_ROWS: Final = {
    (0, 0): (
        "NOP RESUME MAKE_CELL COPY_FREE_VARS KW_NAMES PRECALL SETUP_ANNOTATIONS DELETE_NAME DELETE_GLOBAL "
        "DELETE_FAST DELETE_DEREF JUMP JUMP_NO_INTERRUPT"
    ),
    (0, 1): (
        "PUSH_NULL RETURN_GENERATOR LOAD_BUILD_CLASS LOAD_ASSERTION_ERROR LOAD_CONST LOAD_NAME LOAD_FAST "
        "LOAD_CLOSURE LOAD_DEREF LOAD_CLASSDEREF"
    ),
    (1, 0): (
        "POP_TOP POP_EXCEPT PRINT_EXPR RETURN_VALUE IMPORT_STAR STORE_NAME DELETE_ATTR STORE_GLOBAL "
        "STORE_FAST STORE_DEREF LIST_APPEND SET_ADD LIST_EXTEND SET_UPDATE DICT_MERGE DICT_UPDATE RERAISE "
        "POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE JUMP_IF_FALSE_OR_POP "
        "JUMP_IF_TRUE_OR_POP"
    ),
    (1, 1): (
        "UNARY_POSITIVE UNARY_NEGATIVE UNARY_NOT UNARY_INVERT GET_AITER GET_AWAITABLE GET_YIELD_FROM_ITER "
        "ASYNC_GEN_WRAP YIELD_VALUE GET_ITER LIST_TO_TUPLE LOAD_ATTR"
    ),
    (1, 2): (
        "GET_LEN MATCH_MAPPING MATCH_SEQUENCE PUSH_EXC_INFO BEFORE_WITH BEFORE_ASYNC_WITH GET_ANEXT "
        "LOAD_METHOD IMPORT_FROM FOR_ITER"
    ),
    (2, 0): "DELETE_SUBSCR END_ASYNC_FOR STORE_ATTR MAP_ADD",
    (2, 1): "BINARY_SUBSCR BINARY_OP COMPARE_OP IS_OP CONTAINS_OP PREP_RERAISE_STAR IMPORT_NAME",
    (2, 2): "CHECK_EXC_MATCH CHECK_EG_MATCH SEND",
    (2, 3): "MATCH_KEYS",
    (3, 0): "STORE_SUBSCR",
    (3, 1): "MATCH_CLASS",
    (4, 5): "WITH_EXCEPT_START",
}
_EFFECTS: Final = {op: change for change, ops in _ROWS.items() for op in ops.split()}
# The same for those whose effect does.
_BY_ARGUMENT: Final[dict[str, Callable[[int], tuple[int, int]]]] = {
    "LOAD_GLOBAL": lambda arg: (0, 1 + (arg & 1)),
    "CALL": lambda arg: (arg + 2, 1),
    "CALL_FUNCTION_EX": lambda arg: (3 + (arg & 1), 1),
    "UNPACK_SEQUENCE": lambda arg: (1, arg),
    "UNPACK_EX": lambda arg: (1, (arg & 0xFF) + (arg >> 8) + 1),
    **{f"BUILD_{what}": lambda arg: (arg, 1) for what in ("TUPLE", "LIST", "SET", "STRING", "SLICE")},
    "BUILD_MAP": lambda arg: (2 * arg, 1),
    "BUILD_CONST_KEY_MAP": lambda arg: (arg + 1, 1),
    "FORMAT_VALUE": lambda arg: (2 if arg & 4 else 1, 1),
    "MAKE_FUNCTION": lambda arg: (1 + (arg & 15).bit_count(), 1),
    "RAISE_VARARGS": lambda arg: (arg, 0),
    "SWAP": lambda arg: (arg, arg),
    "COPY": lambda arg: (arg, arg + 1),
}
# The same on the way to the jump's target, where it differs.
_JUMPING: Final = {"FOR_ITER": (1, 0), "SEND": (2, 1), "JUMP_IF_FALSE_OR_POP": (1, 1), "JUMP_IF_TRUE_OR_POP": (1, 1)}


def effect(op: str, arg: int, *, jumps: bool) -> tuple[int, int]:
    """How many values the instruction pops and pushes, on the way to its target or to the next one."""
    if jumps and op in _JUMPING:
        return _JUMPING[op]
    return _EFFECTS[op] if op in _EFFECTS else _BY_ARGUMENT[op](arg)
