"""capture.rules.arrays.entry: where the interpreter meets numpy.

In: a call, an operator, an index or an attribute with an array of the trace. Out: what the rows of `table`, `reductions`
and `shapes` make of it; on constants numpy runs for real. Everything else is a break, and numpy's. What torch refuses
on fakes (shapes that do not fit) is left to numpy too, which raises errors of its own.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from typing import Any, Final

import numpy
import torch

from argand.capture.markers import Args, Kwargs
from argand.capture.objects.parts import GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.arrays import DTYPES, KINDS, ArrayNumber
from argand.capture.outside.kinds import is_constant
from argand.capture.record import items
from argand.capture.rules.arrays import operands, table, ufuncs
from argand.capture.rules.arrays.operands import answer, is_array, left, tensor_of
from argand.capture.rules.arrays.reductions import REDUCTIONS
from argand.capture.rules.arrays.shapes import METHODS, SHAPES, reshape, transpose
from argand.capture.sizes.values import OpenSize
from argand.support.errors import Break, CaptureBreak

DISPATCHER: Final = type(numpy.sum)  # of functions of numpy's that ask `__array_function__`
_FUNCTIONS: Final[dict[Any, Any]] = {**REDUCTIONS, **SHAPES}
_BY_NAME: Final[dict[str, Any]] = {
    **{function.__name__: rule for function, rule in REDUCTIONS.items()},
    **METHODS,
}
# Functions of numbers, types and shapes alone, with one answer: numpy is the calculator.
_CALCULATES: Final = frozenset(
    [
        "prod",
        "sum",
        "mean",
        "max",
        "min",
        "amax",
        "amin",
        "any",
        "all",
        "cumsum",
        "round",
        "sqrt",
        "log",
        "exp",
        "array",
        "asarray",
        "arange",
        "linspace",
        "zeros",
        "ones",
        "full",
        "eye",
        "identity",
        "empty",
        "result_type",
        "promote_types",
        "can_cast",
        "isscalar",
        "ndim",
        "shape",
        "size",
        "broadcast_shapes",
        "min_scalar_type",
        "logspace",
        "geomspace",
        "tri",
        "hanning",
        "hamming",
        "blackman",
        "bartlett",
        "kaiser",
        "issubdtype",
        "argmax",
        "argmin",
        "sort",
        "where",
        "clip",
        "ceil",
        "floor",
        "dtype",
    ]
)
_METADATA: Final = frozenset({"dtype", "itemsize", "ndim"})
_ERRORS: Final = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    NotImplementedError,
    OverflowError,
)
_NUMBER_METHODS: Final = frozenset(
    {"item", "tolist", "astype", "copy", "sum", "mean", "max", "min", "round", "clip"}
)


@functools.cache
def _signature(rule: Any) -> inspect.Signature:
    return inspect.signature(rule)


def _apply(tracer: Tracer, rule: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    try:
        _signature(rule).bind(tracer, *args, **kwargs)
    except TypeError:
        left(f"{name} with these arguments")
    return _left_if_raised(name, rule, tracer, *args, **kwargs)


def _left_if_raised(name: str, rule: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return rule(*args, **kwargs)
    except CaptureBreak as cause:
        cause.native = cause.native or bool(cause.frames)
        raise
    except _ERRORS:
        left(name)


def call(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """`numpy.f(...)`."""
    name = getattr(function, "__name__", str(function))
    given = (*args, *kwargs.values())
    if not any(operands.holds_arrays(tracer, value) for value in given):
        return _calculate(tracer, function, name, args, kwargs)
    if isinstance(function, numpy.ufunc):
        return _left_if_raised(name, ufuncs.call, tracer, function, args, kwargs)
    if (
        name in {"shape", "ndim", "size"}
        and getattr(numpy, name) is function
        and len(args) == 1
        and not kwargs
    ):
        return attribute(tracer, args[0], name)
    rule = _FUNCTIONS.get(function)
    if rule is None or str(function.__module__).startswith("numpy.random"):
        left(name)
    return _apply(tracer, rule, name, args, kwargs)


def _calculate(state: GraphState, function: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """numpy on constants: a constant, or an array that the graph makes."""
    known = isinstance(function, numpy.ufunc) or (
        name in _CALCULATES and getattr(numpy, name, None) is function
    )
    if not known or not all(_is_plain(value) for value in (*args, *kwargs.values())):
        left(name)
    result = real.call(function, args, kwargs)
    if type(result) is numpy.ndarray:
        return answer(state, operands.constant(state, result), False)
    if not isinstance(result, numpy.generic | numpy.dtype) and not is_constant(result):
        left(name)
    return result


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple) and type(value) in (list, tuple, torch.Size):
        return all(map(_is_plain, value))
    if isinstance(value, type):
        return issubclass(value, numpy.generic | int | float | complex)
    plain = type(value) in (int, float, bool, complex, str, type(None))
    return plain or isinstance(value, numpy.generic | numpy.dtype)  # a `ArrayNumber` was met before


def call_method(tracer: Tracer, name: str, owner: Any, args: Args, kwargs: Kwargs) -> Any:
    """A method of an array or a number."""
    if not is_array(tracer, owner):
        raise CaptureBreak(Break.B011, None, type="ndarray")
    if name == "item" and not args and not kwargs:
        return items.item(tracer.recorder, tensor_of(tracer, owner))
    if name == "tolist" and not tensor_of(tracer, owner).ndim:
        return items.item(tracer.recorder, tensor_of(tracer, owner))
    if name == "reshape":
        shape = args[0] if len(args) == 1 else args
        return _apply(tracer, reshape, name, (owner, shape), kwargs)
    if name == "transpose":
        axes = (
            None if not args else args[0] if isinstance(args[0], tuple) or args[0] is None else args
        )
        return _apply(tracer, transpose, name, (owner, axes), kwargs)
    if name == "fill" and len(args) == 1 and not kwargs:
        return store(tracer, owner, ..., args[0])
    rule = _BY_NAME.get(name)
    if rule is None:
        left(f"ndarray.{name}")
    return _apply(tracer, rule, name, (owner, *args), kwargs)


def attribute(state: GraphState, owner: Any, name: str) -> Any:
    """An attribute of an array or a number."""
    tensor = tensor_of(state, owner)
    if name in _METADATA:
        return (
            real.attribute(owner, name)
            if type(owner) is not ArrayNumber
            else getattr(numpy.empty((), owner.dtype), name)
        )
    if name == "shape":
        return tuple(state.world.sizes.wrap(tensor.shape))
    if name == "size":
        return state.recorder.call_method("numel", (tensor,), {})
    if name == "T":
        return transpose(state, owner)
    if name == "__class__":
        return numpy.ndarray if type(owner) is not ArrayNumber else owner.__class__
    if name in {"real", "imag"} and tensor.dtype.is_complex:
        return answer(
            state,
            state.recorder.call_function(getattr, (tensor, name), {}),
            type(owner) is ArrayNumber,
        )
    if type(owner) is ArrayNumber:
        return (
            types.MethodType(_stub(name), owner)
            if name in _NUMBER_METHODS
            else left(f"number.{name}")
        )
    found = getattr(numpy.ndarray, name, None)
    if isinstance(found, types.GetSetDescriptorType):
        left(f"ndarray.{name}")
    return real.attribute(owner, name)


@functools.cache
def _stub(name: str) -> Any:
    """A method of a number of numpy's; after a break it is the number's own."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, name)(*args, **kwargs)

    method.__name__ = name
    return method


