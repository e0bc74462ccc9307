"""customops.pointers: operators implemented in C, called without Python from compiled code.

The function is ``void f(void **buffers, const int64_t *sizes, int64_t begin, int64_t end)``; docs/custom-ops.md
says what it gets: memory of arguments and results, sizes and numbers, and a part of the range.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from argand.customops.errors import RegistrationError
from argand.customops.fakes import run_fake
from argand.customops.kernels import as_tuple
from argand.customops.operator import CFunction, Operator

_TYPES: Final = frozenset({"Tensor", "int", "SymInt", "float", "bool"})
_Signature: Final = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)


def make_function(op: Operator, function: Any, dtypes: Any, grain: int | None) -> CFunction:
    """Check what ``impl_c`` was given: an address, or an object of ctypes or numba."""
    schema = op.schema
    tensors = [a.name for a in schema.arguments if str(a.type) == "Tensor"]
    wanted = (dtypes,) * len(tensors) if isinstance(dtypes, torch.dtype) else tuple(dtypes)
    found = getattr(function, "address", function)  # numba keeps it there
    address = found if isinstance(found, int) else ctypes.cast(found, ctypes.c_void_p).value
    wrong = [str(a.type) for a in schema.arguments if str(a.type) not in _TYPES]
    wrong += [str(r.type) for r in schema.returns if str(r.type) != "Tensor"]
    problem = ""
    if not address:
        problem = "the address is NULL"
    elif wrong or not tensors:
        problem = f"it cannot take {', '.join(wrong) or 'an operator without tensors'}"
    elif len(wanted) != len(tensors):
        problem = f"{len(wanted)} dtypes for {len(tensors)} tensors ({', '.join(tensors)})"
    elif wanted in op.c_functions:
        problem = "there is one for these dtypes already"
    if problem:
        hint = "arguments: Tensor, int, float, bool; results: Tensor"
        raise RegistrationError(
            f"C function of {op.qualname}: {problem}", where=op.where, hint=hint
        )
    name = f"{op.qualname}|{','.join(str(dtype).removeprefix('torch.') for dtype in wanted)}|{op.version}"
    return CFunction(name, int(address or 0), wanted, grain, function)


def find_function(op: Operator, values: Sequence[Any]) -> CFunction | None:
    """The function for these arguments; whatever has a dtype is a tensor."""
    return op.c_functions.get(tuple(v.dtype for v in values if hasattr(v, "dtype")))


def pack(
    op: Operator, values: Sequence[Any], results: Sequence[Any], sizes_of: Callable[[Any], Any]
) -> tuple[list[Any], list[int]]:
    """(tensors, sizes) in the order the function wants them."""
    tensors, sizes = [], []
    kinds = [str(argument.type) for argument in op.schema.arguments] + ["Tensor"] * len(results)
    for kind, value in zip(kinds, (*values, *results), strict=True):
        if kind == "Tensor":
            tensors.append(value)
            sizes.extend(sizes_of(value))
        elif kind == "float":
            sizes.extend(struct.unpack("q", struct.pack("d", value)))
        else:
            sizes.append(value)
    return tensors, sizes


def call_function(op: Operator, function: CFunction, args: Any, kwargs: Any) -> Any:
    """Call it from Python, on the whole range: what eager runs."""
    values = op.complete_arguments(args, kwargs)
    results = as_tuple(run_fake(op, args, kwargs)) if op.schema.returns else ()
    everything = (*values, *results)
    dense = [v.contiguous() if isinstance(v, torch.Tensor) else v for v in everything]
    tensors, sizes = pack(op, dense[: len(values)], dense[len(values) :], lambda t: t.shape)
    buffers = (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
    numbers = (ctypes.c_int64 * len(sizes))(*map(int, sizes))
    written = (*range(len(values), len(everything)), *op.mutated_positions)
    _Signature(function.address)(buffers, numbers, 0, dense[written[0]].numel())
    for position in written:
        if dense[position] is not everything[position]:
            everything[position].copy_(dense[position])
    return results[0] if len(results) == 1 else (results or None)
