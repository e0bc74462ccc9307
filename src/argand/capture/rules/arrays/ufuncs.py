"""capture.rules.arrays.ufuncs: a call of a universal function on arrays of the trace.

In: the function and its operands. Out: an array or a number, of the type that numpy says; `out=` is written to. With a
`numpy.errstate` other than the usual one numpy would raise or call, so the state is asked for at each call; the warnings
of the usual one (a division by zero) are not given.
"""

from __future__ import annotations

from typing import Any, Final

import numpy
import torch

from argand.capture.objects.parts import GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.arrays import DTYPES
from argand.capture.outside.state import Outside
from argand.capture.rules.arrays import operands, table
from argand.capture.rules.arrays.operands import left

_QUIET: Final = frozenset({"warn", "ignore"})
_OUT: Final = "out"


def call(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function(*args, out=...)`."""
    out = _out_of(function, args[function.nin :], kwargs)
    given = args[: function.nin]
    if function is numpy.matmul:
        tensor, number = matmul(tracer, *given)
    else:
        row = table.ELEMENTWISE.get(function)
        if row is None or function.nout != 1 or len(given) != function.nin:
            left(function.__name__)
        tensor, number = apply(tracer, function, row, given), operands.is_flat(tracer, given)
    if out is None:
        return operands.answer(tracer, tensor, number)
    write(tracer, out, tensor)
    return out


def _out_of(function: Any, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = rest[0] if rest else kwargs.get(_OUT)
    out = given[0] if isinstance(given, tuple) and len(given) == 1 else given
    if (
        set(kwargs) - {_OUT}
        or len(rest) > 1
        or (out is not None and type(out) is not numpy.ndarray)
    ):
        left(f"{function.__name__} with these arguments")
    return out


def apply(
    tracer: Tracer, function: Any, row: table.UfuncRow, given: tuple[Any, ...]
) -> torch.Tensor:
    """The function over operands, as a tensor of the type that numpy gives."""
    kinds = tuple(operands.operand_type(value) for value in given)
    try:
        loop = function.resolve_dtypes((*kinds, *[None] * (function.nargs - len(kinds))))
    except TypeError:
        left(function.__name__)  # it raises there
    kind = loop[0].kind
    allowed = kind in row.kinds
    if not allowed and kind in "iu" and row.constant is not None:
        allowed = row.constant(given[-1], loop[0].itemsize * 8)
    if not allowed:
        left(f"{function.__name__} of {loop[0]}")
    _rely_on_errors(tracer)
    tensors = [
        operands.as_type(tracer, value, dtype) for value, dtype in zip(given, loop, strict=False)
    ]
    tensors = tensors[: len(given)]
    return operands.cast(
        tracer, compute(tracer, row.form, tuple(tensors)), operands.torch_dtype(loop[-1])
    )


def compute(tracer: Tracer, form: Any, args: tuple[Any, ...], **kwargs: Any) -> Any:
    """An operator of torch; forms of ours are taken apart."""
    if getattr(form, "__module__", None) != table.__name__:
        return tracer.recorder.call_function(form, args, kwargs)
    return tracer.sealed(form, args, kwargs)


def matmul(state: GraphState, a: Any, b: Any) -> tuple[torch.Tensor, bool]:
    """`a @ b`."""
    tensors = operands.common(state, (a, b))
    if not (tensors[0].dtype.is_floating_point or tensors[0].dtype.is_complex) or not all(
        t.ndim for t in tensors
    ):
        left(f"matmul of {tensors[0].dtype}")
    _rely_on_errors(state)
    return state.recorder.call_function(torch.matmul, tuple(tensors), {}), True


def write(state: GraphState, out: Any, tensor: torch.Tensor) -> None:
    """Write a result into an array, if numpy casts to its type on its own accord."""
    into = operands.tensor_of(state, out)
    if tensor.dtype is not into.dtype and not real.call(
        numpy.can_cast, (DTYPES[tensor.dtype], out.dtype, "same_kind"), {}
    ):
        left("out of another kind")
    if len(tensor.shape) > into.ndim or tuple(into.shape) != tuple(
        torch.broadcast_shapes(into.shape, tensor.shape)
    ):
        left("out of another shape")
    state.recorder.call_method("copy_", (into, tensor), {})


def _rely_on_errors(outside: Outside) -> None:
    """numpy's state of errors must be one in which it does not raise."""
    if not _QUIET.issuperset(numpy.geterr().values()):
        left("errstate")
    outside.world.ask(numpy.geterr)
