"""autograd.aliasing: who shares memory with whom, and the current graph value of every region.

Fakes are views for real, so the storage of a fake says what it aliases. Each storage is a ``AliasedStorage``
with one current value (a graph node), each geometry seen in it a ``StorageView``. A read of a region gives
the node of its current value, made by replaying its view step when the memory changed; a write walks
up the steps and leaves a new value for the whole memory. So in-place programs become functional
graphs, and what two tensors share is decided by memory alone, as in eager.
"""

from __future__ import annotations

import functools
from typing import Any, Final, final

import torch
from torch.fx import Node

from argand.autograd.geometry import (
    Geometry,
    ViewStep,
    aten,
    bare,
    can_undo,
    dense_order,
    geometry_of,
    same_layout,
    undo_step,
)
from argand.autograd.outputs import Untraceable
from argand.ops.layout import extent
from argand.ops.overlap import is_within, may_overlap

# No value of a graph has a conjugate or negative bit: kernels read memory as it is.
_PHYSICAL: Final = {
    aten._conj.default: aten._conj_physical.default,
    aten._neg_view.default: aten.neg.default,
}


def _same(value: Node) -> Node:
    return value


_CONTIGUOUS: Final = {"memory_format": torch.contiguous_format}


def _strided_steps(whole: torch.Tensor, view: torch.Tensor) -> list[ViewStep]:
    """Steps from the root of a memory to a view known by its strides and offset alone.

    Offsets in graphs count from the start of a value. An absolute one, as `as_strided` takes it, would tell where
    the value lies in its storage: that of an input is another one in each call, and compilers may drop copies.
    """
    if (view.dtype, view.is_conj(), view.is_neg()) != (
        whole.dtype,
        whole.is_conj(),
        whole.is_neg(),
    ):
        raise Untraceable("a view of another dtype without a view op")
    size, stride = list(view.shape), list(view.stride())
    shift = view.storage_offset() - whole.storage_offset()
    end = shift + extent(size, stride)
    if shift < 0 or end > extent(whole.shape, whole.stride()):
        raise Untraceable("a view of memory beyond the tensor it is made of")
    func, last = aten.as_strided.default, ViewStep(aten.as_strided.default, (size, stride), {})
    if not shift:
        return [last]
    return [
        ViewStep(func, ([end], [1]), {}),
        ViewStep(aten.slice.Tensor, (0, shift, end), {}),
        last,
    ]


@final
class StorageView:
    """One geometry in a memory."""

    __slots__ = ("ambiguous", "fake", "memory", "node", "origin", "parent", "step", "version")

    def __init__(
        self,
        memory: AliasedStorage,
        fake: torch.Tensor,
        parent: StorageView | None,
        step: ViewStep | None,
    ) -> None:
        self.memory, self.fake, self.parent, self.step = memory, fake, parent, step
        self.origin = (parent, step, 0)  # the view as the program made it, and when
        # whether the program made views of other elements that lie in the same place
        self.ambiguous = False
        self.node: Node | None = None
        self.version = -1  # the version of the memory that `node` holds

    def made_by(self) -> tuple[StorageView | None, ViewStep | None]:
        """How to replay the view on real tensors, with the history eager gives it.

        After a write to the memory eager derives the history of old views anew, from the base.
        """
        parent, step, version = self.origin
        return (parent, step) if version == self.memory.version else (self.parent, self.step)

    def is_made_by(self, parent: StorageView, step: ViewStep) -> bool:
        """Whether a view of the same place is one of the same elements; False where that is not sure."""
        if parent is self:
            return step.func in (aten.alias.default, aten.detach.default)
        return parent is self.parent and step == self.step


@final
class AliasedStorage:
    """One storage. ``version`` counts the writes recorded."""

    __slots__ = ("regions", "root", "source", "version")

    def __init__(self, fake: torch.Tensor, node: Node, source: str) -> None:
        self.version = 0
        self.source = source  # "input", "constant" or "fresh"
        self.root = StorageView(self, fake, None, None)
        self.root.node, self.root.version = node, 0
        self.regions: dict[Geometry, StorageView] = {geometry_of(fake): self.root}


