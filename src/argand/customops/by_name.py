"""customops.by_name: the methods of an operator as functions of its name.

They work on operators defined here and on those somebody defined with torch.library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from argand.customops.definition import CustomOp, get_op


def _resolve(op: str | CustomOp) -> CustomOp:
    return op if isinstance(op, CustomOp) else get_op(op)


def impl(
    op: str | CustomOp, device_types: str | Iterable[str] = ("cpu", "cuda"), function: Callable[..., Any] | None = None
) -> Any:
    """Register an implementation for devices."""
    return _resolve(op).impl(device_types, function)


def impl_factory(op: str | CustomOp, function: Callable[..., Any] | None = None) -> Any:
    """Register the implementation of an operator without tensor arguments."""
    return _resolve(op).impl_factory(function)


def impl_fake(op: str | CustomOp, function: Callable[..., Any] | None = None) -> Any:
    """Register what an operator does on tensors without data."""
    return _resolve(op).impl_fake(function)


impl_abstract = impl_fake
register_fake = impl_fake
register_kernel = impl


def impl_save_for_backward(op: str | CustomOp, function: Callable[..., Any] | None = None) -> Any:
    """Register what the backward of an operator needs."""
    return _resolve(op).impl_save_for_backward(function)


def impl_backward(
    op: str | CustomOp,
    function: Callable[..., Any] | None = None,
    *,
    output_differentiability: Sequence[bool] | None = None,
) -> Any:
    """Register the gradients of an operator by argument name."""
    register = functools.partial(_resolve(op).impl_backward, output_differentiability=output_differentiability)
    return register(function)


def register_autograd(
    op: str | CustomOp, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
) -> None:
    """Give an operator a gradient formula on positions."""
    _resolve(op).register_autograd(backward, setup_context=setup_context)


def impl_vmap(op: str | CustomOp, function: Callable[..., Any] | None = None) -> Any:
    """Register how an operator acts under ``torch.vmap``."""
    return _resolve(op).impl_vmap(function)


def impl_autocast(op: str | CustomOp, device_type: str, cast_inputs: torch.dtype) -> None:
    """Register the dtype an operator's floating inputs get under autocast."""
    _resolve(op).impl_autocast(device_type, cast_inputs)
