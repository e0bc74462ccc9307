"""bytecode.py311: the dialect of CPython 3.11."""

from __future__ import annotations

import dis
import opcode
from collections.abc import Sequence
from typing import Final

from argand.bytecode.dialect import Context, Dialect, NormalForm, Piece, Raw, constant_index
from argand.bytecode.instruction import Instruction

_CONDITIONS: Final = ("NOT_NONE", "NONE", "FALSE", "TRUE")
_CALL_NAMES: Final = ("KW_NAMES", "PRECALL", "CALL")


def _call(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """KW_NAMES, PRECALL and CALL are one call; the names are hidden state between them."""
    names: object = ()
    used = 1
    while raws[at + used - 1].name != "CALL":
        if raws[at + used - 1].name == "KW_NAMES":
            names = context.code.co_consts[raws[at + used - 1].arg]
        used += 1
    return NormalForm((Piece("call", raws[at + used - 1].arg, names),), used)


def _load_global(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    arg = raws[at].arg
    value = Piece("load_global", arg >> 1, context.code.co_names[arg >> 1])
    return NormalForm((Piece("push_null"), value) if arg & 1 else (value,))


def _load_method(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    """What CALL wants below its arguments: a NULL below a bound method serves as well as the unbound one."""
    arg = raws[at].arg
    return NormalForm(
        (Piece("load_attr", arg, context.code.co_names[arg]), Piece("push_null"), Piece("swap", 2))
    )


def _jump_or_pop(context: Context, raws: Sequence[Raw], at: int) -> NormalForm:
    branch = "pop_jump_if_false" if "FALSE" in raws[at].name else "pop_jump_if_true"
    return NormalForm((Piece("copy", 1), Piece(branch, jumps=True), Piece("pop_top")))


def _write_call(call: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    count = call.arg or 0
    names: tuple[str, ...] = call.argval or ()  # type: ignore[assignment]  # decoding put a tuple of str there
    hidden = (("KW_NAMES", constant_index(constants, names)),) if names else ()
    return (*hidden, ("PRECALL", count), ("CALL", count))


def _write_global(load: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    return (("LOAD_GLOBAL", (load.arg or 0) << 1),)


def _write_nothing(end: Instruction, constants: Sequence[object]) -> tuple[tuple[str, int], ...]:
    """SEND has dropped the receiver."""
    return ()


DIALECT: Final = Dialect(
    version=(3, 11),
    caches={
        dis.opname[op]: units
        for op, units in enumerate(getattr(opcode, "_inline_cache_entries", ()))
        if units
    },
    renamed={
        "JUMP_FORWARD": "jump",
        "JUMP_BACKWARD": "jump",
        "JUMP_BACKWARD_NO_INTERRUPT": "jump_no_interrupt",
        **{
            f"POP_JUMP_{way}_IF_{what}": f"pop_jump_if_{what.lower()}"
            for what in _CONDITIONS
            for way in ("FORWARD", "BACKWARD")
        },
    },
    split={
        **dict.fromkeys(_CALL_NAMES, _call),
        "LOAD_GLOBAL": _load_global,
        "LOAD_METHOD": _load_method,
        "JUMP_IF_FALSE_OR_POP": _jump_or_pop,
        "JUMP_IF_TRUE_OR_POP": _jump_or_pop,
    },
    write={"call": _write_call, "load_global": _write_global, "end_send": _write_nothing},
    jumps={
        **dict.fromkeys(
            ("JUMP_FORWARD", "FOR_ITER", "SEND", "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP"), 1
        ),
        **dict.fromkeys(("JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"), -1),
        **{f"POP_JUMP_FORWARD_IF_{what}": 1 for what in _CONDITIONS},
        **{f"POP_JUMP_BACKWARD_IF_{what}": -1 for what in _CONDITIONS},
    },
    forward={
        "jump": "JUMP_FORWARD",
        **{f"pop_jump_if_{what.lower()}": f"POP_JUMP_FORWARD_IF_{what}" for what in _CONDITIONS},
    },
    backward={
        "jump": "JUMP_BACKWARD",
        "jump_no_interrupt": "JUMP_BACKWARD_NO_INTERRUPT",
        **{f"pop_jump_if_{what.lower()}": f"POP_JUMP_BACKWARD_IF_{what}" for what in _CONDITIONS},
    },
    landing=(),
    close_gives_value=False,
    locals_are_new=False,
    send_drops=True,
    null_last=False,
    looks_before=False,
)
