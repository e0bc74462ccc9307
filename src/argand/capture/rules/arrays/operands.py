"""capture.rules.arrays.operands: arrays, numbers and lists as tensors of the types that numpy computes in.

In: operands of a numpy function as the trace holds them. Out: tensors, cast by numpy's own rules (`resolve_dtypes`,
`result_type`), and results as arrays or numbers. What torch has no type for is a break.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy
import torch

from argand.capture.objects.parts import GraphState
from argand.capture.outside import arrays, real
from argand.capture.outside.arrays import DTYPES, KINDS, TORCH_DTYPES, ArrayNumber
from argand.capture.outside.state import Outside
from argand.capture.sizes.floats import Float
from argand.capture.sizes.values import OpenSize
from argand.support.errors import Break, CaptureBreak

WEAK: Final = (int, float, complex)  # Python's numbers take the type of the array beside them
_LARGE: Final = 4096  # elements of an array of constants that are written into the graph

ArrayRule = Callable[..., Any]


def left(name: str) -> NoReturn:
    """Leave a call to numpy."""
    raise CaptureBreak(Break.B002, None, function=f"numpy.{name}")


def is_array(outside: Outside, value: Any) -> bool:
    """Whether a value is an array or a number of the trace."""
    return type(value) is ArrayNumber or (
        type(value) is numpy.ndarray and id(value) in outside.world.arrays
    )


def holds_arrays(outside: Outside, value: Any) -> bool:
    """The same for what is in lists and tuples too."""
    if isinstance(value, list | tuple):
        return any(holds_arrays(outside, item) for item in value)
    return type(value) in KINDS


def tensor_of(state: GraphState, value: Any) -> torch.Tensor:
    """The tensor of an array or a number of numpy's; constants become one."""
    if type(value) is ArrayNumber:
        return value.tensor
    if type(value) is numpy.ndarray:
        found = state.world.arrays.get(id(value))
        if found is None:
            raise CaptureBreak(Break.B011, None, type="ndarray")
        return found[1]
    if isinstance(value, list | tuple) and holds_arrays(state, value):
        left("array of arrays")
    return constant(state, real.call(numpy.asarray, (_plain(value),), {}))


def _plain(value: Any) -> Any:
    if isinstance(value, OpenSize | Float | torch.Tensor):
        left("array of sizes or tensors")
    if isinstance(value, list | tuple):
        return (
            type(value)(map(_plain, value))
            if type(value) in (list, tuple)
            else left("array of a tuple")
        )
    if not isinstance(value, int | float | complex | numpy.generic):
        left(f"array of a {type(value).__name__}")
    return value


def constant(state: GraphState, value: Any) -> torch.Tensor:
    """An array of constants as a tensor of the graph."""
    if value.dtype not in TORCH_DTYPES or value.size > _LARGE:
        left("array of constants")
    options = {"dtype": TORCH_DTYPES[value.dtype]}
    first = value.flat[0].item() if value.size else 0
    if not value.size or (
        value.size > 1 and (value == first).all() and not numpy.signbit(value.real).any()
    ):
        made: torch.Tensor = state.recorder.call_function(torch.full, (value.shape, first), options)
        return made
    tensor: torch.Tensor = state.recorder.call_function(torch.tensor, (value.tolist(),), options)
    return tensor


def operand_type(value: Any) -> Any:
    """The type of an operand as numpy promotes it: a dtype, or the class of a Python number."""
    if type(value) in KINDS or isinstance(value, numpy.generic):
        return value.dtype
    if type(value) in WEAK:
        return type(value)
    if type(value) is bool:
        return numpy.dtype(bool)
    if isinstance(value, list | tuple):
        return numpy.asarray(_plain(value)).dtype
    return left(f"function of a {type(value).__name__}")


def torch_dtype(dtype: Any) -> torch.dtype:
    """torch's name of a type, or a break."""
    found = TORCH_DTYPES.get(numpy.dtype(dtype))
    return left(f"{dtype}") if found is None else found


def as_type(state: GraphState, value: Any, dtype: Any) -> torch.Tensor:
    """An operand as a tensor of a type; a number of Python's is rounded to it as numpy rounds it."""
    wanted = torch_dtype(dtype)
    if type(value) in WEAK or type(value) is bool:
        try:
            number = dtype.type(value).item()
        except OverflowError:
            left(f"{dtype} of {value}")
        made: torch.Tensor = state.recorder.call_function(
            torch.full, ((), number), {"dtype": wanted}
        )
        return made
    return cast(state, tensor_of(state, value), wanted)


def cast(state: GraphState, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of another type."""
    if tensor.dtype is dtype:
        return tensor
    if tensor.dtype.is_complex and not dtype.is_complex:
        left("cast that drops the imaginary part")
    made: torch.Tensor = state.recorder.call_method("to", (tensor, dtype), {})
    return made


def common(state: GraphState, values: Any) -> list[torch.Tensor]:
    """Operands as tensors of their common type."""
    kinds = [operand_type(value) for value in values]
    dtype = real.call(
        numpy.result_type,
        tuple([kind(0) if isinstance(kind, type) else kind for kind in kinds]),
        {},
    )
    return [as_type(state, value, dtype) for value in values]


def is_flat(outside: Outside, values: Any) -> bool:
    """Whether no operand has dimensions, so that numpy answers with a number."""
    shaped = (
        value for value in values if type(value) is numpy.ndarray or isinstance(value, list | tuple)
    )
    return not any(isinstance(value, list | tuple) or value.ndim for value in shaped)


def answer(outside: Outside, tensor: torch.Tensor, number: bool) -> Any:
    """A result: an array, or one of numpy's numbers."""
    if tensor.dtype not in DTYPES:
        left(f"{tensor.dtype}")
    if number and tensor.ndim == 0:
        return ArrayNumber(tensor)
    return arrays.as_array(outside.world, tensor)
