"""ops.overlap: which elements of tensors are one place in memory, as far as it decides what a write gives.

Eager's kernels read and write element by element, so a write to memory that the same call also reads, shifted, or that
is several elements at once, gives what the kernel's order makes of it. No graph says that; such calls are left to Python.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import torch

_FEW: Final = 2048  # elements that are compared one by one


def may_overlap(tensor: torch.Tensor) -> bool:
    """Whether several elements may lie at one place."""
    dims = sorted(
        (step, size) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1
    )
    reach = 0
    for step, size in dims:
        if step <= reach:
            return bool(tensor.numel())
        reach += step * (size - 1)
    return False


def is_within(whole: torch.Tensor, view: torch.Tensor) -> bool:
    """Whether all places of a view on one memory are places of elements of the whole; no, where that is not known."""
    if whole.numel() > _FEW or view.numel() > _FEW or whole.itemsize != view.itemsize:
        return False
    return _places(view) <= _places(whole)


def lies_on(target: torch.Tensor, value: Any) -> bool:
    """Whether an operand is the tensor to be written, or lies on it element by element."""
    if value is target:
        return True
    same = (
        isinstance(value, torch.Tensor)
        and target.untyped_storage()._cdata == value.untyped_storage()._cdata
    )
    return same and bool(value.numel()) and _geometry(target) == _geometry(value)


def reads_what_it_writes(target: torch.Tensor, value: Any) -> bool:
    """Whether an operand lies over a tensor to be written, but not element by element."""
    if (
        not isinstance(value, torch.Tensor)
        or value is target
        or not value.numel()
        or not target.numel()
    ):
        return False
    if target.untyped_storage()._cdata != value.untyped_storage()._cdata:
        return False
    if _geometry(target) == _geometry(value):
        return False
    begin, other = _start(target), _start(value)
    if begin >= other + _reach(value) or other >= begin + _reach(target):
        return False
    return _meet(target, value)


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where the elements lie, without dimensions of one element."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return (_start(tensor), tensor.itemsize, *((size, step) for size, step in pairs if size > 1))


def _start(tensor: torch.Tensor) -> int:
    return tensor.storage_offset() * tensor.itemsize


def _reach(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last."""
    steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.itemsize


def _meet(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether an element of one lies at the place of an element of the other; no, where that is too much to find out."""
    if one.itemsize != two.itemsize:
        return True
    gap = math.gcd(
        *(s for t in (one, two) for n, s in zip(t.shape, t.stride(), strict=True) if n > 1)
    )
    if gap > 1 and (one.storage_offset() - two.storage_offset()) % gap:
        return False
    if one.numel() > _FEW or two.numel() > _FEW:
        return False
    return not _places(one).isdisjoint(_places(two))


def _places(tensor: torch.Tensor) -> set[int]:
    steps = [
        range(0, size * step, step) if step else (0,)
        for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    return {tensor.storage_offset() + sum(place) for place in itertools.product(*steps)}
