"""native.codegen.triton.arithmetic: one pointwise op as a Triton expression.

NaN, signed zeros and widths of integers as ``codegen.llvm.arithmetic`` has them; half types arrive as float.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from argand.native.codegen.triton.functions import NATIVE, symbol
from argand.native.codegen.triton.source import MEMORY, Refused, computed
from argand.native.ir.types import DType

_INFIX: Final[Mapping[str, str]] = {
    **{
        "add": "+",
        "sub": "-",
        "mul": "*",
        "and": "&",
        "or": "|",
        "xor": "^",
        "shl": "<<",
        "shr": ">>",
    },
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
    **{"idiv": "//", "irem": "%", "fmod": "%"},
}
_OWN: Final = frozenset({"rint", "copysign"})


def is_number(text: str) -> bool:
    """Whether an operand is a constant."""
    return text[0] in "-0123456789" or text.startswith(("float(", "True", "False"))


def takes_numbers(op: str, numbers: Sequence[bool]) -> bool:
    """Whether Triton takes these constants as they are."""
    if op == "select":
        return not numbers[0]
    return (op in _INFIX or op in ("max", "min")) and not all(numbers)


def compute(
    op: str, arguments: Sequence[str], operand: DType, result: DType, needed: dict[str, None]
) -> str:
    """The expression of one op; functions it calls are added to ``needed``."""
    first = arguments[0]
    if op in ("cast", "round"):
        return cast(first, operand, result)
    if op == "float_of_bits":
        return f"{first}.to({MEMORY[result]}, bitcast=True)"
    if op == "select":
        return f"tl.where({', '.join(arguments)})"
    if op in ("max", "min"):
        return extreme(op, first, arguments[1], operand, needed)
    if op in ("uniform", "normal"):
        needed[symbol(op, result)] = None
        return f"{symbol(op, result)}({', '.join(arguments)})"
    if op in _INFIX:
        return f"{first} {_INFIX[op]} {arguments[1]}"
    if op == "neg":
        return f"-{first}"
    if op == "not":
        return f"{first} == 0" if operand is DType.BOOL else f"~{first}"
    if op == "abs":
        return (
            f"tl.abs({first})" if operand is not DType.U8 and operand is not DType.BOOL else first
        )
    if operand.is_float:
        return _float(op, arguments, operand, needed)
    raise Refused(f"{op} of {operand.value}")


def _float(op: str, arguments: Sequence[str], operand: DType, needed: dict[str, None]) -> str:
    first, single = arguments[0], operand is not DType.F64
    if op == "div":
        return f"tl.div_rn({first}, {arguments[1]})" if single else f"{first} / {arguments[1]}"
    if op == "sqrt":
        return f"tl.sqrt_rn({first})" if single else f"tl.sqrt({first})"
    if op in ("floor", "ceil"):
        return f"tl.{op}({first})"
    if op == "trunc":
        return f"tl.where({first} < 0, tl.ceil({first}), tl.floor({first}))"
    if op in NATIVE:
        return NATIVE[op].format(first)
    called = symbol(op, operand)
    needed[called] = None
    return f"{called}({', '.join(arguments)})"


def extreme(op: str, left: str, right: str, operand: DType, needed: dict[str, None]) -> str:
    """max or min; a NaN on either side is the result, and beside a limit -0.0 stays what it is."""
    if operand is DType.BOOL:
        return f"{left} {'|' if op == 'max' else '&'} {right}"
    if not operand.is_float:
        return f"tl.{op}imum({left}, {right})"
    if is_number(left):
        left, right = right, left
    if is_number(right):
        if "nan" in right:
            return f"{left} * {right}"
        return f"tl.where({left} {'<' if op == 'max' else '>'} {right}, {right}, {left})"
    needed[f"{op}imum"] = None
    return f"{op}imum({left}, {right})"


def cast(value: str, source: DType, target: DType) -> str:
    """Convert with eager's rounding; half targets are rounded and widened."""
    if target is DType.BOOL:
        return value if source is DType.BOOL else f"{value} != 0"
    if target.is_half:
        single = f"{value}.to(tl.float32)" if source is DType.F64 or not source.is_float else value
        return f"{single}.to({MEMORY[target]}).to(tl.float32)"
    if source.is_float and not target.is_float and target.row.bytes < 4:
        # as in C++ on CPUs: what does not fit wraps around
        return f"{value}.to(tl.int32).to({computed(target)})"
    if computed(source) == computed(target):
        return value
    return f"{value}.to({computed(target)})"


def identity(op: str, dtype: DType) -> bool | int | float:
    """The value a reduction starts from."""
    if op == "sum":
        return False if dtype is DType.BOOL else 0.0 if dtype.is_float else 0
    if op == "prod":
        return True if dtype is DType.BOOL else 1.0 if dtype.is_float else 1
    lowest = op in ("amax", "argmax")
    if dtype.is_float:
        return -math.inf if lowest else math.inf
    if dtype is DType.BOOL:
        return not lowest
    bits = dtype.row.bytes * 8
    if not dtype.is_signed:
        return 0 if lowest else 2**bits - 1
    return -(2 ** (bits - 1)) if lowest else 2 ** (bits - 1) - 1
