"""autograd.partition: split a joint graph into forward and backward.

In: a joint GraphModule (placeholders ``primals_*`` then ``tangents_*``; one flat list of outputs, the
forward's first). Out: (forward, backward): the forward returns its outputs and then what it saves,
the backward takes what was saved (placeholders named as the saved nodes) and then the tangents.
The calling convention is that of torch's own partitioners, so either may stand in for the other.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, final

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from argand.autograd.flow import INFINITE, Network
from argand.autograd.functional import is_random
from argand.autograd.graphs import ancestors, extract, flat_outputs, is_view, make_module
from argand.ops.rows import row_of
from argand.ops.table import Kind
from argand.sizes.expressions import SizeInt
from argand.sizes.floats import OpenFloat

# Kinds whose ops fuse into the kernels that read them: computing them again costs no memory traffic.
_FUSIBLE: Final = frozenset({Kind.POINTWISE, Kind.FACTORY, Kind.VIEW})


def default_partition(
    joint_module: GraphModule, _joint_inputs: Sequence[Any], *, num_fwd_outputs: int, **_: Any
) -> tuple[GraphModule, GraphModule]:
    """Save everything of the forward that the backward reads; recompute checkpoints only."""
    split = JointSplit(joint_module, num_fwd_outputs)
    checkpoints = any("checkpoint" in node.meta for node in split.forward)
    saved = split.min_cut(fuse=False) if checkpoints else split.read
    return cut(joint_module, saved, num_fwd_outputs)


def min_cut_partition(
    joint_module: GraphModule,
    _joint_inputs: Sequence[Any],
    *,
    num_fwd_outputs: int,
    memory_budget: float = 1.0,
    **_: Any,
) -> tuple[GraphModule, GraphModule]:
    """Save the fewest bytes from which the backward can be had by recomputing what fuses.

    ``memory_budget`` is the fraction of those bytes that may be saved: below 1, ever more expensive
    ops are computed again, random ones never.
    """
    split = JointSplit(joint_module, num_fwd_outputs)
    saved = split.min_cut()
    if memory_budget < 1.0:
        saved = _within_budget(split, saved, memory_budget)
    return cut(joint_module, saved, num_fwd_outputs)


def _within_budget(split: JointSplit, saved: list[Node], budget: float) -> list[Node]:
    """Allow heavy ops to run again, cheapest per byte first, until the saved bytes fit."""
    candidates = sorted(
        (node for node in split.forward if is_heavy(node) and not _must_save(node)),
        key=lambda node: (_work(node) / (1 + bytes_of(node)), node.name),
    )
    limit = budget * sum(bytes_of(node) for node in saved if node.op != "placeholder")
    low, high, best = 0, len(candidates), saved
    while low <= high:
        middle = (low + high) // 2 if budget > 0 else high
        trial = split.min_cut(lifted=frozenset(candidates[:middle]))
        if sum(bytes_of(node) for node in trial if node.op != "placeholder") <= limit:
            best, high = trial, middle - 1
        else:
            low = middle + 1
            if middle == len(candidates):
                return trial
        if budget == 0:
            return trial
    return best


@final
class JointSplit:
    """Which nodes of a joint graph the forward computes, and what the rest reads of them."""

    def __init__(self, joint: GraphModule, count: int) -> None:
        outputs = flat_outputs(joint.graph)
        gradients = {node for node in outputs[count:] if isinstance(node, Node)}
        beyond = set(split_placeholders(joint)[1])  # what depends on tangents, or was made for it
        self.forward: dict[Node, None] = {}  # in graph order
        for node in joint.graph.nodes:
            if node.op == "output":
                continue
            late = node.meta.get("is_backward") or not beyond.isdisjoint(node.all_input_nodes)
            if node in beyond or late:
                beyond.add(node)
            else:
                self.forward[node] = None
        for node in ancestors(outputs[:count]):
            self.forward.setdefault(node)
        self.results = {node for node in outputs[:count] if isinstance(node, Node)}
        self.read = [node for node in self.forward if self._is_read(node, gradients)]
        # The caller may write to inputs and results before the backward. Eager's derivatives read
        # (themselves or through a view) what eager saves, so saving those fails when eager fails.
        self.safe = set(self.read)
        for node in reversed(self.forward):
            if is_checkpointed(node) or (node in self.safe and is_view(node)):
                self.safe.update(node.all_input_nodes)

    def _is_read(self, node: Node, gradients: set[Node]) -> bool:
        if node.op == "get_attr" or is_tuple(node) or is_size(node):
            return False
        if node in gradients:
            return True
        return any(user not in self.forward and user.op != "output" for user in node.users)

    def min_cut(self, lifted: frozenset[Node] = frozenset(), *, fuse: bool = True) -> list[Node]:
        """What to save.

        ``lifted`` are heavy ops that may run again; without ``fuse`` only checkpoints do.
        """
        network = Network()
        inner: dict[Node, int] = {}  # node -> vertex where it is computed; +1 where it is known
        pending: list[Node] = []

        def known(node: Node) -> int:
            if node not in inner:
                inner[node] = network.vertex()
                network.vertex()
                pending.append(node)
            return inner[node] + 1

        for node in self.read:
            network.edge(known(node), 1, INFINITE)
        while pending:
            node = pending.pop()
            computed = inner[node]
            network.edge(computed, computed + 1, self._price(node))
            heavy = is_heavy(node) if fuse else not is_view(node) and not is_item(node)
            again = node in lifted or is_checkpointed(node) or not heavy
            if node.op == "placeholder" or not again:
                network.edge(0, computed, INFINITE)
            else:
                for source in node.all_input_nodes:
                    network.edge(known(source), computed, INFINITE)
        beyond = network.cut()
        chosen = {n for n, v in inner.items() if not beyond[v] and beyond[v + 1]}
        return [node for node in self.forward if node in chosen]

    def _is_inside(self, node: Node) -> bool:
        """Whether only its own checkpoint region and the backward read a node."""
        region = node.meta.get("checkpoint")
        return (
            is_checkpointed(node)
            and node not in self.results
            and all(
                user.meta.get("checkpoint") == region for user in node.users if user in self.forward
            )
        )

    def _price(self, node: Node) -> int:
        """Bytes kept alive by saving a node; views and tuples are never saved themselves."""
        if is_tuple(node) or is_view(node) or node.op == "get_attr" or self._is_inside(node):
            return INFINITE
        size = bytes_of(node)
        if node.op == "placeholder" and node.meta.get("parameter", True):
            return 1 + size // 1024  # alive anyway
        if node.op == "placeholder" or node in self.results:  # made anyway, and often kept
            return 1 + size // 2 if node in self.safe else INFINITE
        materialised = is_heavy(node) or any(is_heavy(user) for user in node.users)
        return 1 + (size if materialised else 2 * size)


def split_placeholders(joint: GraphModule) -> tuple[list[Node], list[Node]]:
    """(primals, tangents) of a joint graph."""
    placeholders = [node for node in joint.graph.nodes if node.op == "placeholder"]
    tangents = [node for node in placeholders if "tangents" in str(node.target)]
    primals = [node for node in placeholders if "tangents" not in str(node.target)]
    return primals, tangents


def is_tuple(node: Node) -> bool:
    """Whether a node's value is several tensors."""
    return isinstance(node.meta.get("val"), tuple | list)


