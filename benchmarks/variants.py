"""benchmarks.variants: one sample of an operator in other memory. In: a tensor. Out: one with the same values elsewhere.

What a sweep tries beside the samples as torch gives them; expanded tensors repeat their first slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor


def _offset(tensor: Tensor) -> Tensor:
    room = torch.empty(tensor.numel() + 3, dtype=tensor.dtype)
    return room[3:].view(tensor.shape).copy_(tensor)


def _expanded(tensor: Tensor) -> Tensor:
    return tensor[:1].clone().expand(tensor.shape) if tensor.dim() and tensor.shape[0] else tensor


def _transposed(tensor: Tensor) -> Tensor:
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def _strided(tensor: Tensor) -> Tensor:
    return torch.stack([tensor, tensor], -1)[..., 1] if tensor.dim() else tensor


def _negative(tensor: Tensor) -> Tensor:
    return (
        torch._neg_view(tensor.neg())
        if tensor.is_floating_point() or tensor.is_complex()
        else tensor
    )


def _conjugate(tensor: Tensor) -> Tensor:
    return tensor.conj().resolve_conj().conj() if tensor.is_complex() else tensor


VARIANTS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "offset": _offset,
    "expanded": _expanded,
    "transposed": _transposed,
    "strided": _strided,
    "negative": _negative,
    "conjugate": _conjugate,
}


def dressed(tensor: Tensor, variant: str) -> Tensor:
    """A tensor in the memory a variant asks for; as it is where that says nothing."""
    if variant not in VARIANTS or tensor.layout is not torch.strided:
        return tensor
    with torch.no_grad():
        return VARIANTS[variant](tensor)
