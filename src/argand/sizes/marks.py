"""sizes.marks: what a user says about the sizes of a tensor.

In: a tensor and its dimensions. A mark is an attribute of that tensor object; plans read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, final

import torch

SIZE_MARKS: Final = "_argand_sizes"  # attribute of a tensor: its marks by dimension

# Attributes of torch._dynamo.mark_dynamic and its kin, each a set of dimensions.
_OF_DYNAMO: Final = (
    ("_dynamo_weak_dynamic_indices", "maybe"),
    ("_dynamo_unbacked_indices", "maybe"),
    ("_dynamo_static_indices", "static"),
    ("_dynamo_dynamic_indices", "dynamic"),
)


@final
class SizeMark(NamedTuple):
    """What a user said about one dimension of a tensor."""

    kind: str  # dynamic, maybe, static
    minimum: int | None = None  # None: the size of the first call where that is 0 or 1, else 2
    maximum: int | None = None


def marks_of(tensor: torch.Tensor, dims: int | Iterable[int] | None) -> list[int]:
    """The dimensions a user named, checked."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"sizes of tensors can be marked, got {type(tensor).__name__}")
    named = range(tensor.dim()) if dims is None else [dims] if isinstance(dims, int) else [*dims]
    for dim in named:
        if not -tensor.dim() <= dim < tensor.dim():
            raise IndexError(f"dimension {dim} of a tensor with {tensor.dim()} dimensions")
    return [dim % tensor.dim() for dim in named]


def _mark(tensor: torch.Tensor, dims: int | Iterable[int] | None, mark: SizeMark) -> None:
    found = {**getattr(tensor, SIZE_MARKS, {}), **dict.fromkeys(marks_of(tensor, dims), mark)}
    setattr(tensor, SIZE_MARKS, found)


def mark_dynamic(
    tensor: torch.Tensor, dim: int | Iterable[int], min: int | None = None, max: int | None = None
) -> None:
    """Compile for any size of these dimensions; an error if the program fixes one.

    Sizes below ``min`` are compiled on their own. It is 2 unless given, or the size here if that is 0 or 1.
    """
    if max is not None and max < (min or 2):
        raise ValueError(f"no size lies between {min or 2} and {max}")
    _mark(tensor, dim, SizeMark("dynamic", min, max))


def maybe_mark_dynamic(tensor: torch.Tensor, dim: int | Iterable[int]) -> None:
    """Compile for any size of these dimensions unless the program fixes one."""
    _mark(tensor, dim, SizeMark("maybe"))


def mark_static(tensor: torch.Tensor, dim: int | Iterable[int] | None = None) -> None:
    """Compile for each size of these dimensions (all: None) on its own."""
    _mark(tensor, dim, SizeMark("static"))


def read_marks(tensor: torch.Tensor) -> dict[int, SizeMark]:
    """What was said about the sizes of a tensor: to us, or to torch.compile by its own functions of these names."""
    found: dict[int, SizeMark] = {}
    if getattr(tensor, "_has_dynamo_dim_marking", False):
        for name, kind in _OF_DYNAMO:
            found.update((dim, SizeMark(kind)) for dim in getattr(tensor, name, ()))
        for row in getattr(tensor, "_dynamo_dynamic_range", ()):
            found[row.dim] = SizeMark("dynamic", row.min, row.max)
    found.update(getattr(tensor, SIZE_MARKS, {}))
    return found
