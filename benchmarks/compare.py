"""benchmarks.compare: how far two results are apart. In: any nesting of tensors. Out: a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def tensors(result: Any) -> Iterator[Tensor]:
    """Every tensor of a result, in a fixed order; model outputs that are mappings included."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for key in result:
            yield from tensors(result[key])
    elif isinstance(result, list | tuple):
        for item in result:
            yield from tensors(item)
    elif hasattr(result, "__dataclass_fields__"):
        for name in result.__dataclass_fields__:
            yield from tensors(getattr(result, name))


def difference(actual: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest magnitude expected; infinite where they cannot be equal."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if expected.layout is not torch.strided:
        return difference(actual.to_dense(), expected.to_dense())
    if expected.numel() == 0:
        return 0.0
    if not (expected.is_floating_point() or expected.is_complex()):
        return 0.0 if torch.equal(actual, expected) else float("inf")
    kind = torch.complex128 if expected.is_complex() else torch.float64
    a, b = actual.detach().to(kind), expected.detach().to(kind)
    finite = torch.isfinite(b)
    if not torch.equal(finite, torch.isfinite(a)):
        return float("inf")
    strange_a, strange_b = a[~finite], b[~finite]
    if not torch.allclose(strange_a, strange_b, equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = b[finite].abs().max().item()
    worst = (a[finite] - b[finite]).abs().max().item()
    return worst / scale if scale > 0 else worst


def distance(actual: Any, expected: Any) -> float:
    """The largest ``difference`` over all tensors of two results of the same structure."""
    left, right = list(tensors(actual)), list(tensors(expected))
    if len(left) != len(right):
        return float("inf")
    return max((difference(a, b) for a, b in zip(left, right, strict=True)), default=0.0)


def gradient_distance(actual: list[Tensor | None], expected: list[Tensor | None]) -> float:
    """The largest difference of gradients over the largest gradient of the whole model.

    One scale for all: a gradient that is zero but for rounding has no scale of its own.
    """
    pairs = list(zip(actual, expected, strict=True))
    if any((a is None) != (b is None) for a, b in pairs):
        return float("inf")
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    scale = max((b.abs().max().item() for _, b in both if b.numel()), default=0.0)
    worst = max(((a - b).abs().max().item() for a, b in both if b.numel()), default=0.0)
    if worst != worst:
        return float("inf")
    return worst / scale if scale > 0 else worst


def excused(
    actual: list[Tensor | None], eager: list[Tensor | None], exact: list[Tensor | None]
) -> bool:
    """Whether gradients that differ from eager's are about as near to the exact ones as eager's.

    Batch norm over few elements multiplies rounding errors: eager itself may be a percent off.
    """
    error = gradient_distance([g if g is None else g.double() for g in actual], exact)
    own = gradient_distance([g if g is None else g.double() for g in eager], exact)
    return error <= 2 * own
