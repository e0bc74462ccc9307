"""capture.rules.arrays.reductions: sums, extrema, positions and cumulated sums of arrays.

Each function has numpy's arguments, but for those it leaves to numpy. The type of the result is numpy's: integers are
summed as int64, means of integers are float64; sums of unsigned integers have a type torch lacks and are left to numpy.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from argand.capture.objects.parts import GraphState
from argand.capture.outside.arrays import DTYPES
from argand.capture.outside.state import Outside
from argand.capture.rules.arrays.operands import (
    ArrayRule,
    answer,
    cast,
    left,
    tensor_of,
    torch_dtype,
)
from argand.capture.sizes.values import OpenSize


def axes_of(tensor: torch.Tensor, axis: Any) -> tuple[int, ...]:
    """The dimensions an axis argument names; all for None."""
    if axis is None:
        return tuple(range(tensor.ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    if not all(type(n) is int and -tensor.ndim <= n < tensor.ndim for n in axes):
        left("axis out of range")
    found = tuple(n % tensor.ndim for n in axes)
    return left("axis twice") if len(set(found)) < len(found) else found


def one_axis(tensor: torch.Tensor, axis: Any) -> int:
    """The dimension that an axis names."""
    return axes_of(tensor, axis)[0] if type(axis) is int else left("axis")


def _is_empty(tensor: torch.Tensor) -> bool:
    return any(type(n) is not OpenSize and n == 0 for n in tensor.shape)


def _finish(outside: Outside, tensor: torch.Tensor, out: Any, keepdims: Any) -> Any:
    if out is not None or type(keepdims) is not bool:
        left("reduction with out")
    return answer(outside, tensor, not keepdims)


def summing(form: Any, method: str) -> ArrayRule:
    """A sum or a product: integers are int64."""

    def rule(
        state: GraphState,
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
    ) -> Any:
        tensor = tensor_of(state, a)
        kind = (
            getattr(numpy, method).reduce(numpy.ones(1, DTYPES[tensor.dtype])).dtype
            if dtype is None
            else dtype
        )
        tensor = cast(state, tensor, torch_dtype(kind))
        for n in (
            sorted(axes_of(tensor, axis), reverse=True)
            if form is torch.prod
            else (axes_of(tensor, axis),)
        ):
            tensor = (
                state.recorder.call_function(form, (tensor, n), {"keepdim": keepdims})
                if n != ()
                else tensor
            )
        return _finish(state, tensor, out, keepdims)

    return rule


def mean(
    state: GraphState,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
) -> Any:
    """`numpy.mean`."""
    tensor = tensor_of(state, a)
    inexact = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    kind = torch_dtype(dtype) if dtype is not None else tensor.dtype if inexact else torch.float64
    tensor, axes = cast(state, tensor, kind), axes_of(tensor, axis)
    if _is_empty(tensor) or not axes:
        left("mean of nothing")
    return _finish(
        state,
        state.recorder.call_method("mean", (tensor, axes), {"keepdim": keepdims}),
        out,
        keepdims,
    )


def spread(method: str) -> ArrayRule:
    """`numpy.var` and `numpy.std`."""

    def rule(
        state: GraphState,
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = False,
    ) -> Any:
        tensor = tensor_of(state, a)
        axes = axes_of(tensor, axis)
        if tensor.dtype.is_complex or dtype is not None or not axes or _is_empty(tensor):
            left(method)
        if (
            not all(type(n) is int for n in tensor.shape)
            or numpy.prod([tensor.shape[n] for n in axes]) <= ddof
        ):
            left(f"{method} of few numbers")
        tensor = tensor if tensor.is_floating_point() else cast(state, tensor, torch.float64)
        options = {"correction": ddof, "keepdim": keepdims}
        return _finish(
            state, state.recorder.call_method(method, (tensor, axes), options), out, keepdims
        )

    return rule


def extreme(method: str) -> ArrayRule:
    """`numpy.max` and `numpy.min`."""

    def rule(
        state: GraphState, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False
    ) -> Any:
        tensor = tensor_of(state, a)
        axes = axes_of(tensor, axis)
        if tensor.dtype.is_complex or _is_empty(tensor) or not axes:
            left(method)
        return _finish(
            state, state.recorder.call_method(method, (tensor, axes, keepdims), {}), out, keepdims
        )

    return rule


def position(method: str) -> ArrayRule:
    """`numpy.argmax` and `numpy.argmin`: the first of equal numbers, in both."""

    def rule(
        state: GraphState, a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False
    ) -> Any:
        tensor = tensor_of(state, a)
        if tensor.dtype.is_complex or _is_empty(tensor) or not tensor.ndim:
            left(method)
        tensor = cast(state, tensor, torch.uint8) if tensor.dtype is torch.bool else tensor
        dim = None if axis is None else one_axis(tensor, axis)
        return _finish(
            state, state.recorder.call_method(method, (tensor, dim, keepdims), {}), out, keepdims
        )

    return rule


def truth(method: str) -> ArrayRule:
    """`numpy.any` and `numpy.all`."""

    def rule(
        state: GraphState, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False
    ) -> Any:
        tensor = cast(state, tensor_of(state, a), torch.bool)
        axes = axes_of(tensor, axis)
        if axes:
            tensor = state.recorder.call_method(method, (tensor, axes, keepdims), {})
        return _finish(state, tensor, out, keepdims)

    return rule


def cumulated(method: str, ufunc: Any) -> ArrayRule:
    """`numpy.cumsum` and `numpy.cumprod`."""

    def rule(
        state: GraphState, a: Any, axis: Any = None, dtype: Any = None, out: Any = None
    ) -> Any:
        tensor = tensor_of(state, a)
        kind = (
            ufunc.accumulate(numpy.ones(1, DTYPES[tensor.dtype])).dtype if dtype is None else dtype
        )
        tensor = cast(state, tensor, torch_dtype(kind))
        if axis is None:
            tensor, axis = state.recorder.call_method("reshape", (tensor, (-1,)), {}), 0
        dim = one_axis(tensor, axis)
        return _finish(state, state.recorder.call_method(method, (tensor, dim), {}), out, True)

    return rule


def peak_to_peak(
    state: GraphState, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False
) -> Any:
    """`numpy.ptp`."""
    tensor = tensor_of(state, a)
    axes = axes_of(tensor, axis)
    if tensor.dtype.is_complex or tensor.dtype is torch.bool or _is_empty(tensor) or not axes:
        left("ptp")
    ends = [
        state.recorder.call_method(name, (tensor, axes, keepdims), {}) for name in ("amax", "amin")
    ]
    return _finish(state, state.recorder.call_function(torch.sub, tuple(ends), {}), out, keepdims)


def norm(
    state: GraphState, x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False
) -> Any:
    """`numpy.linalg.norm` of vectors, and of all numbers of an array."""
    tensor = tensor_of(state, x)
    if tensor.dtype.is_complex or (ord is not None and (ord not in (1, 2, numpy.inf, -numpy.inf))):
        left("linalg.norm")
    vectors = type(axis) is int or (
        axis is None and (tensor.ndim == 1 or (ord is None and tensor.ndim))
    )
    if not vectors or _is_empty(tensor):
        left("linalg.norm of matrices")
    tensor = tensor if tensor.is_floating_point() else cast(state, tensor, torch.float64)
    options = {"ord": 2 if ord is None else ord, "dim": axes_of(tensor, axis), "keepdim": keepdims}
    return _finish(
        state,
        state.recorder.call_function(torch.linalg.vector_norm, (tensor,), options),
        None,
        keepdims,
    )


REDUCTIONS: dict[Any, ArrayRule] = {
    numpy.sum: summing(torch.sum, "add"),
    numpy.prod: summing(torch.prod, "multiply"),
    numpy.mean: mean,
    numpy.var: spread("var"),
    numpy.std: spread("std"),
    **dict.fromkeys((numpy.max, numpy.amax), extreme("amax")),
    **dict.fromkeys((numpy.min, numpy.amin), extreme("amin")),
    numpy.argmax: position("argmax"),
    numpy.argmin: position("argmin"),
    numpy.any: truth("any"),
    numpy.all: truth("all"),
    numpy.cumsum: cumulated("cumsum", numpy.add),
    numpy.cumprod: cumulated("cumprod", numpy.multiply),
    numpy.ptp: peak_to_peak,
    numpy.linalg.norm: norm,
}