# -- operators ---------------------------------------------------------------------------------


def binary(tracer: Tracer, function: Any, a: Any, b: Any, inplace: bool) -> Any:
    """`a op b`, one of them an array or a number."""
    name = function.__name__
    if inplace:
        ufunc = table.OPERATORS.get(f"{name[1:]}_" if name in {"iand", "ior"} else name[1:])
        if ufunc is None:
            left(name)
        keeps = {"out": a} if type(a) is numpy.ndarray else {}
        return call(tracer, ufunc, (a, b), keeps)
    ufunc = table.OPERATORS.get(name)
    if (
        ufunc is None
        or isinstance(a, torch.Tensor)
        or isinstance(b, torch.Tensor)
        or a is None
        or b is None
    ):
        left(name)
    return call(tracer, ufunc, (a, b), {})


def unary(tracer: Tracer, function: Any, value: Any) -> Any:
    """`-a`, `~a`, `abs(a)`."""
    ufunc = table.OPERATORS.get(function.__name__)
    return left(function.__name__) if ufunc is None else call(tracer, ufunc, (value,), {})


def subscript(state: GraphState, array: Any, key: Any) -> Any:
    """`array[key]`: a view, a copy where arrays are among the indices, or a number."""
    tensor = tensor_of(state, array)
    index = _index(state, key)
    if index == ():
        return answer(state, _copied(state, tensor), tensor.ndim == 0)
    made = _left_if_raised(
        "an index", state.recorder.call_function, operator.getitem, (tensor, index), {}
    )
    parts = index if isinstance(index, tuple) else (index,)
    number = not any(part is ... for part in parts)
    return answer(state, _copied(state, made) if number and not made.ndim else made, number)


