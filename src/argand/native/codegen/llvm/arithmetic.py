"""native.codegen.llvm.arithmetic: one pointwise op on scalars or vectors as LLVM instructions.

NaN, signed zeros and integer widths as in eager. Half types arrive as float.
"""

from __future__ import annotations

import math as numbers
from collections.abc import Mapping
from typing import Final

from argand.native.codegen import math
from argand.native.codegen.text import Text, splat, vector
from argand.native.ir.types import DType

_FLOAT: Final[Mapping[str, str]] = {
    "add": "fadd",  # a product before it is rounded, as in eager: x * x - y * y is 0 when x == y
    "sub": "fsub",
    "mul": "fmul contract",
    "div": "fdiv",
    "fmod": "frem",
}
# LLVM has the same names
_INTEGER: Final = frozenset({"add", "sub", "mul", "and", "or", "xor", "shl"})
_FLOAT_TEST: Final[Mapping[str, str]] = {
    "eq": "oeq",
    "ne": "une",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
}
_INTRINSIC: Final = frozenset({"floor", "ceil", "trunc", "rint", "sqrt", "copysign"})


def compute(
    text: Text, op: str, arguments: list[str], operand: DType, result: DType, lanes: int
) -> str:
    """Append one op; arguments are operands of ``lanes`` lanes in the compute type of ``operand``."""
    kind = vector(operand.row.compute, lanes)
    if op in ("cast", "round"):
        return cast(text, arguments[0], operand, result, lanes)
    if op == "float_of_bits":
        return text.value(f"bitcast {kind} {arguments[0]} to {vector(result.row.compute, lanes)}")
    if op == "select":
        mask = vector("i1", lanes)
        test, yes, no = arguments
        return text.value(f"select {mask} {test}, {kind} {yes}, {kind} {no}")
    if op in ("max", "min"):
        return extreme(text, op, arguments[0], arguments[1], operand, lanes)
    if op in _FLOAT_TEST:
        return _compare(text, op, arguments, operand, lanes)
    if operand.is_float:
        return _float(text, op, arguments, operand, kind, lanes)
    return _integer(text, op, arguments, operand, kind, lanes)


def _float(text: Text, op: str, arguments: list[str], operand: DType, kind: str, lanes: int) -> str:
    if op in _FLOAT:
        return text.value(f"{_FLOAT[op]} {kind} {arguments[0]}, {arguments[1]}")
    if op in _INTRINSIC:
        return text.intrinsic(op, kind, arguments)
    if op == "neg":
        return text.value(f"fneg {kind} {arguments[0]}")
    if op == "abs":
        return text.intrinsic("fabs", kind, arguments)
    return math.emit(op, text, arguments, operand.row.compute, lanes)  # type: ignore[arg-type]


def _integer(
    text: Text, op: str, arguments: list[str], operand: DType, kind: str, lanes: int
) -> str:
    signed = operand.is_signed
    if op in _INTEGER:
        return text.value(f"{op} {kind} {arguments[0]}, {arguments[1]}")
    if op == "shr":
        return text.value(f"{'ashr' if signed else 'lshr'} {kind} {arguments[0]}, {arguments[1]}")
    if op in ("idiv", "irem"):
        name = ("s" if signed else "u") + op[1:]
        return text.value(f"{name} {kind} {arguments[0]}, {arguments[1]}")
    if op == "neg":
        return text.value(f"sub {kind} {splat(operand.row.compute, lanes, 0)}, {arguments[0]}")
    if op == "not":
        ones = 1 if operand is DType.BOOL else -1
        return text.value(f"xor {kind} {arguments[0]}, {splat(operand.row.compute, lanes, ones)}")
    if op == "abs":
        return text.intrinsic("abs", kind, arguments, extra="i1 false")
    raise KeyError(f"{op} on {operand.value}")


def _compare(text: Text, op: str, arguments: list[str], operand: DType, lanes: int) -> str:
    left, right = arguments
    kind = vector(operand.row.compute, lanes)
    if operand.is_float:
        return text.value(f"fcmp {_FLOAT_TEST[op]} {kind} {left}, {right}")
    sign = "" if op in ("eq", "ne") else "s" if operand.is_signed else "u"
    return text.value(f"icmp {sign}{op} {kind} {left}, {right}")


def extreme(text: Text, op: str, left: str, right: str, operand: DType, lanes: int) -> str:
    """max or min; a NaN on either side is the result."""
    kind, mask = vector(operand.row.compute, lanes), vector("i1", lanes)
    if operand is DType.BOOL:
        return text.value(f"{'or' if op == 'max' else 'and'} {kind} {left}, {right}")
    if not operand.is_float:
        sign = "s" if operand.is_signed else "u"
        test = text.value(f"icmp {sign}{'gt' if op == 'max' else 'lt'} {kind} {left}, {right}")
        return text.value(f"select {mask} {test}, {kind} {left}, {kind} {right}")
    if left.startswith(("0x", "splat")):
        left, right = right, left
    if right == splat(operand.row.compute, lanes, numbers.nan):
        return right
    # True for an unordered pair too: a NaN on the left is chosen by the first test.
    limit = right.startswith(("0x", "splat"))  # beside a limit, as in eager, -0.0 stays what it is
    order = {"max": "uge", "min": "ule"} if limit else {"max": "ugt", "min": "ult"}
    test = text.value(f"fcmp {order[op]} {kind} {left}, {right}")
    chosen = text.value(f"select {mask} {test}, {kind} {left}, {kind} {right}")
    if limit:
        return chosen
    broken = text.value(f"fcmp uno {kind} {right}, {right}")
    return text.value(f"select {mask} {broken}, {kind} {right}, {kind} {chosen}")


