"""ops.fallback: the type of an op that has no row.  In: one aten call on fakes.  Out: fresh fakes.

Two ways, both memoised on the metadata of the arguments: torch's own CPU kernel on small tensors of
zeros (exact strides, eager's own error messages, no import), else torch's meta kernel (may import
sympy, which is why rows exist; also the way for operators from ``torch.library``).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch

from argand.ops.layout import DataDependent, extent, new

# Their kernels have no effects but on tensors; a user's operator may print, count, or call out.
_QUIET_NAMESPACES: Final = frozenset({"aten", "prims", "mkldnn", "onednn", "torchvision"})
# Above this many input elements the real kernel on zeros is slower than importing sympy once.
_SMALL: Final = 1 << 20


class FakeContext:
    """What the fake of an operator asks for a size that depends on data."""

    def __init__(self, op: str) -> None:
        self.op = op

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """There is no number for it while tracing: the graph ends before the operator."""
        raise DataDependent(self.op)

    create_unbacked_symint = new_dynamic_size


def fake_context(op: str) -> Any:
    """Inside it, ``torch.library.get_ctx()`` is our context."""
    return torch._library.fake_impl.set_ctx_getter(lambda: FakeContext(op))


class TensorType(NamedTuple):
    """What a fake knows: enough to make another one."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def new(self, device: str = "cpu") -> torch.Tensor:
        """A tensor of this type whose memory nobody has touched."""
        if device == "cpu":
            return new(self.shape, self.stride, dtype=self.dtype)
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)


class _List(tuple[Any, ...]):
    """A list argument, made hashable."""

    __slots__ = ()


def type_of(tensor: torch.Tensor) -> TensorType:
    """The type of a tensor; how many entries a sparse one has depends on data."""
    if tensor.layout is not torch.strided:
        raise DataDependent(f"an operator that returns {tensor.layout}")
    return TensorType(tuple(tensor.shape), tensor.stride(), tensor.dtype)


def freeze(value: Any) -> Any:
    """A hashable image of arguments or results: tensors as their types."""
    if isinstance(value, torch.Tensor):
        return type_of(value)
    if isinstance(value, list):
        return _List(map(freeze, value))
    if isinstance(value, tuple):
        return tuple(map(freeze, value))
    if isinstance(value, torch.Generator):
        return None  # a type does not depend on who draws, and a draw here would show later
    return value


def thaw(value: Any, device: str = "cpu", zero: bool = False) -> Any:
    """Arguments or results again, with tensors of zeros or of untouched memory: fakes."""
    if isinstance(value, TensorType):
        if zero and 0 in value.stride:  # zero_() refuses elements that share memory
            return torch.zeros(extent(value.shape, value.stride), dtype=value.dtype).as_strided(
                *value[:2]
            )
        if zero:
            return torch.empty_strided(
                value.shape, value.stride, dtype=value.dtype, device=device
            ).zero_()
        return value.new(device)
    if isinstance(value, _List):
        return [thaw(item, device, zero) for item in value]
    if type(value) is tuple:
        return tuple(thaw(item, device, zero) for item in value)
    if isinstance(value, torch.device):
        return torch.device(device)
    return value


def elements(value: Any) -> int:
    """How many elements the tensors of a frozen value have."""
    if isinstance(value, TensorType):
        return math.prod(value.shape)
    if isinstance(value, tuple):
        return sum(map(elements, value))
    return 0


def is_small(value: Any) -> bool:
    """Whether to run a kernel on zeros of this size is cheap."""
    if isinstance(value, torch.Tensor):
        return value.numel() <= _SMALL
    items = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else ()
    )
    return all(map(is_small, items))


def _run(func: Any, args: Any, kwargs: Any, device: str, zero: bool) -> Any:
    real_args = thaw(args, device, zero)
    real_kwargs = {name: thaw(value, device, zero) for name, value in kwargs}
    state = torch.get_rng_state()
    try:
        return freeze(func(*real_args, **real_kwargs))
    finally:
        torch.set_rng_state(state)


@lru_cache(maxsize=4096, typed=True)
def _result_type(func: Any, args: Any, kwargs: Any, default_dtype: torch.dtype) -> Any:
    error: Exception | None = None
    if func.namespace in _QUIET_NAMESPACES and elements((args, kwargs)) <= _SMALL:
        try:
            return _run(func, args, kwargs, "cpu", zero=True)
        except Exception as failure:
            error = failure  # a shape error, or zeros are no valid input (a singular matrix, ...)
    try:
        return _run(func, args, kwargs, "meta", zero=False)
    except Exception:
        if error is None:
            raise
        raise error from None


def infer_by_torch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Fakes with the types torch's own kernels answer; raises what eager raises."""
    frozen = tuple((name, freeze(value)) for name, value in kwargs.items())
    return thaw(_result_type(func, freeze(args), frozen, torch.get_default_dtype()))


@lru_cache(maxsize=4096, typed=True)
def _eager_type(func: Any, args: Any, kwargs: Any, default_dtype: torch.dtype) -> Any:
    return _run(func, args, kwargs, "cpu", zero=True)


def infer_by_eager(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Fakes with the types torch's CPU kernel answers on zeros: for small tensors, and ops that zeros do not upset."""
    frozen = tuple((name, freeze(value)) for name, value in kwargs.items())
    return thaw(_eager_type(func, freeze(args), frozen, torch.get_default_dtype()))


def eager_error(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Raise what eager raises for a call that looks wrong; if eager takes it, its result as fakes.

    Kernels check shapes before they touch memory, so large operands stay untouched.
    """
    if func.namespace not in _QUIET_NAMESPACES:
        return infer_by_torch(func, args, kwargs)
    frozen_args = freeze(args)
    frozen = tuple((name, freeze(value)) for name, value in kwargs.items())
    small = elements((frozen_args, frozen)) <= _SMALL
    return thaw(_run(func, frozen_args, frozen, "cpu", zero=small))