def is_size(node: Node) -> bool:
    """Whether a node's value is a size known only at run time, or a number made of one."""
    return isinstance(node.meta.get("val"), SizeInt | float)


def is_item(node: Node) -> bool:
    """Whether a node picks one of several results."""
    return node.target is operator.getitem


def is_checkpointed(node: Node) -> bool:
    """Whether the user wants a node computed again in the backward (draws never are)."""
    source = node.all_input_nodes[0] if is_item(node) else node
    return "checkpoint" in node.meta and not _must_save(source)


def is_heavy(node: Node) -> bool:
    """Whether a node's value is worth keeping: it costs more than the memory traffic of a fusion."""
    target = node.target
    if not isinstance(target, OpOverload):
        return node.op == "call_function" and not is_item(node)
    if target.is_view:
        return False
    return row_of(target).kind not in _FUSIBLE


def _must_save(node: Node) -> bool:
    """Values that cannot be had again: random draws, and whatever a user's op does."""
    return not isinstance(node.target, OpOverload) or is_random(node.target, node.args)


def bytes_of(node: Node) -> int:
    """Size of a node's value."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))


def _work(node: Node) -> float:
    """A rough count of operations: elements touched, times the inner dimension of products."""
    touched = bytes_of(node) + sum(bytes_of(source) for source in node.all_input_nodes)
    if isinstance(node.target, OpOverload) and row_of(node.target).kind in (Kind.MATMUL, Kind.CONV):
        shapes = [s.meta["val"] for s in node.all_input_nodes if not is_tuple(s)]
        inner = max((v.shape[-1] for v in shapes if getattr(v, "ndim", 0)), default=1)
        return float(bytes_of(node)) * inner
    return float(touched)


def cut(joint: GraphModule, saved: Sequence[Node], count: int) -> tuple[GraphModule, GraphModule]:
    """The two graphs, given what is saved; inputs that are sizes are saved last."""
    outputs = flat_outputs(joint.graph)
    primals, tangents = split_placeholders(joint)
    saved = [
        *(node for node in saved if not is_size(node)),
        *(p for p in primals if isinstance(p.meta["val"], SizeInt | OpenFloat)),
    ]
    constants = {
        str(node.target): getattr(joint, str(node.target))
        for node in joint.graph.nodes
        if node.op == "get_attr"
    }
    forward_nodes = [node for node in joint.graph.nodes if not node.meta.get("is_backward")]
    backward_nodes = [node for node in joint.graph.nodes if node.meta.get("is_backward")]
    forward = extract(forward_nodes, primals, [*outputs[:count], *saved], forward=True)
    backward = extract(backward_nodes, [*saved, *tangents], outputs[count:], forward=False)
    return make_module(forward, constants, "Forward"), make_module(backward, constants, "Backward")
