"""autograd.tangents: where the gradients of one backward come from and go to.

In: a ``Traced`` program; at call time what the engine hands to the backward of its autograd function. Out: the tangents
that are there, as the backward graph was traced for, and its gradients at the places of the program's inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch

from argand.autograd.geometry import same_layout
from argand.autograd.outputs import Traced


def _fit_tangent(
    tangent: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], wanted: tuple[int, ...]
) -> torch.Tensor:
    """The tangent with the strides the graph was traced with, its values in memory as they are."""
    if tangent._is_zerotensor():
        return torch.empty_strided(shape, wanted, dtype=dtype).zero_()
    if tangent.is_neg() or tangent.is_conj():
        tangent = tangent.resolve_conj().resolve_neg()
    stride = tangent.stride()
    if stride == wanted or same_layout(shape, stride, wanted):
        return tangent
    return torch.empty_strided(shape, wanted, dtype=dtype).copy_(tangent)


@final
class Places:
    """Where gradients come from and go to."""

    def __init__(self, traced: Traced) -> None:
        self.inputs = len(traced.inputs)
        fakes = [(fake.dtype, tuple(fake.shape), fake.stride()) for fake in traced.tangent_fakes]
        self.sizes = traced.sizes
        if traced.sizes is not None:
            fakes = traced.sizes.table.expressed(fakes)
        self.tangents = tuple(zip(traced.tangents, fakes, strict=True))
        self.every = (1 << len(self.tangents)) - 1
        self.constant = [k for k in range(traced.results) if k not in set(traced.tangents)]
        self.gradients = tuple(zip(traced.differentiable, traced.gradient_needs, strict=True))
        tensors = [k for k, value in enumerate(traced.inputs) if isinstance(value, torch.Tensor)]
        # among those autograd knows of
        self.edges = tuple(tensors.index(k) for k in traced.differentiable)
        unread = {m.index for m in traced.effects.mutations} - set(traced.copied_inputs)
        read = [
            (k, needs) for k, needs in traced.gradient_reads if k < self.inputs and k not in unread
        ]
        self.checked = [
            (k, needs) for k, needs in read if isinstance(traced.inputs[k], torch.Tensor)
        ]

    def wanted(self, edges: Sequence[Any]) -> int:
        """Bits of the gradients that the engine will use: ``autograd.grad`` may ask for few."""
        return sum(1 << bit for bit, edge in enumerate(self.edges) if _is_wanted(edges[edge][0]))

    def gather(
        self, grads: Sequence[Any], opened: Mapping[Any, int] | None
    ) -> tuple[int, list[torch.Tensor]]:
        """(bits of the tangents that are there, those tangents as the graph wants them)."""
        present, found = 0, []
        for bit, (place, fake) in enumerate(self.tangents):
            if grads[place] is not None:
                present |= 1 << bit
                layout = fake if opened is None else self.sizes.resolved(fake, opened)
                found.append(_fit_tangent(grads[place], *layout))
        return present, found

    def fill(
        self, tangents: Sequence[torch.Tensor], present: int, opened: Mapping[Any, int] | None
    ) -> list[torch.Tensor]:
        """All tangents, with zeros for those that are not there."""
        given = iter(tangents)
        filled = []
        for bit, (_, fake) in enumerate(self.tangents):
            if present >> bit & 1:
                filled.append(next(given))
            else:
                dtype, *layout = fake if opened is None else self.sizes.resolved(fake, opened)
                filled.append(torch.empty_strided(*layout, dtype=dtype).zero_())
        return filled

    def scatter(self, gradients: Sequence[Any], present: int) -> tuple[Any, ...]:
        """One gradient per input; None where only absent tangents could have given one."""
        answer: list[Any] = [None] * self.inputs
        for (place, needs), gradient in zip(self.gradients, gradients, strict=True):
            if needs & present:
                answer[place] = gradient
        return tuple(answer)


def _is_wanted(node: Any) -> bool:
    try:
        return node is not None and torch._C._will_engine_execute_node(node)
    except RuntimeError:  # what it says of a leaf that ``autograd.grad`` asks for
        return True
