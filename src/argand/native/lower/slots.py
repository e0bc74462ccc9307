"""native.lower.slots: calls that give an input of the graph its new value by writing a part of it.

In: an aten graph. Out: which of its calls may write into the input itself, by the operator that does so. A cache of keys is
never copied: a token costs its slot.

Nobody else reads such an input, and what is written does not depend on what was there. So a call that fails later may
begin anew, in eager: what the first attempt wrote is written again, in eager's order, and read by nobody before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
import torch.fx
from torch._ops import OpOverload

aten = torch.ops.aten

# `slice_scatter` and `select_scatter` are updates of the tensor IR: schedule.demand places them.
IN_PLACE: Final[Mapping[OpOverload, OpOverload]] = {
    aten.index_copy.default: aten.index_copy_.default,
    aten.index_put.default: aten.index_put_.default,
    aten.index_fill.int_Scalar: aten.index_fill_.int_Scalar,
    aten.index_fill.int_Tensor: aten.index_fill_.int_Tensor,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
}


def find_slots(
    module: torch.fx.GraphModule, into: Sequence[int]
) -> Mapping[torch.fx.Node, OpOverload]:
    """The calls that may write into their first argument, and the operators that do. ``into``: inputs that results go to."""
    if not into:
        return {}
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    (results,) = module.graph.output_node().args
    found: dict[torch.fx.Node, OpOverload] = {}
    for result, position in zip(results, into, strict=False):
        if position < 0 or not isinstance(result, torch.fx.Node) or result.target not in IN_PLACE:
            continue
        target = inputs[position]
        alone = (
            result.args[0] is target
            and list(target.users) == [result]
            and not _reads(result, target)
        )
        if alone and not _sums(result) and _alike(result, target):
            found[result] = IN_PLACE[result.target]
    return found


def _reads(node: torch.fx.Node, target: torch.fx.Node) -> bool:
    """Whether a call has its target among its other arguments."""
    seen: list[torch.fx.Node] = []
    torch.fx.node.map_arg((node.args[1:], node.kwargs), seen.append)
    return target in seen


def _sums(node: torch.fx.Node) -> bool:
    """Whether an `index_put` adds to what was there."""
    return bool(node.kwargs.get("accumulate", False)) or (
        len(node.args) > 3 and node.args[3] is True
    )


def _alike(node: torch.fx.Node, target: torch.fx.Node) -> bool:
    """Whether a result has shape and type of the input."""
    one, other = node.meta.get("val"), target.meta.get("val")
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return (one.shape, one.dtype) == (other.shape, other.dtype)
