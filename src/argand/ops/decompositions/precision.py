"""ops.decompositions.precision: half-precision arithmetic as eager's kernels do it.

A kernel reads bfloat16 or float16, computes in float32 and rounds once at the end; a chain of torch
ops would round after each. These wrappers put the casts where the kernel has them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.layout import promote

_HALF: Final = frozenset({torch.float16, torch.bfloat16})


def widen(value: Any) -> Any:
    """Half tensors as float32; anything else unchanged."""
    if isinstance(value, Tensor) and value.dtype in _HALF:
        return value.to(torch.float32)
    return value


def round_to(result: Any, dtype: torch.dtype) -> Any:
    """Floating results in this dtype; masks and indices stay."""
    if isinstance(result, Tensor):
        return result.to(dtype) if result.is_floating_point() else result
    return tuple(round_to(part, dtype) for part in result)


def element(number: float, dtype: torch.dtype) -> float:
    """A number as an element of a type; kernels compare half types with that, not with the number."""
    return float(torch.tensor(number, dtype=dtype).item()) if dtype in _HALF else number


def one_rounding(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute in float32 when an operand is half; round to the operands' common dtype.

    Complex numbers are left to the kernel: its products and sums make other NaN of infinities than those of single ops.
    """

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tensors = [value for value in args if isinstance(value, Tensor)]
        if any(tensor.is_complex() for tensor in tensors):
            return NotImplemented
        if not any(tensor.dtype in _HALF for tensor in tensors):
            return function(*args, **kwargs)
        wide = function(*map(widen, args), **kwargs)
        return round_to(wide, promote(*(t for t in tensors if t.is_floating_point())))

    return wrapped
