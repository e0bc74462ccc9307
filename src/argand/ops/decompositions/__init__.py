"""ops.decompositions: composite ops in terms of pointwise ops, reductions and views.

Out: by OpOverload, a Python function with the op's signature, numerically equal to eager's
kernel, with eager's shapes, dtypes and strides. The native compiler fuses what comes out; ops that
have a good kernel (matrix products, convolution, sorting) are not decomposed. A function may answer
``NotImplemented`` for arguments it does not cover (complex variance, ...): then the op stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from argand.ops.decompositions import foreach, images, losses, norms, pointwise, reductions, shapes
from argand.ops.layout import NoAnswer, is_dense
from argand.ops.rows import row_of
from argand.ops.table import TypeRule

Decomposition = Callable[..., Any]


def _named(family: ModuleType) -> Mapping[str, Decomposition]:
    """A family's functions by op: the public ones have its name, TABLE names the others."""
    own = (
        f
        for f in vars(family).values()
        if isinstance(f, FunctionType) and f.__module__ == family.__name__
    )
    return {**{f.__name__: f for f in own if not f.__name__.startswith("_")}, **family.TABLE}


def _is_plain(value: Any) -> bool:
    """Whether every tensor in an argument is row-major."""
    if isinstance(value, Tensor):
        return value.is_contiguous()
    return all(map(_is_plain, value)) if isinstance(value, list | tuple) else True


def _laid_out(result: Any, wanted: Any) -> Any:
    """The result in the wanted memory order; a later ``view`` may depend on it."""
    if not isinstance(result, Tensor):
        if not isinstance(result, list | tuple):
            return result
        return type(result)(map(_laid_out, result, wanted))
    shape, stride = wanted.shape, wanted.stride()
    if result.stride() == stride or not is_dense(shape, stride):
        return result
    order = sorted(range(len(shape)), key=lambda dim: (stride[dim], shape[dim]), reverse=True)
    back = sorted(range(len(shape)), key=order.__getitem__)
    return result.permute(order).clone(memory_format=torch.contiguous_format).permute(back)


def _with_eager_strides(function: Decomposition, rule: TypeRule) -> Decomposition:
    """Operands in unusual memory order: eager's result may be laid out unlike that of the parts."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is NotImplemented or result is None or _is_plain(args):
            return result
        with torch._C._DisableTorchDispatch():  # a rule's fakes are no part of the traced program
            try:
                wanted = rule(*args, **kwargs)
            except NoAnswer:
                return result
        return _laid_out(result, wanted)

    return wrapped


@cache
def decompositions() -> Mapping[Any, Decomposition]:
    """All our decompositions, by OpOverload."""
    found: dict[Any, Decomposition] = {}
    for family in (pointwise, reductions, norms, losses, shapes, images, foreach):
        for name, function in _named(family).items():
            packet, _, overload = name.partition(".")
            func = getattr(getattr(torch.ops.aten, packet), overload or "default")
            rule = row_of(func).infer
            found[func] = function if rule is None else _with_eager_strides(function, rule)
    return found