@final
class Aliasing:
    """The memories of one trace. ``emit(func, args, kwargs, val)`` records a node."""

    def __init__(self, emit: Any) -> None:
        self.emit = emit
        self.memories: dict[int, AliasedStorage] = {}

    def add(self, fake: torch.Tensor, node: Node, source: str = "fresh") -> StorageView:
        """A new memory whose root region is ``fake``, with the value ``node``."""
        memory = AliasedStorage(fake, node, source)
        # the region holds the fake, hence the storage: its address is not used again
        self.memories[fake.untyped_storage()._cdata] = memory
        return memory.root

    def find(self, tensor: torch.Tensor) -> StorageView | None:
        """The region of a tensor, or None if its storage was never seen."""
        memory = self.memories.get(tensor.untyped_storage()._cdata)
        if memory is None:
            return None
        geometry = geometry_of(tensor)
        region = memory.regions.get(geometry)
        if region is None:  # made behind the dispatcher's back: its geometry says it all
            region = self._strided(memory, tensor)
        return region

    def view(self, parent: StorageView, step: ViewStep, fake: torch.Tensor) -> StorageView:
        """Register the result of a view op; nothing is recorded before somebody reads it."""
        regions = parent.memory.regions
        geometry = geometry_of(fake)
        if geometry not in regions:
            regions[geometry] = StorageView(parent.memory, fake.detach(), parent, step)
        region = regions[geometry]
        if not region.ambiguous and not region.is_made_by(parent, step):
            region.ambiguous = may_overlap(region.memory.root.fake)
        return region

    def _strided(self, memory: AliasedStorage, fake: torch.Tensor) -> StorageView:
        """A region known by its strides and offset alone, as a view of the root."""
        region = memory.root
        if region.fake.is_complex() and fake.dtype == region.fake.dtype.to_real():
            region = self.view(
                region, ViewStep(aten.view_as_real.default, (), {}), torch.view_as_real(region.fake)
            )
        for step in _strided_steps(region.fake, fake):
            region = self.view(region, step, step.replay(region.fake))
        return region

    def read(self, region: StorageView) -> Node:
        """The node of a region's current value."""
        node = region.node
        if node is not None and region.version == region.memory.version:
            return node
        assert region.parent is not None and region.step is not None
        step, like = region.step, bare(region.fake)
        if step.func is aten.as_strided.default and region.memory.version:
            self._check_gaps(region)
        base = self.read(region.parent)
        physical = _PHYSICAL.get(step.func)
        if physical is None:
            node = self.emit(step.func, (base, *step.tail), step.kwargs, like)
        else:
            node = self.fit(self.emit(physical, (base,)), like)
        region.node, region.version = node, region.memory.version
        return node

    def _check_gaps(self, region: StorageView) -> None:
        """A value that was written has its elements, not what lies between them in the caller's memory."""
        whole = region.memory.root.fake
        if dense_order(tuple(whole.shape), whole.stride()) is None and not is_within(
            whole, region.fake
        ):
            raise Untraceable("a view of memory between the elements of a tensor that is written")

    def write(self, region: StorageView, value: Node) -> None:
        """Give a region a new value (of any strides and dtype; shapes must broadcast)."""
        memory = region.memory
        version = memory.version
        path = [(region, self.fit(value, region.fake))]
        while (parent := path[-1][0].parent) is not None:
            child, node = path[-1]
            assert child.step is not None
            if child.step.func is aten.as_strided.default:
                self._check_gaps(child)
            if not can_undo(child.step, child.fake, parent.fake):
                path = [path[0], (memory.root, self._scatter(*path[0]))]
                break
            read = functools.partial(self.read, parent)
            result = undo_step(child.step, node, parent.fake, self.emit, read)
            path.append((parent, self.fit(result, parent.fake)))
        memory.version = version + 1
        for passed, current in path:
            passed.node, passed.version = current, version + 1

    def _scatter(self, region: StorageView, node: Node) -> Node:
        """The whole memory after a write to a region, by geometry alone."""
        root = region.memory.root
        steps = _strided_steps(root.fake, region.fake)
        whole = self.read(root)
        if whole.op != "call_function":
            whole = self.restride(whole, root.fake)  # in memory of its own
        parents = [whole]
        for step in steps[:-1]:
            parents.append(self.emit(step.func, (parents[-1], *step.tail), step.kwargs))
        for step, parent in zip(reversed(steps), reversed(parents), strict=True):
            fake = parent.meta["val"]
            node = undo_step(step, node, fake, self.emit, functools.partial(_same, parent))
        return node

    def fit(self, node: Node, like: torch.Tensor) -> Node:
        """A node with the dtype, shape and strides of ``like``, as a write into it leaves them."""
        value = node.meta["val"]
        if value.dtype != like.dtype:
            node = self.emit(aten._to_copy.default, (node,), {"dtype": like.dtype})
            value = node.meta["val"]
        if value.shape != like.shape:
            node = self.emit(aten.expand.default, (node, list(like.shape)))
            value = node.meta["val"]
        if same_layout(like.shape, value.stride(), like.stride()):
            return node
        return self.restride(node, like)

    def restride(self, node: Node, like: torch.Tensor) -> Node:
        """A copy of a node's value with the strides of ``like``."""
        shape, stride = tuple(like.shape), like.stride()
        order = dense_order(shape, stride)
        if order is None:
            empty = (node, list(shape), list(stride))
            target = self.emit(aten.new_empty_strided.default, empty)
            return self.emit(aten.copy.default, (target, node))
        if order != list(range(len(shape))):
            node = self.emit(aten.permute.default, (node, order))
        node = self.emit(aten.clone.default, (node,), _CONTIGUOUS)
        if order != list(range(len(shape))):
            inverse = [order.index(dim) for dim in range(len(shape))]
            node = self.emit(aten.permute.default, (node, inverse))
        return node
