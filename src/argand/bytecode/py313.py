"""bytecode.py313: the dialect of CPython 3.13.

The NULL of a call is above its callable; branches want a bool, made by an instruction before them; keyword
names are on the stack; functions get their closure and defaults one by one; pairs of loads and stores are one.
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from argand.bytecode import py312
from argand.bytecode.dialect import (
    PADDING,
    Context,
    Dialect,
    InstructionWriter,
    NormalForm,
    Piece,
    Raw,
    Splitter,
    constant_index,
)
from argand.bytecode.instruction import Instruction

# in the argument of COMPARE_OP: make the result a bool, for the branch that follows
_BOOL: Final = 16
_TESTING: Final = frozenset({"POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "UNARY_NOT"})


def _two(first: str, second: str) -> Splitter:
    """A pair of accesses to local variables in one instruction, slots in the two halves of its argument."""

    def split(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
        slots = (raws[at].arg >> 4, raws[at].arg & 15)
        return NormalForm(
            tuple(
                _access(context, op, slot) for op, slot in zip((first, second), slots, strict=True)
            )
        )

    return split


def _access(context: Context, op: str, slot: int) -> Piece:
    name = context.variables[slot]
    return Piece("load_closure" if op == "load_fast" and slot in context.cells else op, slot, name)


def _to_bool(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """Part of the branch or negation that follows; alone it is a conversion."""
    following = raws[at + 1].name if at + 1 < len(raws) else ""
    return NormalForm(() if following in _TESTING else (Piece("to_bool"),))


def _compare_op(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    arg = raws[at].arg
    return NormalForm((Piece("compare_op", arg & ~_BOOL, dis.cmp_op[arg >> 5]),))


def _load_attr(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    arg = raws[at].arg
    value = Piece("load_attr", arg >> 1, context.code.co_names[arg >> 1])
    return NormalForm((value, Piece("push_null")) if arg & 1 else (value,))


def _load_super_attr(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    arg = raws[at].arg
    value = Piece("load_super_attr", arg & ~1, context.code.co_names[arg >> 2])
    return NormalForm((value, Piece("push_null")) if arg & 1 else (value,))


def _load_global(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    arg = raws[at].arg
    value = Piece("load_global", arg >> 1, context.code.co_names[arg >> 1])
    return NormalForm((value, Piece("push_null")) if arg & 1 else (value,))


def _load_const(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """A constant, or the keyword names of the call that follows."""
    value = context.code.co_consts[raws[at].arg]
    if at + 1 < len(raws) and raws[at + 1].name == "CALL_KW":
        return NormalForm((Piece("call", raws[at + 1].arg, value),), used=2)
    return NormalForm((Piece("load_const", raws[at].arg, value),))


def _call(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    return NormalForm((Piece("call", raws[at].arg, ()),))


def _make_function(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """With the attributes set right after it: their operands lie below the code in the order of the flags."""
    flags, used = 0, 1
    while at + used < len(raws) and raws[at + used].name == "SET_FUNCTION_ATTRIBUTE":
        flags |= raws[at + used].arg
        used += 1
    return NormalForm((Piece("make_function", flags),), used)


def _end_for(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """With the POP_TOP of the iterator after it: both are jumped over by the loop that ends."""
    return NormalForm((), used=2)


def _nop(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """A line of its own in the source; those that `assemble` put in are nothing."""
    return NormalForm(() if raws[at].arg == PADDING else (Piece("nop"),))


def _format(arg: int) -> Splitter:
    return lambda context, raws, at: NormalForm((Piece("format_value", arg),))


SPLIT: Final[Mapping[str, Splitter]] = {
    **{name: split for name, split in py312.SPLIT.items() if name != "KW_NAMES"},
    "LOAD_FAST_LOAD_FAST": _two("load_fast", "load_fast"),
    "STORE_FAST_LOAD_FAST": _two("store_fast", "load_fast"),
    "STORE_FAST_STORE_FAST": _two("store_fast", "store_fast"),
    "TO_BOOL": _to_bool,
    "COMPARE_OP": _compare_op,
    "LOAD_ATTR": _load_attr,
    "LOAD_SUPER_ATTR": _load_super_attr,
    "LOAD_GLOBAL": _load_global,
    "LOAD_CONST": _load_const,
    "CALL": _call,
    "MAKE_FUNCTION": _make_function,
    "END_FOR": _end_for,
    "NOP": _nop,
    "FORMAT_SIMPLE": _format(0),
    "FORMAT_WITH_SPEC": _format(4),
}


def _write_call(call: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    names: tuple[str, ...] = call.argval or ()  # type: ignore[assignment]  # decoding put a tuple of str there
    count = call.arg or 0
    if not names:
        return (("CALL", count),)
    return (("LOAD_CONST", constant_index(constants, names)), ("CALL_KW", count))


def _write_tested(op: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    return (("TO_BOOL", 0), (op.op.upper(), 0))


def _write_function(make: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    flags = make.arg or 0
    return (
        ("MAKE_FUNCTION", 0),
        *(("SET_FUNCTION_ATTRIBUTE", bit) for bit in (8, 4, 2, 1) if flags & bit),
    )


def _write_format(op: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    return (("FORMAT_WITH_SPEC" if (op.arg or 0) & 4 else "FORMAT_SIMPLE", 0),)


WRITE: Final[Mapping[str, InstructionWriter]] = {
    **py312.WRITE,
    "call": _write_call,
    **dict.fromkeys(("pop_jump_if_false", "pop_jump_if_true", "unary_not"), _write_tested),
    "make_function": _write_function,
    "format_value": _write_format,
}


def _caches() -> dict[str, int]:
    entries: Any = getattr(opcode, "_inline_cache_entries", ())
    return dict(entries) if isinstance(entries, dict) else {}


DIALECT: Final = Dialect(
    version=(3, 13),
    caches=_caches(),
    renamed=py312.RENAMED,
    split=SPLIT,
    write=WRITE,
    jumps=py312.JUMPS,
    forward=py312.FORWARD,
    backward=py312.BACKWARD,
    landing=("END_FOR", "POP_TOP"),
    close_gives_value=True,
    locals_are_new=True,
    send_drops=False,
    null_last=True,
    looks_before=True,
)
