"""bytecode.normal: the instructions of the normal form, one row each.

The normal form is ours: no CPython version has exactly these instructions. A version's module turns raw
code into them and back (`py311`, `py312`, ...), and everything else (the interpreter, the analyses, the
writer of resume functions) knows only these rows. It keeps what a program can observe and nothing else:

- there is no cache, no extended argument, no super-instruction; a jump has a target and no direction;
- a branch tests the truth of any value (`pop_jump_if_true`), so no value is made a bool before it;
- `a and b` is `copy 1; pop_jump_if_false; pop_top`; a slice is built before it is used;
- a method is loaded as an attribute (a bound one), with the NULL that `call` wants pushed beside it;
- `call` has the names of its keyword arguments in `argval`. Of the two slots below its arguments, one is
  the callable and the other NULL, in either order; or they are an unbound method and its object;
- a loop's exhausted iterator is popped by `for_iter` itself;
- an exhausted `send` leaves the receiver below the value, and `end_send` drops it;
- a comprehension may be part of its function: `load_fast_and_clear` saves the variable it shadows, which
  may be unset (NULL) or a cell, and `store_fast` puts it back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

from argand.support.dataclass import dataclass

Effect = tuple[int, int]  # values popped and pushed
EffectOf = Callable[[int], Effect]  # by the instruction's argument


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionRow:
    """What the analyses must know of one instruction."""

    effect: Effect | EffectOf
    jumping: Effect | None = None  # on the way to the target, where it differs
    ends: bool = False  # the next instruction never follows
    # How many operands it takes, if its result is exactly what a function it calls returned: then the
    # call can be done by a thunk when the callee broke the graph. None: it cannot.
    operands: int | None = None
    # False: two ways out, or several results, that a thunk's value cannot choose
    by_thunk: bool = True


def _call(arg: int) -> Effect:
    return arg + 2, 1


def _call_function_ex(arg: int) -> Effect:
    return 3 + (arg & 1), 1


def _unpack_ex(arg: int) -> Effect:
    return 1, (arg & 0xFF) + (arg >> 8) + 1


def _make_function(arg: int) -> Effect:
    return 1 + (arg & 15).bit_count(), 1


def _take(arg: int) -> Effect:
    return arg, 1


# Instructions of one effect, on every way.
_PLAIN: Final[Mapping[Effect, str]] = {
    (0, 0): (
        "nop resume make_cell copy_free_vars setup_annotations delete_name delete_global delete_fast delete_deref"
    ),
    (0, 1): (
        "push_null return_generator load_build_class load_assertion_error load_const load_name load_fast "
        "load_fast_and_clear load_closure load_deref load_classderef load_global load_locals"
    ),
    (1, 0): (
        "pop_top pop_except print_expr import_star store_name delete_attr store_global store_fast store_deref "
        "list_append set_add list_extend set_update dict_merge dict_update pop_jump_if_false pop_jump_if_true "
        "pop_jump_if_none pop_jump_if_not_none"
    ),
    (1, 1): (
        "unary_positive unary_negative unary_not unary_invert to_bool get_aiter get_awaitable get_yield_from_iter "
        "async_gen_wrap yield_value list_to_tuple convert_value stop_iteration_error make_type_parameter "
        "load_from_dict_or_deref load_from_dict_or_global"
    ),
    (1, 2): (
        "get_len match_mapping match_sequence push_exc_info before_with before_async_with get_anext import_from"
    ),
    (2, 0): "delete_subscr end_async_for map_add",
    (2, 1): (
        "binary_op compare_op is_op contains_op prep_reraise_star import_name end_send make_bound_type_parameter"
    ),
    (2, 2): "check_exc_match check_eg_match",
    (2, 3): "match_keys",
    (3, 1): "match_class load_super_attr",
    (3, 2): "cleanup_throw",
}


def _rows() -> Mapping[str, InstructionRow]:
    rows = {
        op: InstructionRow(effect=effect) for effect, ops in _PLAIN.items() for op in ops.split()
    }
    by_argument: dict[str, EffectOf] = {
        "unpack_sequence": lambda arg: (1, arg),
        "unpack_ex": _unpack_ex,
        **dict.fromkeys(
            ("build_tuple", "build_list", "build_set", "build_string", "build_slice"), _take
        ),
        "build_map": lambda arg: (2 * arg, 1),
        "build_const_key_map": lambda arg: (arg + 1, 1),
        "format_value": lambda arg: (2 if arg & 4 else 1, 1),
        "make_function": _make_function,
        "swap": lambda arg: (arg, arg),
        "copy": lambda arg: (arg, arg + 1),
    }
    rows |= {
        op: InstructionRow(effect=effect, by_thunk=not op.startswith("unpack"))
        for op, effect in by_argument.items()
    }
    return rows | {
        "call": InstructionRow(effect=_call),
        "call_function_ex": InstructionRow(effect=_call_function_ex),
        "load_attr": InstructionRow(effect=(1, 1), operands=1),
        "binary_subscr": InstructionRow(effect=(2, 1), operands=2),
        "store_subscr": InstructionRow(effect=(3, 0), operands=3),
        "store_attr": InstructionRow(effect=(2, 0), operands=2),
        "get_iter": InstructionRow(effect=(1, 1), operands=1),
        "with_except_start": InstructionRow(effect=(4, 5), operands=0),
        "for_iter": InstructionRow(effect=(1, 2), jumping=(1, 0), by_thunk=False),
        "send": InstructionRow(effect=(2, 2), jumping=(2, 2), by_thunk=False),
        "jump": InstructionRow(effect=(0, 0), ends=True),
        "jump_no_interrupt": InstructionRow(effect=(0, 0), ends=True),
        "return_value": InstructionRow(effect=(1, 0), ends=True),
        "raise_varargs": InstructionRow(effect=lambda arg: (arg, 0), ends=True),
        "reraise": InstructionRow(effect=(1, 0), ends=True),
    }


ROWS: Final = _rows()


def effect(op: str, arg: int, *, jumps: bool) -> Effect:
    """How many values an instruction pops and pushes, on the way to its target or to the next one."""
    row = ROWS[op]
    if jumps and row.jumping is not None:
        return row.jumping
    return row.effect if isinstance(row.effect, tuple) else row.effect(arg)
