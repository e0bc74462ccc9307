"""autograd.linear: whether a backward is linear in what flows into it.

In: a joint graph. Out: yes, or: not known. Torch's own formulas are linear; those of users (functions, hooks, custom ops) need
not be. A compiled program that is differentiated again hands a user's formula its gradient in two parts: by the program's
results, and by what its backward read. The sum of both answers is right where this says yes (`autograd.pieces`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from argand.autograd.graphs import ancestors, flat_outputs
from argand.autograd.opaque import Gradient

# Operators by what they are linear in: each tensor apart, their first one, all of them together. `like`: they look at the type
# of a tensor only; `zero`: what they give is zero.
_LAWS: Final = {
    "each": "mul mm bmm mv dot vdot outer ger convolution",
    "first": """div neg clone sum mean cumsum _to_copy index index_select gather flip roll tril triu repeat trace _unsafe_view
    _fft_c2c _fft_r2c _fft_c2r""",
    "all": """add sub cat stack copy slice_scatter select_scatter diagonal_scatter as_strided_scatter index_put index_add
    index_copy scatter scatter_add where masked_fill index_fill constant_pad_nd""",
    "like": """zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty new_empty_strided rand_like
    randn_like""",
    "zero": "zeros zeros_like new_zeros _efficientzerotensor",
}
_IN_EACH, _IN_FIRST, _IN_ALL, _LIKE, _ZEROS = (frozenset(names.split()) for names in _LAWS.values())
# The numbers that they add to tensors, by place; others are dimensions and sizes.
_ADDED: Final = {
    "add": 1,
    "sub": 1,
    "where": 1,
    "masked_fill": 2,
    "constant_pad_nd": 2,
    "index_fill": 3,
    "scatter": 3,
}


def is_linear(graph: Graph, results: int) -> bool:
    """Whether the gradients of a joint graph are linear in its tangents, as far as its operators are known to be."""
    needed = ancestors(flat_outputs(graph)[results:])
    moving: set[Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            if str(node.target).startswith("tangents"):
                moving.add(node)
        elif node in needed and node.op == "call_function":
            sources = [source for source in node.all_input_nodes if source in moving]
            if sources and _name(node) not in _LIKE:
                if not _is_linear_in(node, sources, moving):
                    return False
                moving.add(node)
    return True


def _is_linear_in(node: Node, sources: Sequence[Node], moving: set[Node]) -> bool:
    """Whether a call is linear in these of its arguments."""
    name, first = _name(node), node.args[0] if node.args else None
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()):
        return False
    if {"rounding_mode", "reduce"} & node.kwargs.keys():
        return False
    if name in _IN_EACH:
        if name == "convolution" and node.args[2] is not None:
            return False
        return _occurrences(node, sources[0]) == len(sources) == 1
    if name in _IN_ALL:
        return all(_fits(argument, name, k, moving) for k, argument in enumerate(node.args))
    if isinstance(node.target, Gradient):  # it cannot be looked into
        return True
    is_first = list(sources) == [first] and _occurrences(node, sources[0]) == 1
    known = name in _IN_FIRST or name == "getitem" or name.endswith("_backward")
    viewed = isinstance(node.target, OpOverload) and node.target.is_view
    return is_first and (known or viewed or name.endswith("_backward_data"))


def _fits(argument: Any, name: str, place: int, moving: set[Node]) -> bool:
    """Whether an argument of a sum moves, is zero, or says where only."""
    if isinstance(argument, list | tuple):
        if name in ("cat", "stack"):
            return all(_fits(item, name, place, moving) for item in argument)
        return not any(item in moving for item in argument if isinstance(item, Node))
    if isinstance(argument, Node):
        value = argument.meta.get("val")
        said = isinstance(value, torch.Tensor) and not (
            value.is_floating_point() or value.is_complex()
        )
        return argument in moving or said or _is_zero(argument)
    return place < _ADDED.get(name, place + 1) or argument == 0


def _is_zero(node: Node) -> bool:
    """Whether a value is zero everywhere."""
    while isinstance(node.target, OpOverload) and (node.target.is_view or _name(node) == "clone"):
        node = node.all_input_nodes[0]
    name, value = _name(node), node.meta.get("val")
    if node.op == "get_attr":  # a number that the backward makes: `grad[mask] = 0`
        return isinstance(value, torch.Tensor) and value.numel() == 1 and not value.any()
    fill = node.args[1] if name == "full" and len(node.args) > 1 else None
    return name in _ZEROS or (fill is not None and not isinstance(fill, Node) and fill == 0)


def _occurrences(node: Node, source: Node) -> int:
    found: list[Node] = []
    torch.fx.node.map_arg((node.args, node.kwargs), lambda one: found.append(one))
    return found.count(source)


def _name(node: Node) -> str:
    """The name of an operator of torch; none for other operators."""
    target = node.target
    if isinstance(target, OpOverload):
        return target._opname if target.namespace == "aten" else ""
    return "getitem" if getattr(target, "__name__", "") == "getitem" else ""
