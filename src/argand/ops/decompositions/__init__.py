"""ops.decompositions: composite ops in terms of pointwise ops, reductions and views.

In: an OpOverload.  Out: a Python function with the op's signature, numerically equal to eager's
kernel, with eager's shapes, dtypes and strides. The native compiler fuses what comes out; ops that
have a good kernel (matrix products, convolution, sorting) are not decomposed. A function may answer
``NotImplemented`` for arguments it does not cover (complex variance, ...): then the op stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from types import FunctionType, ModuleType
from typing import Any, Final, final

import torch
from torch import Tensor
from typing_extensions import override

from argand.ops.decompositions import foreach, images, losses, norms, pointwise, reductions, shapes
from argand.ops.layout import NoAnswer, is_dense
from argand.ops.rows import TABLE as ROWS
from argand.ops.table import Rule

Function = Callable[..., Any]


def _named(family: ModuleType) -> Mapping[str, Function]:
    """A family's functions by op: the public ones have its name, TABLE names the others."""
    own = (f for f in vars(family).values() if isinstance(f, FunctionType) and f.__module__ == family.__name__)
    return {**{f.__name__: f for f in own if not f.__name__.startswith("_")}, **family.TABLE}


_BY_NAME: Final[Mapping[str, Function]] = {
    f"aten::{name}": function
    for family in (pointwise, reductions, norms, losses, shapes, images, foreach)
    for name, function in _named(family).items()
}


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


def _with_eager_strides(function: Function, rule: Rule) -> Function:
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
def _function(name: str) -> Function | None:
    function, row = _BY_NAME.get(name), ROWS.get(name)
    if function is None or row is None:
        return function
    return _with_eager_strides(function, row.infer)


@final
class _Decompositions(Mapping[Any, Function]):
    """A mapping by OpOverload that looks no op up in torch before it is asked for it."""

    @override
    def __getitem__(self, func: Any) -> Function:
        function = _function(func.name())
        if function is None:
            raise KeyError(func)
        return function

    @override
    def get(self, func: Any, default: Any = None) -> Any:
        return _function(func.name()) or default

    @override
    def __iter__(self) -> Iterator[Any]:
        for name in _BY_NAME:
            packet, _, overload = name.removeprefix("aten::").partition(".")
            yield getattr(getattr(torch.ops.aten, packet), overload or "default")

    @override
    def __len__(self) -> int:
        return len(_BY_NAME)

    @override
    def __contains__(self, func: object) -> bool:
        return isinstance(func, torch._ops.OpOverload) and func.name() in _BY_NAME


@cache
def decompositions() -> Mapping[Any, Function]:
    """All our decompositions, by OpOverload."""
    return _Decompositions()
