"""runtime.strides: how the strides of a tensor follow from its sizes."""

from __future__ import annotations

import torch


def inner_first(tensor: torch.Tensor) -> list[int]:
    """Dimensions by their strides; of those with one stride, those of size one are the outer ones."""
    return sorted(range(tensor.dim()), key=lambda i: (tensor.stride(i), tensor.size(i) == 1, -i))


def next_inside(tensor: torch.Tensor) -> tuple[int | None, ...]:
    """For each dimension the one that it makes steps over: the next inside that takes memory; None: there is none."""
    strides, found = tensor.stride(), list[int | None]([None] * tensor.dim())
    last: int | None = None
    for i in inner_first(tensor):
        found[i] = last
        if tensor.size(i) != 1 and strides[i]:
            last = i
    return tuple(found)


def derived_strides(tensor: torch.Tensor) -> tuple[int | None, ...]:
    """For each dimension the one whose size and stride make its stride, as in a dense tensor."""
    strides, inner = tensor.stride(), list[int]()
    found: list[int | None] = [None] * tensor.dim()
    for i in inner_first(tensor):  # those of size one may stand between any two others
        makers = inner if tensor.size(i) == 1 else inner[-1:]
        found[i] = next(
            (j for j in makers if strides[i] == strides[j] * max(tensor.size(j), 1)), None
        )
        if tensor.size(i) != 1:
            inner.append(i)
    return tuple(found)