def cast(text: Text, value: str, source: DType, target: DType, lanes: int) -> str:
    """Convert between compute types with eager's rounding; half targets are rounded and widened."""
    old, new = vector(source.row.compute, lanes), vector(target.row.compute, lanes)
    if target is DType.BOOL:
        zero = splat(source.row.compute, lanes, 0)
        test = "fcmp une" if source.is_float else "icmp ne"
        return value if source is DType.BOOL else text.value(f"{test} {old} {value}, {zero}")
    if source.is_float and target.is_float:
        if old != new:
            verb = "fpext" if old.endswith(("float", "float>")) else "fptrunc"
            value = text.value(f"{verb} {old} {value} to {new}")
            if target is DType.F16:
                # Eager rounds to float first. LLVM would round once, by a function that no library here has.
                value = text.intrinsic("arithmetic.fence", new, [value])
        return round_half(text, value, target, lanes) if target.is_half else value
    if source.is_float:
        return _float_to_integer(text, value, old, target, lanes)
    if target.is_float:
        verb = "sitofp" if source.is_signed else "uitofp"
        value = text.value(f"{verb} {old} {value} to {new}")
        return round_half(text, value, target, lanes) if target.is_half else value
    return _integer_to_integer(text, value, source, target, old, new)


def _integer_to_integer(
    text: Text, value: str, source: DType, target: DType, old: str, new: str
) -> str:
    if old == new:
        return value
    if source is DType.BOOL or source.row.bytes < target.row.bytes:
        verb = "sext" if source.is_signed else "zext"
    else:
        verb = "trunc"
    return text.value(f"{verb} {old} {value} to {new}")


def _float_to_integer(text: Text, value: str, old: str, target: DType, lanes: int) -> str:
    # Narrow integers go through i32 as in C++ on this machine: what does not fit wraps around.
    wide = "i64" if target is DType.I64 else "i32"
    converted = text.value(f"fptosi {old} {value} to {vector(wide, lanes)}")
    # LLVM has no number for what does not fit, and drops the way back to float; frozen, it is the machine's.
    found = text.value(f"freeze {vector(wide, lanes)} {converted}")
    if target.row.compute in ("i64", "i32"):
        return found
    new = vector(target.row.compute, lanes)
    return text.value(f"trunc {vector(wide, lanes)} {found} to {new}")


def round_half(text: Text, value: str, target: DType, lanes: int) -> str:
    """A float rounded to what a half type can hold, still as float."""
    return load_half(text, store_half(text, value, target, lanes), target, lanes)


def load_half(text: Text, value: str, source: DType, lanes: int) -> str:
    """Memory form of a half type as float."""
    wide = vector("float", lanes)
    if source is DType.F16:
        return text.value(f"fpext {vector('half', lanes)} {value} to {wide}")
    bits = vector("i32", lanes)
    raised = text.value(f"zext {vector('i16', lanes)} {value} to {bits}")
    shifted = text.value(f"shl {bits} {raised}, {splat('i32', lanes, 16)}")
    return text.value(f"bitcast {bits} {shifted} to {wide}")


def store_half(text: Text, value: str, target: DType, lanes: int) -> str:
    """A float in the memory form of a half type, rounded to nearest even."""
    wide = vector("float", lanes)
    if target is DType.F16:
        return text.value(f"fptrunc {wide} {value} to {vector('half', lanes)}")
    bits, mask = vector("i32", lanes), vector("i1", lanes)
    whole = text.value(f"bitcast {wide} {value} to {bits}")
    high = text.value(f"lshr {bits} {whole}, {splat('i32', lanes, 16)}")
    odd = text.value(f"and {bits} {high}, {splat('i32', lanes, 1)}")
    bias = text.value(f"add {bits} {odd}, {splat('i32', lanes, 0x7FFF)}")
    rounded = text.value(f"add {bits} {whole}, {bias}")
    upper = text.value(f"lshr {bits} {rounded}, {splat('i32', lanes, 16)}")
    broken = text.value(f"fcmp uno {wide} {value}, {value}")
    quiet = splat("i32", lanes, 0x7FC0)
    chosen = text.value(f"select {mask} {broken}, {bits} {quiet}, {bits} {upper}")
    return text.value(f"trunc {bits} {chosen} to {vector('i16', lanes)}")


def identity(op: str, dtype: DType) -> bool | int | float:
    """The value a reduction starts from."""
    if op == "sum":
        return 0
    if op == "prod":
        return 1
    lowest = op in ("amax", "argmax")
    if dtype.is_float:
        return -numbers.inf if lowest else numbers.inf
    if dtype is DType.BOOL:
        return not lowest
    bits = dtype.row.bytes * 8
    if not dtype.is_signed:
        return 0 if lowest else 2**bits - 1
    return -(2 ** (bits - 1)) if lowest else 2 ** (bits - 1) - 1


def combine(text: Text, op: str, left: str, right: str, dtype: DType, lanes: int) -> str:
    """One step of a reduction."""
    if op in ("sum", "prod"):
        if dtype is DType.BOOL:
            return text.value(
                f"{'or' if op == 'sum' else 'and'} {vector('i1', lanes)} {left}, {right}"
            )
        name = "add" if op == "sum" else "mul"
        verb = f"f{name} contract" if dtype.is_float else name
        return text.value(f"{verb} {vector(dtype.row.compute, lanes)} {left}, {right}")
    return extreme(text, op[1:], left, right, dtype, lanes)
