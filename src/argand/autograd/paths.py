"""autograd.paths: how an output is made of the tensor it shares memory with.

In: two fakes of one storage. Out: the view steps from the one to the other, to be replayed on real tensors: the views
the program made, where they are known, so that autograd sees eager's history; else strides and offsets alone.
"""

from __future__ import annotations

import torch

from argand.autograd.geometry import (
    ViewStep,
    aten,
    bare,
    bit_steps,
    geometry_of,
    retyped_view,
    shifted_view,
)
from argand.autograd.outputs import Untraceable
from argand.autograd.recorder import AtenRecorder


def path_between(
    recorder: AtenRecorder, base: torch.Tensor, view: torch.Tensor
) -> tuple[ViewStep, ...]:
    """View steps from one tensor to another on the same storage."""
    if view.requires_grad and recorder.region_of(view).ambiguous:
        raise Untraceable(
            "a view of a tensor whose elements share memory: its place does not tell its history"
        )
    if geometry_of(base) == geometry_of(view):
        return ()
    if base.is_contiguous() and base.numel() == view.numel() and base.dtype == view.dtype:
        whole = ViewStep(aten.view.default, (list(view.shape),), {})
        if geometry_of(whole.replay(base.detach())) == geometry_of(view):
            return (whole,)
    start, region = recorder.region_of(base), recorder.region_of(view)
    steps: list[ViewStep] = []
    while region is not start:
        if view.requires_grad and region.ambiguous:
            raise Untraceable("a view of a view whose place does not tell its history")
        parent, step = region.made_by()
        if parent is None or step is None:
            undone = tuple(reversed(bit_steps(base)))  # each of them is its own inverse
            if undone and recorder.region_of(bare(base)) is region:
                return (*undone, *reversed(steps))
            return _strided_path(base, view)
        steps.append(step)
        region = parent
    return tuple(reversed(steps))


def _strided_path(base: torch.Tensor, view: torch.Tensor) -> tuple[ViewStep, ...]:
    """The same by strides and offsets alone."""
    if base.is_conj() != view.is_conj() or base.is_neg() != view.is_neg():
        raise Untraceable("two outputs share memory, and not their conjugate or negative bits")
    place = (list(view.shape), list(view.stride()))
    if base.dtype == view.dtype:
        return (
            ViewStep(shifted_view, (*place, view.storage_offset() - base.storage_offset()), {}),
        )
    start, own = view.storage_offset() * view.itemsize, base.storage_offset() * base.itemsize
    return (ViewStep(retyped_view, (*place, start - own, view.dtype), {}),)
