"""Pictures: a value as nested tuples that do not change any more, with all of it that a user can see.

Values and types, and of tensors their layout, bits, versions, hooks and gradients; which parts are one object, which
tensors lie in one memory and are views. Two pictures of equal values are equal.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import torch

_PLAIN = (int, float, str, bool, bytes, complex, type(None))


class Picture:
    """What has been seen of one value so far."""

    def __init__(self) -> None:
        self.objects: dict[int, int] = {}
        self.memories: dict[int, int] = {}
        self.kept: list[Any] = []

    def of(self, value: Any, depth: int = 0) -> Any:
        """The picture of one value."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, enum.Enum):
            return str(value)
        if isinstance(value, torch.dtype | torch.device | torch.Size):
            return str(value)
        if depth > 6:
            return type(value).__name__
        if id(value) in self.objects and not isinstance(value, tuple):
            return "seen before", self.objects[id(value)]
        self.objects[id(value)] = len(self.objects)
        self.kept.append(value)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        return self._object(value, depth + 1)

    def _object(self, value: Any, depth: int) -> Any:
        if isinstance(value, torch.nn.Module):
            own = {k: v for k, v in vars(value).items() if not k.startswith("_") or k == "__dict__"}
            named = dict(value.named_parameters()), dict(value.named_buffers())
            return type(value).__name__, *(self.of(part, depth) for part in (*named, own))
        if isinstance(value, dict):
            items = [(self.of(k, depth), self.of(v, depth)) for k, v in value.items()]
            return (type(value).__name__, *items)
        if isinstance(value, set | frozenset):
            return (type(value).__name__, *sorted(repr(self.of(v, depth)) for v in value))
        if isinstance(value, list | tuple) or hasattr(value, "popleft"):
            return (type(value).__name__, *(self.of(v, depth) for v in value))
        if dataclasses.is_dataclass(value) or (hasattr(value, "__dict__") and not callable(value)):
            return type(value).__name__, self.of(_fields(value), depth)
        return type(value).__name__

    def _tensor(self, value: torch.Tensor) -> Any:
        facts = {
            "class": type(value).__name__,
            "dtype": str(value.dtype),
            "shape": tuple(value.shape),
            "requires_grad": value.requires_grad,
            "is_leaf": value.is_leaf,
            "retains_grad": value.retains_grad,
            "hooks": len(value._backward_hooks or ()),
            "names": sorted(vars(value)) if vars(value) else (),
            "is_inference": value.is_inference(),
            # of new tensors it differs on purpose: fewer writes made them
            "version": value._version if type(value) is torch.nn.Parameter else None,
        }
        if value.layout is torch.strided and not value.is_quantized:
            memory = value.untyped_storage()._cdata
            facts |= {
                "strides": tuple(value.stride()) if value.numel() else (),
                "offset": value.storage_offset() if value.numel() else 0,
                "bits": (value.is_conj(), value.is_neg()),
                "memory": self.memories.setdefault(memory, len(self.memories)),
                "is_view": False if value.is_inference() else value._base is not None,
            }
            self.kept.append(value.untyped_storage())
        else:
            facts["layout"] = str(value.layout)
        grad = value.grad if value.is_leaf or value.retains_grad else None
        values = value.detach().clone() if not value.is_quantized else value.dequantize()
        return "tensor", tuple(facts.items()), values, self.of(grad)


def _fields(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        found = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
        return found | getattr(value, "__dict__", {})
    return dict(vars(value))


def difference(one: Any, other: Any, path: str = "") -> str | None:
    """Where two pictures first differ, or None."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return None if _same_values(one, other) else f"{path}: {other} instead of {one}"
    if isinstance(one, tuple) and isinstance(other, tuple):
        if len(one) != len(other):
            return f"{path}: {other} instead of {one}"
        pairs = enumerate(zip(one, other, strict=True))
        found = (difference(a, b, f"{path}.{_name(a, k)}") for k, (a, b) in pairs)
        return next((told for told in found if told), None)
    if isinstance(one, float) and isinstance(other, float):
        close = one == other or abs(one - other) <= 1e-5 + 1e-4 * abs(one) or one != one
        return None if close else f"{path}: {other} for {one}"
    same = type(one) is type(other) and one == other
    return None if same else f"{path}: {other!r} instead of {one!r}"


def _name(part: Any, place: int) -> str:
    """A part of a tuple by its name if it has one."""
    named = isinstance(part, tuple) and part and isinstance(part[0], str)
    return f"{place}({part[0]})" if named else str(place)


def _same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    wide = [t.to_dense().to(torch.complex128) for t in (one, other)]
    return one.shape == other.shape and torch.allclose(*wide, 1e-4, 1e-5, equal_nan=True)
