"""capture.rules.linear: whether a graph that computes gradients is linear in the gradients that it is given.

In: the graph of a hook or of a user's backward. Out: yes, or: not known. Gradients that are differentiated again come to a
compiled graph in two parts (`ops.hooks`), whose sum is right where the answer is yes.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.fx

from argand.capture.rules.branches import Branch

# Operators that are linear in each tensor, in their first one, and in all of them together.
_IN_EACH: Final = frozenset({"mul", "matmul", "mm", "bmm", "multiply"})
_IN_FIRST: Final = frozenset(
    {"truediv", "div", "getitem", "view", "reshape", "permute", "transpose", "t", "flatten"}
    | {"unsqueeze", "squeeze", "expand", "expand_as", "flip", "roll", "movedim", "to", "float"}
    | {"double", "type_as", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
)
_IN_ALL: Final = frozenset({"add", "sub", "neg", "clone", "contiguous", "sum", "mean", "detach"})


def is_linear(branch: Branch, count: int = 1) -> bool:
    """Whether what a graph gives is linear in its first inputs, as far as its operators are known to be."""
    bent, seen = False, set(branch.inputs[:count])
    for node in branch.graph.nodes:
        tensors = [n for n in node.all_input_nodes if _is_tensor(n)]
        moving = [n for n in tensors if n in seen]
        if not moving or node.op == "output":
            continue
        seen.add(node)
        bent = bent or not _is_linear_in(node, tensors, moving)
    return not bent


def _is_linear_in(
    node: torch.fx.Node, tensors: list[torch.fx.Node], moving: list[torch.fx.Node]
) -> bool:
    """Whether a call is linear in those of its tensors that depend on these inputs."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in _IN_EACH:
        return len(moving) == 1 and node.args.count(moving[0]) == 1
    if name in _IN_FIRST:
        return moving == [node.args[0]]
    numbers = [value for value in node.args if isinstance(value, int | float | complex)]
    return name in _IN_ALL and moving == tensors and not (name in {"add", "sub"} and numbers)


def _is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.Tensor)