def _copied(state: GraphState, tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.ndim else state.recorder.call_method("clone", (tensor,), {})


def _index(state: GraphState, key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple([_index(state, part) for part in key])
    if isinstance(key, slice):
        steps = [_whole(part) for part in (key.start, key.stop, key.step)]
        if isinstance(steps[2], int) and steps[2] < 0:
            left("a view with a negative step")
        return slice(*steps)
    if isinstance(key, list):
        return tensor_of(state, key) if key else left("an empty index")
    if type(key) in KINDS:
        return (
            tensor_of(state, key)
            if type(key) is not ArrayNumber
            else left("an index that is computed")
        )
    if key is None or key is ...:
        return key
    if isinstance(key, bool | numpy.bool_ | torch.Tensor):
        left("an index")
    return _whole(key)


def _whole(part: Any) -> Any:
    if part is None or type(part) in (int, OpenSize):
        return part
    return (
        left("an index")
        if type(part) is ArrayNumber or not isinstance(part, numpy.integer)
        else int(part)
    )


def store(state: GraphState, array: Any, key: Any, value: Any) -> None:
    """`array[key] = value`."""
    tensor, index = tensor_of(state, array), _index(state, key)
    if isinstance(value, torch.Tensor):
        left("a tensor written to an array")
    if (
        type(value) in operands.WEAK
        and tensor.dtype.is_floating_point
        and type(value) is not complex
    ):
        given: Any = value
    else:
        given = operands.cast(state, _written(state, value, array.dtype), tensor.dtype)
    index = ... if index == () else index
    _left_if_raised(
        "an index", state.recorder.call_function, operator.setitem, (tensor, index, given), {}
    )


def _written(state: GraphState, value: Any, dtype: Any) -> torch.Tensor:
    return (
        operands.as_type(state, value, dtype)
        if type(value) in operands.WEAK
        else tensor_of(state, value)
    )


def iterate(state: GraphState, array: Any) -> Any:
    """`iter(array)`."""
    tensor = tensor_of(state, array)
    if not tensor.ndim or not all(type(n) is int for n in state.world.sizes.wrap(tensor.shape)):
        left("iteration")
    return iter([subscript(state, array, n) for n in range(tensor.shape[0])])


def length(state: GraphState, array: Any) -> Any:
    """`len(array)`."""
    shape = attribute(state, array, "shape")
    return shape[0] if shape else left("len of a number")


def convert(state: GraphState, kind: type, value: Any) -> Any:
    """`float(a)` or `int(a)`, if it is what the number is."""
    pending = items.item(state.recorder, tensor_of(state, value))
    if pending.kind is not kind:
        raise CaptureBreak(Break.B004, None, method=kind.__name__)
    return pending


# -- torch -------------------------------------------------------------------------------------


def of_tensor(state: GraphState, tensor: torch.Tensor, args: Args, kwargs: Kwargs) -> Any:
    """`tensor.numpy()`: an array over its memory."""
    force = kwargs.get("force", args[0] if args else False)
    with torch._C._DisableTorchDispatch():
        real.call(torch.Tensor.numpy, (tensor,), {"force": force})  # raises where eager does
    if force or tensor.dtype not in DTYPES or type(tensor) is not torch.Tensor:
        raise CaptureBreak(Break.B004, None, method="Tensor.numpy")
    if tensor.is_conj() or tensor.is_neg() or tensor.is_inference() or state.overrides.modes:
        raise CaptureBreak(Break.B004, None, method="Tensor.numpy")
    return answer(state, state.recorder.call_function(getattr, (tensor, "data"), {}), False)


def to_tensor(state: GraphState, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """`torch.from_numpy(a)`, `as_tensor`, `tensor`: one over the memory of the array, or a copy."""
    value, options = (
        args[0],
        {name: option for name, option in kwargs.items() if option is not None},
    )
    if len(args) != 1 or type(value) not in KINDS or set(options) - {"dtype"}:
        left(function.__name__)
    tensor = tensor_of(state, value)
    if not tensor.numel():
        left(f"{function.__name__} of an empty array")  # whose strides are zeros
    dtype = options.get("dtype", tensor.dtype)
    if type(value) is ArrayNumber and function is not torch.from_numpy:
        raise CaptureBreak(Break.B004, None, method=function.__name__)
    if function is torch.tensor or dtype is not tensor.dtype:
        made = state.recorder.call_method("to", (tensor,), {"dtype": dtype, "copy": True})
        return state.recorder.call_method("contiguous", (made,), {})
    if tensor.storage_offset():
        left(f"{function.__name__} of a part of an array")  # eager's begins a storage of its own
    return state.recorder.call_function(getattr, (tensor, "data"), {})
