"""capture.rules.arrays.shapes: arrays made, joined, cut, turned and multiplied.

Each function has numpy's arguments, but for those it leaves to numpy. Views are views: what is written to one is seen in
the other. What numpy shows as a view with a negative step (`flip`) or one that must not be written to is left to it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy
import torch

from argand.capture.objects.parts import GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside.arrays import TORCH_DTYPES, ArrayNumber
from argand.capture.outside.state import Outside
from argand.capture.rules.arrays import operands, table, ufuncs
from argand.capture.rules.arrays.operands import (
    ArrayRule,
    answer,
    cast,
    common,
    is_array,
    left,
    tensor_of,
    torch_dtype,
)
from argand.capture.rules.arrays.reductions import axes_of, one_axis

_LIKE: Final = {"zeros": 0, "ones": 1}


def _method(state: GraphState, name: str, *args: Any, **kwargs: Any) -> Any:
    return state.recorder.call_method(name, args, kwargs)


def _function(state: GraphState, form: Any, *args: Any, **kwargs: Any) -> Any:
    return state.recorder.call_function(form, args, kwargs)


def _array(outside: Outside, tensor: torch.Tensor) -> Any:
    return answer(outside, tensor, False)


# -- shapes ------------------------------------------------------------------------------------


def reshape(state: GraphState, a: Any, shape: Any, order: str = "C") -> Any:
    """`numpy.reshape`."""
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    return (
        _array(state, _method(state, "reshape", tensor_of(state, a), sizes))
        if order == "C"
        else left("reshape")
    )


def ravel(state: GraphState, a: Any, order: str = "C") -> Any:
    """`numpy.ravel`."""
    return reshape(state, a, (-1,), order)


def flatten(state: GraphState, a: Any, order: str = "C") -> Any:
    """`ndarray.flatten`: a copy."""
    flat = (
        _method(state, "reshape", tensor_of(state, a), (-1,)) if order == "C" else left("flatten")
    )
    return _array(state, _method(state, "clone", flat))


def transpose(state: GraphState, a: Any, axes: Any = None) -> Any:
    """`numpy.transpose`."""
    tensor = tensor_of(state, a)
    order = tuple(range(tensor.ndim))[::-1] if axes is None else axes_of(tensor, tuple(axes))
    return _array(state, _method(state, "permute", tensor, order))


def swapaxes(state: GraphState, a: Any, axis1: Any, axis2: Any) -> Any:
    """`numpy.swapaxes`."""
    tensor = tensor_of(state, a)
    return _array(
        state, _method(state, "transpose", tensor, one_axis(tensor, axis1), one_axis(tensor, axis2))
    )


def moveaxis(state: GraphState, a: Any, source: Any, destination: Any) -> Any:
    """`numpy.moveaxis`."""
    return _array(state, _method(state, "movedim", tensor_of(state, a), source, destination))


def expand_dims(state: GraphState, a: Any, axis: Any) -> Any:
    """`numpy.expand_dims`."""
    return _array(
        state,
        _method(
            state, "unsqueeze", tensor_of(state, a), axis if type(axis) is int else left("axis")
        ),
    )


def squeeze(state: GraphState, a: Any, axis: Any = None) -> Any:
    """`numpy.squeeze`."""
    tensor = tensor_of(state, a)
    axes = (
        tuple(n for n, size in enumerate(tensor.shape) if size == 1)
        if axis is None
        else axes_of(tensor, axis)
    )
    if any(tensor.shape[n] != 1 for n in axes):
        left("squeeze")
    return _array(state, _method(state, "squeeze", tensor, axes))


# -- joining and cutting -----------------------------------------------------------------------


def concatenate(state: GraphState, arrays: Any, axis: Any = 0, out: Any = None) -> Any:
    """`numpy.concatenate`."""
    tensors = common(state, list(arrays))
    if out is not None or not all(t.ndim == tensors[0].ndim and t.ndim for t in tensors):
        left("concatenate")
    if axis is None:
        tensors, axis = [_method(state, "reshape", tensor, (-1,)) for tensor in tensors], 0
    return _array(state, _function(state, torch.cat, tensors, one_axis(tensors[0], axis)))


def joined(form: Any) -> ArrayRule:
    """`numpy.stack` and its kin, which torch has under other names."""

    def rule(state: GraphState, arrays: Any, **options: Any) -> Any:
        tensors = common(state, list(arrays))
        return _array(state, _function(state, form, tensors, **options))

    return rule


def stack(state: GraphState, arrays: Any, axis: int = 0) -> Any:
    """`numpy.stack`."""
    tensors = common(state, list(arrays))
    if not all(t.shape == tensors[0].shape for t in tensors) or type(axis) is not int:
        left("stack")
    return _array(state, _function(state, torch.stack, tensors, axis))


def split(state: GraphState, ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """`numpy.split`."""
    tensor = tensor_of(state, ary)
    dim, parts = one_axis(tensor, axis), indices_or_sections
    if type(parts) is int and (parts <= 0 or tensor.shape[dim] % parts):
        left("split into unequal parts")
    if type(parts) is not int and not all(type(n) is int for n in parts):
        left("split at other places")
    cut = parts if type(parts) is int else tuple(parts)
    return [_array(state, part) for part in _function(state, torch.tensor_split, tensor, cut, dim)]


def roll(state: GraphState, a: Any, shift: Any, axis: Any = None) -> Any:
    """`numpy.roll`."""
    return _array(state, _function(state, torch.roll, tensor_of(state, a), shift, axis))


def tile(state: GraphState, A: Any, reps: Any) -> Any:
    """`numpy.tile`."""
    return _array(
        state,
        _function(
            state, torch.tile, tensor_of(state, A), reps if isinstance(reps, tuple) else (reps,)
        ),
    )


def repeat(state: GraphState, a: Any, repeats: Any, axis: Any = None) -> Any:
    """`numpy.repeat` by a number."""
    count = repeats if type(repeats) is int else left("repeat")
    return _array(
        state, _function(state, torch.repeat_interleave, tensor_of(state, a), count, axis)
    )


def triangle(form: Any) -> ArrayRule:
    """`numpy.tril` and `numpy.triu`."""

    def rule(state: GraphState, m: Any, k: int = 0) -> Any:
        tensor = tensor_of(state, m)
        return _array(
            state, _function(state, form, tensor, k) if tensor.ndim > 1 else left("a triangle")
        )

    return rule


def diff(state: GraphState, a: Any, n: int = 1, axis: int = -1) -> Any:
    """`numpy.diff`."""
    tensor = tensor_of(state, a)
    if tensor.dtype is torch.bool or not tensor.ndim:
        left("diff")
    return _array(state, _function(state, torch.diff, tensor, n, one_axis(tensor, axis)))


# -- values ------------------------------------------------------------------------------------


def where(state: GraphState, condition: Any, *choices: Any) -> Any:
    """`numpy.where` with two choices."""
    if len(choices) != 2:
        left("where, which is nonzero")
    chosen = common(state, choices)
    asked = cast(state, tensor_of(state, condition), torch.bool)
    return _array(state, _function(state, torch.where, asked, *chosen))


def clip(
    tracer: Tracer, a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **names: Any
) -> Any:
    """`numpy.clip`."""
    low, high = names.pop("min", a_min), names.pop("max", a_max)
    if names or out is not None:
        left("clip")
    if low is not None and high is not None:
        tensors = common(tracer, (a, low, high))
        if tensors[0].dtype.is_complex:
            left("clip")
        return answer(
            tracer,
            ufuncs.compute(tracer, table.clip, tuple(tensors)),
            operands.is_flat(tracer, (a, low, high)),
        )
    if low is None and high is None:
        left("clip without limits")
    return ufuncs.call(
        tracer,
        numpy.maximum if high is None else numpy.minimum,
        (a, low if high is None else high),
        {},
    )


def around(state: GraphState, a: Any, decimals: int = 0, out: Any = None) -> Any:
    """`numpy.round`."""
    tensor = tensor_of(state, a)
    if out is not None or not tensor.is_floating_point() or decimals:
        left("round")
    return answer(state, _method(state, "round", tensor), operands.is_flat(state, (a,)))


def sort(state: GraphState, a: Any, axis: int = -1, kind: Any = None) -> Any:
    """`numpy.sort`, which copies."""
    tensor = tensor_of(state, a)
    if tensor.dtype.is_complex:
        left("sort")
    return _array(state, _method(state, "sort", tensor, one_axis(tensor, axis))[0])


def argsort(state: GraphState, a: Any, axis: int = -1, kind: Any = None) -> Any:
    """`numpy.argsort`, if equal numbers have an order."""
    tensor = tensor_of(state, a)
    if kind not in ("stable", "mergesort") or tensor.dtype.is_complex:
        left("argsort that is not stable")
    return _array(state, _method(state, "argsort", tensor, dim=one_axis(tensor, axis), stable=True))


def astype(
    state: GraphState,
    a: Any,
    dtype: Any,
    order: str = "K",
    casting: str = "unsafe",
    subok: bool = True,
    copy: Any = True,
) -> Any:
    """`ndarray.astype`."""
    tensor, wanted = tensor_of(state, a), torch_dtype(dtype)
    if order != "K" or casting != "unsafe" or (tensor.dtype.is_complex and not wanted.is_complex):
        left("astype")
    if not copy and wanted is tensor.dtype:
        return a
    return answer(state, _method(state, "to", tensor, wanted, copy=True), type(a) is ArrayNumber)


def copy(state: GraphState, a: Any, order: str = "K") -> Any:
    """`numpy.copy`."""
    tensor = tensor_of(state, a)
    form = {"K": torch.preserve_format, "C": torch.contiguous_format}.get(order) or left("copy")
    return answer(
        state, _method(state, "clone", tensor, memory_format=form), type(a) is ArrayNumber
    )


def method_copy(state: GraphState, a: Any, order: str = "C") -> Any:
    """`ndarray.copy`."""
    return copy(state, a, order)


def asarray(state: GraphState, a: Any, dtype: Any = None) -> Any:
    """`numpy.asarray`: the array itself, or one of another type."""
    if is_array(state, a) and type(a) is not ArrayNumber:
        return a if dtype is None else astype(state, a, dtype, copy=False)
    tensor = tensor_of(state, a)
    return _array(state, tensor if dtype is None else cast(state, tensor, torch_dtype(dtype)))


def array(state: GraphState, object: Any, dtype: Any = None, *, copy: Any = True) -> Any:
    """`numpy.array`: a copy."""
    made = asarray(state, object, dtype)
    return method_copy(state, made, "K") if made is object and copy else made


def like(value: int | None) -> ArrayRule:
    """`numpy.zeros_like` and `numpy.ones_like`."""

    def rule(state: GraphState, a: Any, dtype: Any = None) -> Any:
        tensor = tensor_of(state, a)
        kind = tensor.dtype if dtype is None else torch_dtype(dtype)
        return _array(state, _function(state, torch.full_like, tensor, value, dtype=kind))

    return rule


def full_like(state: GraphState, a: Any, fill_value: Any, dtype: Any = None) -> Any:
    """`numpy.full_like` of a number."""
    if type(fill_value) not in (bool, int, float):
        left("full_like")
    tensor = tensor_of(state, a)
    kind = numpy.dtype(dtype or a.dtype)
    number = kind.type(fill_value).item()
    return _array(
        state, _function(state, torch.full_like, tensor, number, dtype=TORCH_DTYPES[kind])
    )


# -- products ----------------------------------------------------------------------------------


def dot(state: GraphState, a: Any, b: Any, out: Any = None) -> Any:
    """`numpy.dot` of at most matrices."""
    tensors = [tensor_of(state, a), tensor_of(state, b)]
    if out is not None or not all(1 <= tensor.ndim <= 2 for tensor in tensors):
        left("dot")
    return answer(state, *ufuncs.matmul(state, a, b))


def outer(tracer: Tracer, a: Any, b: Any) -> Any:
    """`numpy.outer`."""
    flat = [_method(tracer, "reshape", tensor_of(tracer, x), (-1,)) for x in (a, b)]
    arrays = [_array(tracer, x) for x in flat]
    return ufuncs.call(tracer, numpy.multiply, (expand_dims(tracer, arrays[0], 1), arrays[1]), {})


def einsum(state: GraphState, subscripts: Any, *arrays: Any) -> Any:
    """`numpy.einsum` with a text."""
    tensors = common(state, arrays)
    if type(subscripts) is not str or not (
        tensors[0].is_floating_point() or tensors[0].is_complex()
    ):
        left("einsum")
    if any(
        len(set(part)) < len(part) for part in subscripts.replace(" ", "").split("->")[0].split(",")
    ):
        left("einsum of a diagonal, which is a view")
    if len(tensors) < 2:
        left("einsum of one array, which may be a view")
    return answer(state, _function(state, torch.einsum, subscripts, *tensors), True)


SHAPES: Final[dict[Any, ArrayRule]] = {
    numpy.reshape: reshape,
    numpy.ravel: ravel,
    numpy.transpose: transpose,
    numpy.swapaxes: swapaxes,
    numpy.moveaxis: moveaxis,
    numpy.expand_dims: expand_dims,
    numpy.squeeze: squeeze,
    numpy.concatenate: concatenate,
    numpy.stack: stack,
    numpy.vstack: joined(torch.vstack),
    numpy.hstack: joined(torch.hstack),
    numpy.dstack: joined(torch.dstack),
    numpy.column_stack: joined(torch.column_stack),
    numpy.split: split,
    numpy.roll: roll,
    numpy.tile: tile,
    numpy.repeat: repeat,
    numpy.tril: triangle(torch.tril),
    numpy.triu: triangle(torch.triu),
    numpy.diff: diff,
    numpy.where: where,
    numpy.clip: clip,
    **dict.fromkeys((numpy.round, numpy.around), around),
    numpy.sort: sort,
    numpy.argsort: argsort,
    numpy.copy: copy,
    **dict.fromkeys((numpy.asarray, numpy.asanyarray), asarray),
    numpy.array: array,
    numpy.zeros_like: like(0),
    numpy.ones_like: like(1),
    numpy.full_like: full_like,
    numpy.dot: dot,
    numpy.outer: outer,
    numpy.einsum: einsum,
}
METHODS: Final[dict[str, ArrayRule]] = {
    "ravel": ravel,
    "flatten": flatten,
    "swapaxes": swapaxes,
    "squeeze": squeeze,
    "repeat": repeat,
    "astype": astype,
    "copy": method_copy,
    "__copy__": method_copy,
    "dot": dot,
    "argsort": argsort,
    "clip": clip,
    "round": around,
}
