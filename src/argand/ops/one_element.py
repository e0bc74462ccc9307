"""ops.one_element: does eager's kernel take these dtypes and numbers?  In: one call.  Out: yes, no, or who knows.

Type rules know shapes and promotion; which dtypes a kernel is compiled for, and which numbers it can convert
to them, only the kernel knows. So it is asked, once for each combination, with tensors of one element.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import torch

from argand.ops.table import Kind

# Where one element is a fair question. Others have arguments that speak of sizes (kernel sizes, groups, k).
_ASKED: Final = frozenset(
    {Kind.POINTWISE, Kind.REDUCE, Kind.MATMUL, Kind.GATHER, Kind.SCATTER, Kind.RANDOM, Kind.FACTORY}
)
# Division by zero is an error of integers; an index of one is out of range.
_FILLED: Final = frozenset({Kind.POINTWISE, Kind.RANDOM, Kind.FACTORY})
_CONTROLS: Final = (torch.float32, torch.int64, torch.bool, torch.complex64)


class _One(tuple[Any, ...]):
    """A tensor as dtype and rank."""

    __slots__ = ()


class _Many(tuple[Any, ...]):
    """A list."""

    __slots__ = ()


def eager_takes(
    func: Any, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool | None:
    """Whether eager has a kernel for the dtypes and numbers of this call, whatever its sizes.

    None: one element is too little to tell (half of a dimension of size one, a wrong option).
    """
    if kind not in _ASKED:
        return True
    named = tuple((name, _image(value)) for name, value in kwargs.items()) if kwargs else ()
    return _takes(func, kind, tuple(map(_image, args)), named, torch.get_default_dtype())


def _image(value: Any) -> Any:
    """What the answer depends on, as something that can be looked up."""
    if isinstance(value, torch.Tensor):
        return _One((value.dtype, value.dim()))
    if isinstance(value, list | tuple):
        return _Many(map(_image, value))
    return None if isinstance(value, torch.Generator) else value


@lru_cache(maxsize=16384, typed=True)
def _takes(
    func: Any, kind: Kind, args: tuple[Any, ...], kwargs: tuple[Any, ...], default: torch.dtype
) -> bool | None:
    if _runs(func, kind, args, kwargs, None):
        return True
    return False if any(_runs(func, kind, args, kwargs, control) for control in _CONTROLS) else None


def _runs(
    func: Any,
    kind: Kind,
    args: tuple[Any, ...],
    kwargs: tuple[Any, ...],
    control: torch.dtype | None,
) -> bool:
    fill = torch.ones if kind in _FILLED else torch.zeros
    sizes = kind in (Kind.FACTORY, Kind.RANDOM)

    def value(image: Any) -> Any:
        if isinstance(image, _One):
            dtype, rank = image
            return fill((1,) * rank, dtype=control or dtype)
        if isinstance(image, _Many):
            return [min(item, 1) if sizes and type(item) is int else value(item) for item in image]
        return 1 if control is not None and isinstance(image, float | complex) else image

    state = torch.get_rng_state() if kind is Kind.RANDOM else None
    try:
        func(*map(value, args), **{name: value(image) for name, image in kwargs})
    except Exception:
        return False
    finally:
        if state is not None:
            torch.set_rng_state(state)
    return True
