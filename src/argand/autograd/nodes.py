"""autograd.nodes: what a node of the recorder is called, computes and is compared by.

In: the target and the arguments of a call on nodes. Out: its name, its fake result, a hashable form of its arguments.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from argand.autograd import functional
from argand.ops.copied import map_nested
from argand.ops.fakes import infer


def frozen(value: Any) -> Any:
    """An argument as part of a key; what has no hash makes a key without one."""
    kind = type(value)
    if kind is Node or kind is int or value is None:
        return value
    if kind is list or kind is tuple:
        return (kind, *map(frozen, value))
    if kind is float:
        return (float, repr(value))  # 0.0 is not -0.0, and 1.0 is not 1
    return (kind, value)


def name_of(func: Any) -> str:
    """What nodes of a target are called."""
    if func is operator.getitem:
        return "getitem"
    name = getattr(func, "_opname", None) or func.__name__
    return str(name)


def hold(value: Any) -> Any:
    """A tensor object of our own over the memory of a fake."""
    return value.detach() if isinstance(value, torch.Tensor) else value


def fresh_like(value: Any) -> Any:
    """A fake of the same shape, strides and dtype in memory of its own; what is no tensor as it is."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return value


def value_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The fake result of a call on nodes."""
    fakes = map_nested(_fake_of_node, args)
    named = {name: map_nested(_fake_of_node, value) for name, value in kwargs.items()}
    if functional.is_effect(func):
        return None
    if func.is_view:
        return func(*fakes, **named)
    return infer(func, tuple(fakes), named)


def _fake_of_node(value: Any) -> Any:
    return value.meta["val"] if isinstance(value, Node) else value
