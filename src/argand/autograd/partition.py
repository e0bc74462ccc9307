"""autograd.partition: split a joint graph into forward and backward.

In: a joint GraphModule (placeholders ``primals_*`` then ``tangents_*``; one flat list of outputs, the
forward's first). Out: (forward, backward): the forward returns its outputs and then what it saves,
the backward takes what was saved (placeholders named as the saved nodes) and then the tangents.
The calling convention is that of torch's own partitioners, so either may stand in for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from argand.autograd.graphs import ancestors, extract, flat_outputs, make_module


def split_placeholders(joint: GraphModule) -> tuple[list[Node], list[Node]]:
    """(primals, tangents) of a joint graph."""
    placeholders = [node for node in joint.graph.nodes if node.op == "placeholder"]
    tangents = [node for node in placeholders if "tangents" in str(node.target)]
    primals = [node for node in placeholders if "tangents" not in str(node.target)]
    return primals, tangents


def default_partition(
    joint_module: GraphModule,
    _joint_inputs: Sequence[Any],
    *,
    num_fwd_outputs: int,
    **_: Any,
) -> tuple[GraphModule, GraphModule]:
    """Save everything of the forward that the backward reads; recompute nothing."""
    outputs = flat_outputs(joint_module.graph)
    forward = ancestors(outputs[:num_fwd_outputs])
    forward.update(node for node in joint_module.graph.nodes if node.op == "placeholder")
    _, tangents = split_placeholders(joint_module)
    forward.difference_update(tangents)
    saved = _values_read(joint_module, forward, outputs, num_fwd_outputs)
    return cut(joint_module, saved, num_fwd_outputs)


def _values_read(
    joint: GraphModule, forward: set[Node], outputs: list[Any], count: int
) -> list[Node]:
    """Forward values read by what is not forward, tuples replaced by their elements."""
    gradients = {node for node in outputs[count:] if isinstance(node, Node)}
    saved = []
    for node in joint.graph.nodes:
        if node not in forward or node.op == "get_attr" or is_tuple(node):
            continue
        if node in gradients or any(
            user not in forward and user.op != "output" for user in node.users
        ):
            saved.append(node)
    return saved


def is_tuple(node: Node) -> bool:
    """Whether a node's value is several tensors."""
    return isinstance(node.meta.get("val"), tuple | list)


def cut(joint: GraphModule, saved: Sequence[Node], count: int) -> tuple[GraphModule, GraphModule]:
    """The two graphs, given what is saved."""
    outputs = flat_outputs(joint.graph)
    primals, tangents = split_placeholders(joint)
    constants = {
        str(node.target): getattr(joint, str(node.target))
        for node in joint.graph.nodes
        if node.op == "get_attr"
    }
    nodes = list(joint.graph.nodes)
    forward_nodes = [node for node in nodes if not node.meta.get("is_backward")]
    forward = extract(forward_nodes, primals, [*outputs[:count], *saved], draws=True)
    backward = extract(nodes, [*saved, *tangents], outputs[count:], draws=False)
    return (
        make_module(forward, constants, "Forward"),
        make_module(backward, constants, "Backward"),
    )


def saved_bytes(forward: GraphModule, num_fwd_outputs: int) -> int:
    """Bytes a forward keeps for its backward, parameters and inputs not counted."""
    total = 0
    for node in flat_outputs(forward.graph)[num_fwd_outputs:]:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and node.op != "placeholder":
            total += value.numel() * value.element_size()
    return total


min_cut_partition = default_partition
