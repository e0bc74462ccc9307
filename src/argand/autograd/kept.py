"""autograd.kept: what backwards read of their forward, by the results they are for.

Eager keeps tensors for each operation, checks them when that one is differentiated, and lets go of them then. A graph keeps
tensors for all of its operations. So that one result can be differentiated after another, or although what only another
one needs has changed, each kept tensor knows the results whose gradients read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, final

import torch
from torch.fx import Graph, Node

_FREED: Final = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)
_CHANGED: Final = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: [{type} {shape}], "
    "which is kept by a compiled function, is at version {found}; expected version {wanted} instead."
)


def readers(graph: Graph) -> dict[Node, frozenset[int]]:
    """For each value that no tangent flows into: the sets of tangents, as bits, that flow into what reads it.

    What is computed again for the gradients reads nothing by itself: who reads it does.
    """
    bits = _tangents(graph)
    found: dict[Node, frozenset[int]] = {}
    for node in reversed(graph.nodes):
        users = [user for user in node.users if user.op != "output"]
        masks = [{bits[user]} if bits[user] else found[user] for user in users]
        found[node] = frozenset().union(*masks)
    return found


def _tangents(graph: Graph) -> dict[Node, int]:
    """The tangents that flow into each node, as bits."""
    bits: dict[Node, int] = {}
    count = 0
    for node in graph.nodes:
        if node.op == "placeholder" and str(node.target).startswith("tangents"):
            bits[node] = 1 << count
            count += 1
        else:
            bits[node] = together(bits[given] for given in node.all_input_nodes)
    return bits


def together(masks: Iterable[int]) -> int:
    """All bits of some sets."""
    every = 0
    for mask in masks:
        every |= mask
    return every


def parts_of(backward: Graph) -> list[list[int]]:
    """For each value that a backward is given of the forward, the sets of tangents that read it.

    Nothing where all of them are read for all tangents: then torch's own book-keeping is right.
    """
    places = [
        n
        for n in backward.nodes
        if n.op == "placeholder" and not str(n.target).startswith("tangents")
    ]
    read = readers(backward)
    every = together(_tangents(backward).values())
    parts = [sorted(read[place]) for place in places]
    return parts if any(mask != every for masks in parts for mask in masks) else []


@final
class KeptParts:
    """What one call of a graph keeps."""

    __slots__ = ("parts", "used", "values", "versions")

    def __init__(
        self, parts: Sequence[Sequence[int]], values: Sequence[Any], results: Sequence[Any]
    ) -> None:
        self.parts = parts
        known = set(map(id, results))  # a result would keep itself alive through its history
        self.values = [value.detach() if id(value) in known else value for value in values]
        self.versions = [value._version for value in values]
        self.used = 0  # the tangents whose gradients were computed, for the last time

    def check(self, tangents: int) -> None:
        """Raise what eager raises when something that these tangents need is gone or has changed."""
        if any(mask & self.used and mask & tangents for masks in self.parts for mask in masks):
            raise RuntimeError(_FREED)
        if not self.values:
            raise RuntimeError(_FREED)
        for value, version, masks in zip(self.values, self.versions, self.parts, strict=False):
            if value._version != version and any(mask & tangents for mask in masks):
                words = {
                    "type": value.type(),
                    "shape": list(value.shape),
                    "found": value._version,
                    "wanted": version,
                }
                raise RuntimeError(_CHANGED.format(**words))

    def take(self, tangents: int) -> list[Any]:
        """The values, for a backward of these tangents."""
        self.check(tangents)
        return list(self.values)

    def release(self, tangents: int) -> bool:
        """Let go of everything when no other tangents can follow, unless the graph is retained."""
        if torch._C._autograd._get_current_graph_task_keep_graph():
            return False
        self.used |= tangents
        done = all(mask & self.used for masks in self.parts for mask in masks)
        if done:
            self.values = []
        return done


def keep(
    parts: Sequence[Sequence[int]], values: Sequence[Any], results: Sequence[Any]
) -> KeptParts | None:
    """What a call keeps; None where torch is to keep it: users may have a say in how."""
    if (
        not parts
        or not values
        or torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
    ):
        return None
    return KeptParts(parts, values, results)
