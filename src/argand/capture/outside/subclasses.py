"""capture.outside.subclasses: tensors of other classes, and whether a call on them is their own business.

Out: the state of the overrides of one trace; a tensor of a subclass as graphs take it.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, final

import torch

from argand.capture.sizes.floats import Float
from argand.capture.sizes.values import OpenSize

_DISABLED: Final = torch._C._disabled_torch_function_impl
_PLAIN: Final = frozenset(
    {
        torch.Tensor,
        torch.nn.Parameter,
        int,
        float,
        bool,
        str,
        type(None),
        slice,
        OpenSize,
        Float,
        types.FunctionType,
    }
    | {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, type(...)}
)


@final
class Overrides:
    """The overrides of one trace: how deep below them it is, and the modes that the program entered."""

    def __init__(self) -> None:
        # subclasses are plain tensors, as in `torch._C.DisableTorchFunctionSubclass`
        self.off = int(not torch._C._is_torch_function_enabled())
        self.modes: list[Any] = []
        self.depth = 0  # overrides that are being interpreted

    @contextlib.contextmanager
    def disabled(self) -> Iterator[None]:
        """Below the overrides of subclasses."""
        self.off += 1
        try:
            yield
        finally:
            self.off -= 1

    def apply(self, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether a call with these arguments is an override's."""
        return bool(self.modes) or (
            not self.off and any(map(_overrides, (*args, *kwargs.values())))
        )


def _overrides(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return False
    if kind is tuple or kind is list:
        return any(map(_overrides, value))
    return (
        not isinstance(value, type)
        and getattr(kind, "__torch_function__", _DISABLED) is not _DISABLED
    )


def is_subclass(kind: type) -> bool:
    """Whether tensors of a class are plain ones below their overrides."""
    return (
        issubclass(kind, torch.Tensor)
        and not issubclass(kind, torch.nn.parameter.UninitializedTensorMixin)
        and getattr(kind, "__torch_dispatch__", None) is torch._C._disabled_torch_dispatch_impl
    )


def plain(tensor: Any) -> Any:
    """A tensor as graphs take it: one of a subclass as a plain tensor over the same memory."""
    if type(tensor) in _PLAIN or not isinstance(tensor, torch.Tensor):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def of_class(tensor: torch.Tensor, kind: Any) -> Any:
    """A result of a graph as a tensor of a subclass."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(kind)


def _not_a_leaf(fake: torch.Tensor) -> torch.Tensor:
    """The same with a history. `clone` keeps the strides of a dense tensor only."""
    made = fake.clone()
    if made.stride() == fake.stride() or not fake.numel():
        return made
    last = sum((n - 1) * stride for n, stride in zip(fake.shape, fake.stride(), strict=True))
    flat = fake.detach().as_strided((last + 1,), (1,)).requires_grad_().clone()
    return flat.as_strided(fake.shape, fake.stride())


def as_it_was_made(raw: torch.Tensor) -> AbstractContextManager[object]:
    """Where the program meets an ordinary tensor in inference mode, its fake is an ordinary one."""
    outside = torch.is_inference_mode_enabled() and not raw.is_inference()
    return torch.inference_mode(False) if outside else contextlib.nullcontext()


def like(raw: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """A fake with a history if the tensor has one, and of its class."""
    if raw.requires_grad and not raw.is_leaf:
        # it has a history, whatever is recorded where the program meets it
        with torch.enable_grad():
            fake = _not_a_leaf(fake)  # in-place operators are allowed on it
    kind: Any = type(raw)
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(fake.detach(), requires_grad=raw.requires_grad)
    if issubclass(kind, torch.nn.Parameter):
        made: torch.Tensor = torch.Tensor._make_subclass(kind, fake.detach(), fake.requires_grad)
        return made
    return fake if kind is torch.Tensor else fake.as_subclass(kind)
