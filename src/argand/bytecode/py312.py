"""bytecode.py312: the dialect of CPython 3.12, and what 3.13 has in common with it.

Comprehensions are part of their function (PEP 709), constants are returned by one instruction, closures and
other cells are loaded like local variables, rare operations are intrinsic functions by number.
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from argand.bytecode.dialect import (
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

CONDITIONS: Final = ("NOT_NONE", "NONE", "FALSE", "TRUE")

# Intrinsic functions of one operand and of two, by their names in `opcode`; the others make types.
_UNARY: Final = {
    "INTRINSIC_PRINT": "print_expr",
    "INTRINSIC_IMPORT_STAR": "import_star",
    "INTRINSIC_STOPITERATION_ERROR": "stop_iteration_error",
    "INTRINSIC_ASYNC_GEN_WRAP": "async_gen_wrap",
    "INTRINSIC_UNARY_POSITIVE": "unary_positive",
    "INTRINSIC_LIST_TO_TUPLE": "list_to_tuple",
}
# with the POP_TOP of the None they push
_LEAVES_NOTHING: Final = frozenset({"print_expr", "import_star"})


def intrinsic(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """CALL_INTRINSIC_1 and CALL_INTRINSIC_2."""
    raw = raws[at]
    if raw.name == "CALL_INTRINSIC_2":
        names: Any = getattr(opcode, "_intrinsic_2_descs", ())
        is_group = names[raw.arg] == "INTRINSIC_PREP_RERAISE_STAR"
        op = "prep_reraise_star" if is_group else "make_bound_type_parameter"
        return NormalForm((Piece(op, raw.arg, names[raw.arg]),))
    names = getattr(opcode, "_intrinsic_1_descs", ())
    op = _UNARY.get(names[raw.arg], "make_type_parameter")
    return NormalForm((Piece(op, raw.arg, names[raw.arg]),), used=2 if op in _LEAVES_NOTHING else 1)


def load_fast(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """A local variable, or a cell itself: LOAD_CLOSURE is gone."""
    raw = raws[at]
    name = context.variables[raw.arg]
    return NormalForm(
        (Piece("load_closure" if raw.arg in context.cells else "load_fast", raw.arg, name),)
    )


def load_attr(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """An attribute; a method when the lowest bit is set, with a NULL beside it."""
    arg = raws[at].arg
    value = Piece("load_attr", arg >> 1, context.code.co_names[arg >> 1])
    return NormalForm((value, Piece("push_null"), Piece("swap", 2)) if arg & 1 else (value,))


def load_super_attr(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """`super().name`: the class and the object are on the stack above `super`."""
    arg = raws[at].arg
    value = Piece("load_super_attr", arg & ~1, context.code.co_names[arg >> 2])
    return NormalForm((value, Piece("push_null"), Piece("swap", 2)) if arg & 1 else (value,))


def load_global(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """A global; a NULL below it when the lowest bit is set."""
    arg = raws[at].arg
    value = Piece("load_global", arg >> 1, context.code.co_names[arg >> 1])
    return NormalForm((Piece("push_null"), value) if arg & 1 else (value,))


def _call(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """CALL, with the names that KW_NAMES before it hides in the frame."""
    if raws[at].name == "CALL":
        return NormalForm((Piece("call", raws[at].arg, ()),))
    names = context.code.co_consts[raws[at].arg]
    return NormalForm((Piece("call", raws[at + 1].arg, names),), used=2)


def compare_op(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """A comparison; the low bits of the argument help the specialised forms and are kept."""
    arg = raws[at].arg
    return NormalForm((Piece("compare_op", arg, dis.cmp_op[arg >> 4]),))


def return_const(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """`return 1`."""
    arg = raws[at].arg
    return NormalForm(
        (Piece("load_const", arg, context.code.co_consts[arg]), Piece("return_value"))
    )


def binary_slice(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """`a[b:c]`."""
    return NormalForm((Piece("build_slice", 2), Piece("binary_subscr")))


def store_slice(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """`a[b:c] = d`."""
    return NormalForm((Piece("build_slice", 2), Piece("store_subscr")))


def _end_for(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """Jumped over by the loop that ends: it is there for generators inlined into the loop."""
    return NormalForm(())


SPLIT: Final[Mapping[str, Splitter]] = {
    "CALL_INTRINSIC_1": intrinsic,
    "CALL_INTRINSIC_2": intrinsic,
    "LOAD_FAST": load_fast,
    "LOAD_FAST_CHECK": load_fast,
    "LOAD_ATTR": load_attr,
    "LOAD_SUPER_ATTR": load_super_attr,
    "LOAD_GLOBAL": load_global,
    "KW_NAMES": _call,
    "CALL": _call,
    "COMPARE_OP": compare_op,
    "RETURN_CONST": return_const,
    "BINARY_SLICE": binary_slice,
    "STORE_SLICE": store_slice,
    "END_FOR": _end_for,
}


def _write_call(call: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    names: tuple[str, ...] = call.argval or ()  # type: ignore[assignment]  # decoding put a tuple of str there
    hidden = (("KW_NAMES", constant_index(constants, names)),) if names else ()
    return (*hidden, ("CALL", call.arg or 0))


def write_shifted(load: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    """A name whose lowest bit would ask for a NULL."""
    return ((load.op.upper(), (load.arg or 0) << 1),)


def write_load_fast(load: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    """The compiler proved some variables to be set; a resume function starts elsewhere, so each is checked."""
    return (("LOAD_FAST_CHECK", load.arg or 0),)


def write_closure(load: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    """A cell is loaded as what the slot holds."""
    return (("LOAD_FAST", load.arg or 0),)


def _write_intrinsic(op: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    drop = (("POP_TOP", 0),) if op.op in _LEAVES_NOTHING else ()
    return (("CALL_INTRINSIC_1", op.arg or 0), *drop)


def _write_binary_intrinsic(
    op: Instruction, constants: Sequence[object]
) -> tuple[tuple[str, int], ...]:
    return (("CALL_INTRINSIC_2", op.arg or 0),)


WRITE: Final[Mapping[str, InstructionWriter]] = {
    "call": _write_call,
    "load_attr": write_shifted,
    "load_global": write_shifted,
    "load_fast": write_load_fast,
    "load_closure": write_closure,
    **dict.fromkeys((*_UNARY.values(), "make_type_parameter"), _write_intrinsic),
    **dict.fromkeys(("prep_reraise_star", "make_bound_type_parameter"), _write_binary_intrinsic),
}
RENAMED: Final = {
    "JUMP_FORWARD": "jump",
    "JUMP_BACKWARD": "jump",
    "JUMP_BACKWARD_NO_INTERRUPT": "jump_no_interrupt",
    "LOAD_FROM_DICT_OR_GLOBALS": "load_from_dict_or_global",
}
JUMPS: Final = {
    **dict.fromkeys(("JUMP_FORWARD", "FOR_ITER", "SEND"), 1),
    **dict.fromkeys(("JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"), -1),
    **{f"POP_JUMP_IF_{what}": 1 for what in CONDITIONS},
}
FORWARD: Final = {"jump": "JUMP_FORWARD", "load_from_dict_or_global": "LOAD_FROM_DICT_OR_GLOBALS"}
BACKWARD: Final = {"jump": "JUMP_BACKWARD", "jump_no_interrupt": "JUMP_BACKWARD_NO_INTERRUPT"}


def _caches() -> dict[str, int]:
    entries: Any = getattr(opcode, "_inline_cache_entries", ())
    return (
        {dis.opname[op]: units for op, units in enumerate(entries) if units}
        if isinstance(entries, list)
        else {}
    )


DIALECT: Final = Dialect(
    version=(3, 12),
    caches=_caches(),
    renamed=RENAMED,
    split=SPLIT,
    write=WRITE,
    jumps=JUMPS,
    forward=FORWARD,
    backward=BACKWARD,
    landing=("END_FOR",),
    close_gives_value=False,
    locals_are_new=False,
    send_drops=False,
    null_last=False,
    looks_before=False,
)
