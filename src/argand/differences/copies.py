"""differences.copies: the inputs of a graph once more, to be computed with and written to.

In: inputs. Out: `Copies`: tensors with the same metadata, bits and shared memory, in memory of their own, and the leaves
that gradients of them arrive at. What cannot be copied so (sparse, quantized, wrapped) is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Copies(NamedTuple):
    """Inputs for one run."""

    values: list[Any]  # to call with
    leaves: list[torch.Tensor | None]  # for each, where its gradient arrives


def refusal(values: Sequence[Any]) -> str:
    """Why some inputs cannot be copied, "" if they can."""
    for value in values:
        if not isinstance(value, torch.Tensor):
            continue
        if type(value) not in _PLAIN:
            return f"a tensor of type {type(value).__name__}"
        if value.layout is not torch.strided or value.device.type != "cpu" or value.is_quantized:
            return "a tensor that is not strided, or not on the CPU"
        if value.is_conj() or value.is_neg():
            return "a tensor with a lazy conjugate or negative"
    return ""


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def copy_inputs(
    values: Sequence[Any], change: Callable[[torch.Tensor], torch.Tensor] = _same
) -> Copies:
    """Copies of inputs; ``change`` is applied to the memory of each, once, and may give it another type."""
    memories: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    made: list[Any] = []
    leaves: list[torch.Tensor | None] = []
    for value in values:
        if not isinstance(value, torch.Tensor):
            made.append(value)
            leaves.append(None)
            continue
        given, leaf = _copy(value, memories, change)
        made.append(given)
        leaves.append(leaf)
    return Copies(made, leaves)


def _copy(
    tensor: torch.Tensor,
    memories: dict[tuple[int, torch.dtype], torch.Tensor],
    change: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    at = (tensor.untyped_storage()._cdata, tensor.dtype)
    with torch.inference_mode(False), torch.no_grad():
        if at not in memories:
            elements = tensor.untyped_storage().nbytes() // tensor.element_size()
            whole = tensor.detach().as_strided((elements,), (1,), 0)
            memories[at] = change(whole.clone())
        copied = memories[at].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        if not tensor.requires_grad:
            return copied.detach(), None
        leaf = copied.detach().requires_grad_(True)
    if tensor.is_leaf:
        return leaf, leaf
    with torch.enable_grad():
        inner = WithHistory.apply(leaf)
    return inner, leaf


class WithHistory(torch.autograd.Function):
    """A tensor with a history, over the same memory: it may be written to, which a leaf may not."""

    @staticmethod
    def forward(leaf: torch.Tensor) -> torch.Tensor:
        """The same memory."""
        return leaf.detach()

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: Any) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        """The same gradient."""
        return gradients[0]


def in_double(memory: torch.Tensor) -> torch.Tensor:
    """Memory in double precision."""
    if memory.dtype.is_complex:
        return memory.to(torch.complex128)
    return memory.double() if memory.dtype.is_floating_point else memory


def moved_a_bit(memory: torch.Tensor) -> torch.Tensor:
    """Memory with every other number moved by one unit in the last place."""
    if not memory.dtype.is_floating_point:
        return memory
    sign = torch.ones(memory.shape, dtype=memory.dtype)
    sign[::2] = -1
    return (
        torch.nextafter(memory, sign * torch.inf)
        if memory.dtype is not torch.float16
        else memory * (1 + sign * 2**-11)
    )
