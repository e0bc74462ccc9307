"""native.kept: what follows from weights alone and is kept from call to call.

In: the work of a plan. Out: ``KeptWork``: convolutions whose packed weights are kept, kernels that compute what goes into
them (scales and biases of a folded batch norm), and the inputs to watch. Everything else runs at each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from argand.native.codegen.llvm.convolutions import ConvolutionCall
from argand.native.codegen.llvm.module import KernelCall, Work
from argand.native.ir.strides import source_of
from argand.native.ir.tensor import Node, NodeKind
from argand.native.schedule.demand import Demand
from argand.sizes.expressions import SizeInt


class KeptWork(NamedTuple):
    """What is kept: packed weights, kernels, the values these write; and the inputs it all comes from."""

    packed: frozenset[ConvolutionCall] = frozenset()
    kernels: frozenset[KernelCall] = frozenset()
    values: frozenset[Node] = frozenset()
    watched: tuple[Node, ...] = ()


def find_kept(demand: Demand, work: Sequence[Work], returned: set[Node]) -> KeptWork:
    """Decide what is kept; nothing where the graph writes to its inputs."""
    convolutions = [item for item in work if isinstance(item, ConvolutionCall)]
    if not convolutions or demand.writes or demand.placed:
        return KeptWork()
    search = _Search(_producers(work), returned)
    packed = []
    for item in convolutions:
        leaves = [source_of(o) for o in demand.inputs(item.node)[1:]]
        before = search.state()
        if all(map(search.is_steady, leaves)):
            packed.append(item)
        else:
            search.restore(before)
    values = {
        owner
        for kernel in search.kernels
        for owner in kernel.owners
        if search.producers.get(owner) is kernel
    }
    return KeptWork(
        frozenset(packed), frozenset(search.kernels), frozenset(values), tuple(search.watched)
    )


def _producers(work: Sequence[Work]) -> dict[Node, KernelCall]:
    """The kernel that writes a value: the first that names it."""
    found: dict[Node, KernelCall] = {}
    for item in work:
        if isinstance(item, KernelCall):
            for owner in item.owners:
                if owner.kind is not NodeKind.LEAF and owner.kind is not NodeKind.EXTERN:
                    found.setdefault(owner, item)
    return found


class _Search:
    def __init__(self, producers: dict[Node, KernelCall], returned: set[Node]) -> None:
        self.producers, self.returned = producers, returned
        self.watched: dict[Node, None] = {}
        self.kernels: dict[KernelCall, None] = {}

    def state(self) -> tuple[dict[Node, None], dict[KernelCall, None]]:
        return dict(self.watched), dict(self.kernels)

    def restore(self, state: tuple[dict[Node, None], dict[KernelCall, None]]) -> None:
        self.watched, self.kernels = state

    def is_steady(self, leaf: Node) -> bool:
        """Whether a value comes from inputs alone, by kernels that write nothing else but such values."""
        if leaf.op in ("input", "tensor"):
            if (
                any(isinstance(n, SizeInt) for n in leaf.shape)
                or 0 in leaf.shape
                or leaf.dtype is None
            ):
                return False
            self.watched[leaf] = None
            return True
        kernel = self.producers.get(leaf)
        if kernel is None:
            return False
        if kernel in self.kernels:
            return True
        written = [owner for owner in kernel.owners if self.producers.get(owner) is kernel]
        if any(
            o in self.returned or o.kind is NodeKind.ASSEMBLED or isinstance(kernel.total, SizeInt)
            for o in written
        ):
            return False
        self.kernels[kernel] = None
        return all(self.is_steady(owner) for owner in kernel.owners if owner not in written)
