"""capture.rules.arrays.table: numpy's elementwise functions, one row each.

A row: the function of torch, the kinds of numbers (numpy's letters: b bool, i int, u unsigned, f float, c complex) that
it computes exactly as numpy does, and what constants make other kinds safe. numpy itself says in which types it computes
and of which the result is (`resolve_dtypes`); whatever a row does not allow is left to numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import numpy
import torch
from torch import Tensor

from argand.support.dataclass import dataclass


@final
@dataclass(frozen=True, slots=True)
class UfuncRow:
    """How torch computes a function of numpy's."""

    form: Callable[..., Any]
    kinds: str = "f"
    # Integers too when the last operand is a number of the program for which this holds.
    constant: Callable[[Any, int], bool] | None = None


def _is_divisor(value: Any, bits: int) -> bool:
    return type(value) is int and value > 0  # by -1 the smallest integer overflows


def _is_exponent(value: Any, bits: int) -> bool:
    return type(value) is int and value >= 0


def _is_shift(value: Any, bits: int) -> bool:
    return type(value) is int and 0 <= value < bits


def sign(x: Tensor) -> Tensor:
    """The sign; that of nan is nan."""
    return torch.where(x != x, x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


def remainder(x: Tensor, y: Tensor) -> Tensor:
    """The remainder; a zero has the sign of the divisor."""
    found = torch.remainder(x, y)
    return (
        torch.where(found == 0, torch.copysign(found, y), found) if x.is_floating_point() else found
    )


def clip(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The nearest number between two."""
    return torch.minimum(torch.maximum(x, low), high)


_ALL: Final = "biufc"
_REAL: Final = "biuf"
_WHOLE: Final = "biu"

ELEMENTWISE: Final[dict[Any, UfuncRow]] = {
    numpy.add: UfuncRow(torch.add, _REAL),  # torch's complex sum of an infinity is nan
    numpy.subtract: UfuncRow(torch.sub, "iuf"),
    numpy.multiply: UfuncRow(torch.mul, _ALL),
    numpy.true_divide: UfuncRow(torch.true_divide, "fc"),
    numpy.floor_divide: UfuncRow(torch.floor_divide, "f", _is_divisor),
    numpy.remainder: UfuncRow(remainder, "f", _is_divisor),
    numpy.fmod: UfuncRow(torch.fmod, "f", _is_divisor),
    numpy.power: UfuncRow(torch.pow, "f", _is_exponent),
    numpy.negative: UfuncRow(torch.neg, "iufc"),
    numpy.positive: UfuncRow(torch.clone, "iufc"),
    numpy.absolute: UfuncRow(torch.abs, "iufc"),
    numpy.fabs: UfuncRow(torch.abs),
    numpy.sign: UfuncRow(sign, "iuf"),
    numpy.rint: UfuncRow(torch.round),
    numpy.floor: UfuncRow(torch.floor, "iuf"),
    numpy.ceil: UfuncRow(torch.ceil, "iuf"),
    numpy.trunc: UfuncRow(torch.trunc, "iuf"),
    numpy.sqrt: UfuncRow(torch.sqrt),
    numpy.square: UfuncRow(torch.square, "iufc"),
    numpy.reciprocal: UfuncRow(torch.reciprocal),
    numpy.exp: UfuncRow(torch.exp),
    numpy.exp2: UfuncRow(torch.exp2),
    numpy.expm1: UfuncRow(torch.expm1),
    numpy.log: UfuncRow(torch.log),
    numpy.log2: UfuncRow(torch.log2),
    numpy.log10: UfuncRow(torch.log10),
    numpy.log1p: UfuncRow(torch.log1p),
    numpy.sin: UfuncRow(torch.sin),
    numpy.cos: UfuncRow(torch.cos),
    numpy.tan: UfuncRow(torch.tan),
    numpy.arcsin: UfuncRow(torch.asin),
    numpy.arccos: UfuncRow(torch.acos),
    numpy.arctan: UfuncRow(torch.atan),
    numpy.arctan2: UfuncRow(torch.atan2),
    numpy.sinh: UfuncRow(torch.sinh),
    numpy.cosh: UfuncRow(torch.cosh),
    numpy.tanh: UfuncRow(torch.tanh),
    numpy.arcsinh: UfuncRow(torch.asinh),
    numpy.arccosh: UfuncRow(torch.acosh),
    numpy.arctanh: UfuncRow(torch.atanh),
    numpy.hypot: UfuncRow(torch.hypot),
    numpy.logaddexp: UfuncRow(torch.logaddexp),
    numpy.logaddexp2: UfuncRow(torch.logaddexp2),
    numpy.deg2rad: UfuncRow(torch.deg2rad),
    numpy.radians: UfuncRow(torch.deg2rad),
    numpy.rad2deg: UfuncRow(torch.rad2deg),
    numpy.degrees: UfuncRow(torch.rad2deg),
    numpy.copysign: UfuncRow(torch.copysign),
    numpy.nextafter: UfuncRow(torch.nextafter),
    numpy.maximum: UfuncRow(torch.maximum, _REAL),
    numpy.minimum: UfuncRow(torch.minimum, _REAL),
    numpy.fmax: UfuncRow(torch.fmax, _REAL),
    numpy.fmin: UfuncRow(torch.fmin, _REAL),
    numpy.greater: UfuncRow(torch.gt, _REAL),
    numpy.greater_equal: UfuncRow(torch.ge, _REAL),
    numpy.less: UfuncRow(torch.lt, _REAL),
    numpy.less_equal: UfuncRow(torch.le, _REAL),
    numpy.equal: UfuncRow(torch.eq, _ALL),
    numpy.not_equal: UfuncRow(torch.ne, _ALL),
    numpy.logical_and: UfuncRow(torch.logical_and, _ALL),
    numpy.logical_or: UfuncRow(torch.logical_or, _ALL),
    numpy.logical_xor: UfuncRow(torch.logical_xor, _ALL),
    numpy.logical_not: UfuncRow(torch.logical_not, _ALL),
    numpy.bitwise_and: UfuncRow(torch.bitwise_and, _WHOLE),
    numpy.bitwise_or: UfuncRow(torch.bitwise_or, _WHOLE),
    numpy.bitwise_xor: UfuncRow(torch.bitwise_xor, _WHOLE),
    numpy.invert: UfuncRow(torch.bitwise_not, _WHOLE),
    numpy.left_shift: UfuncRow(torch.bitwise_left_shift, "", _is_shift),
    numpy.right_shift: UfuncRow(torch.bitwise_right_shift, "", _is_shift),
    numpy.isnan: UfuncRow(torch.isnan, "iuf"),
    numpy.isinf: UfuncRow(torch.isinf, "iuf"),
    numpy.isfinite: UfuncRow(torch.isfinite, "iuf"),
    numpy.signbit: UfuncRow(torch.signbit),
    numpy.conjugate: UfuncRow(torch.conj_physical, "iufc"),
}

# Python's operators on arrays, by the functions of `operator`.
OPERATORS: Final[dict[str, Any]] = {
    "add": numpy.add, "sub": numpy.subtract, "mul": numpy.multiply, "truediv": numpy.true_divide,
    "floordiv": numpy.floor_divide, "mod": numpy.remainder, "pow": numpy.power, "matmul": numpy.matmul,
    "and_": numpy.bitwise_and, "or_": numpy.bitwise_or, "xor": numpy.bitwise_xor,
    "lshift": numpy.left_shift, "rshift": numpy.right_shift,
    "lt": numpy.less, "le": numpy.less_equal, "eq": numpy.equal, "ne": numpy.not_equal,
    "gt": numpy.greater, "ge": numpy.greater_equal,
    "neg": numpy.negative, "pos": numpy.positive, "invert": numpy.invert, "abs": numpy.absolute,
}  # fmt: skip
