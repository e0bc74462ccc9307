"""capture.outside.wrappers: tensors that hold other tensors and have a `__torch_dispatch__` of their own.

In: such a tensor of the user's. Out: one of the same class over fakes, with guards on all that it holds; or None for
one whose state is more than tensors and constants, or that takes part in training.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from argand.capture.outside.kinds import is_constant
from argand.capture.outside.reader import WorldReader
from argand.runtime import _native
from argand.runtime.guards import GuardKind, tensor_spec
from argand.runtime.sources import DictOf, Source


def is_wrapper(kind: type) -> bool:
    """Whether a class says how its tensors are taken apart and put together again."""
    parts = ("__tensor_flatten__", "__tensor_unflatten__")
    overrides = (
        getattr(kind, "__torch_dispatch__", None) is not torch._C._disabled_torch_dispatch_impl
    )
    return (
        issubclass(kind, torch.Tensor) and overrides and all(hasattr(kind, name) for name in parts)
    )


def read_wrapper(world: WorldReader, source: Source, raw: Any) -> torch.Tensor | None:
    """The trace's view of a wrapper from outside."""
    if not is_wrapper(type(raw)) or type(raw).__module__.partition(".")[0] == "torch":
        return None
    if raw.requires_grad or world.sizes.active or raw.layout is not torch.strided:
        return None
    names, context = raw.__tensor_flatten__()
    held = dict(raw.__dict__)
    if not all(type(held.get(name)) is torch.Tensor for name in names):
        return None
    if not _is_data(context) or not all(
        _is_data(value) for name, value in held.items() if name not in names
    ):
        return None
    world.guard(GuardKind.TENSOR, source, tensor_spec(raw))
    world.guard(GuardKind.DICT_KEYS, world.child(DictOf, source, None), tuple(held))
    inner = {name: world.dict_attribute(source, name, value) for name, value in held.items()}
    parts = {name: inner[name] for name in names}
    if any(id(part) not in world.inputs or part.requires_grad for part in parts.values()):
        return None
    fake: torch.Tensor = type(raw).__tensor_unflatten__(parts, context, raw.size(), raw.stride())
    # Constants, but lists and settings of the trace: reads of them are guarded.
    fake.__dict__.update({name: value for name, value in inner.items() if name not in names})
    world.keep_off_disk(f"a tensor of the class {type(raw).__name__}")
    world.wrappers.add(id(fake))
    world.register(source, raw, fake)
    return fake


def _is_data(value: Any) -> bool:
    """Whether a value is a constant, or a list, dict or dataclass of such."""
    if is_constant(value):
        return True
    if type(value) in (list, tuple):
        return all(map(_is_data, value))
    if type(value) is dict:
        return all(isinstance(key, str) and _is_data(item) for key, item in value.items())
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and all(map(_is_data, vars(value).values()))
    )


def is_whole(value: Any) -> bool:
    """Whether a wrapper put together again from its parts holds all that it holds now."""
    names, context = value.__tensor_flatten__()
    parts = {name: getattr(value, name) for name in names}
    again = type(value).__tensor_unflatten__(parts, context, value.size(), value.stride())
    rest = {name: held for name, held in value.__dict__.items() if name not in names}
    return is_constant(tuple(rest.values())) and rest == {
        k: v for k, v in again.__dict__.items() if k not in names
    }


@_native.disabled  # Python code of the user's, but no part of the program
def rebuilt(kind: Any, parts: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
    """A wrapper put together of the results of a graph."""
    return kind.__tensor_unflatten__(parts, context, size, stride)
