"""Inputs of random programs: all types, odd layouts, odd numbers, by name, so that a program is a text."""

from __future__ import annotations

import torch

FLOATS = ("float32", "float32", "float32", "float64", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
COMPLEX = ("complex64", "complex128")
RARE = ("uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2")
KINDS = (
    *(
        "plain",
        "plain",
        "plain",
        "slice",
        "steps",
        "transposed",
        "expanded",
        "overlapping",
        "negative",
    ),
    *("conjugate", "odd", "large", "last", "flat", "zeros", "offset"),
)


def tensor(
    shape: tuple[int, ...], dtype: str, kind: str = "plain", seed: int = 0, grad: bool = False
) -> torch.Tensor:
    """A tensor of a shape and type, laid out in some way."""
    made = _laid_out(shape, getattr(torch, dtype), kind, torch.Generator().manual_seed(seed))
    if grad and (made.is_floating_point() or made.is_complex()):
        made = made.detach().requires_grad_()
    return made


def _values(
    shape: tuple[int, ...], dtype: torch.dtype, random: torch.Generator, kind: str = ""
) -> torch.Tensor:
    numbers = torch.randn(shape, generator=random, dtype=torch.float64)
    if kind == "odd" and numbers.numel():
        for k, value in enumerate((float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0)):
            numbers.view(-1)[(3 * k + 1) % numbers.numel()] = value
    if kind == "large":
        numbers = numbers * 1e4
    if kind == "zeros":
        numbers = numbers * 0
    if kind == "whole":
        numbers = numbers.round()
    if kind == "edge":
        return _edges(numbers, dtype)
    if dtype.is_complex:
        return torch.complex(numbers, torch.randn(shape, generator=random, dtype=torch.float64)).to(
            dtype
        )
    if dtype is torch.bool:
        return numbers > 0
    if not dtype.is_floating_point:
        numbers = (numbers.nan_to_num(0, 3, -3) * 3).round().clamp(-100, 100)
        return (numbers.abs() if dtype.is_signed is False else numbers).to(dtype)
    return numbers.to(dtype)


def _edges(numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values at the limits of a type, in some order, and plain ones between."""
    if dtype is torch.bool:
        return numbers > 0
    info = torch.finfo(dtype) if dtype.is_floating_point or dtype.is_complex else None
    if info is None:
        limits = torch.iinfo(dtype)
        found: list[float] = [limits.min, limits.max, 0, 1, 2, limits.max - 1, limits.min + 1]
    else:
        small = [info.tiny, -info.tiny / 4, info.eps, 1 + info.eps, -0.0]
        found = [info.max, info.min, *small, 2.5, -3.0, float("inf"), float("nan")]
    order = numbers.reshape(-1).argsort().tolist()
    chosen = [found[k % len(found)] for k in order]
    if not order:
        return torch.empty(numbers.shape, dtype=dtype)
    return torch.tensor(chosen, dtype=dtype).reshape(numbers.shape)


def _laid_out(
    shape: tuple[int, ...], dtype: torch.dtype, kind: str, random: torch.Generator
) -> torch.Tensor:
    rank = len(shape)
    if kind == "slice" and rank:
        return _values((shape[0] + 3, *shape[1:]), dtype, random)[2 : 2 + shape[0]]
    if kind == "offset":
        return _values((5, *shape), dtype, random)[3]
    if kind == "steps" and rank:
        return _values((*shape[:-1], 2 * shape[-1]), dtype, random)[..., ::2]
    if kind == "transposed" and rank > 1:
        return _values((*shape[:-2], shape[-1], shape[-2]), dtype, random).transpose(-1, -2)
    if kind == "expanded" and rank:
        return _values((1, *shape[1:]), dtype, random).expand(shape)
    if kind == "overlapping" and rank == 1 and shape[0]:
        return _values((shape[0] + 2,), dtype, random).unfold(0, 3, 1)[:, 1]
    if kind == "negative" and dtype in (torch.float32, torch.float64):
        wide = torch.complex64 if dtype is torch.float32 else torch.complex128
        return _values(shape, wide, random).conj().imag
    if kind == "conjugate" and dtype in (torch.complex64, torch.complex128):
        return _values(shape, dtype, random).conj()
    if kind == "last" and rank == 4:
        return _values(shape, dtype, random).to(memory_format=torch.channels_last)
    return _values(shape, dtype, random, kind)
