"""backends.writes: what a graph of a stranger may do besides computing, by its nodes.

In: a torch-level or aten graph. Out: whether it may write to its inputs, whether it reads where they lie in their
storages. Not known is taken for yes.
"""

from __future__ import annotations

import operator
import types
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

_PURE_HELPERS: Final = frozenset((getattr, operator.getitem))
# torch's functions in Python and C that change statistics or weights without saying so in their name
_WRITERS: Final = ("norm", "embedding", "rnn", "lstm", "gru", "quantize", "observer", "dropout_")


def may_write(gm: GraphModule) -> bool:
    """Whether some node may write to an input."""
    return any(_writes(node) for node in gm.graph.nodes)


def reads_offsets(gm: GraphModule) -> bool:
    """Whether some node takes or gives an offset in a storage."""
    words = ("as_strided", "storage_offset", "set_", "data_ptr", "untyped_storage")
    return any(
        word in str(node.target)
        for node in gm.graph.nodes
        if node.op != "placeholder"
        for word in words
    )


def _writes(node: Node) -> bool:
    if node.op in ("placeholder", "output", "get_attr"):
        return False
    if node.op == "call_module" or "out" in node.kwargs or node.kwargs.get("inplace"):
        return True
    if node.op == "call_method":
        return _named_like_a_writer(str(node.target))
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return bool(target._schema.is_mutable)
    if target in _PURE_HELPERS or getattr(target, "__module__", "") == "_operator":
        return target not in _PURE_HELPERS and _named_like_a_writer(target.__name__)
    if not isinstance(
        target, types.BuiltinFunctionType | types.FunctionType | types.MethodDescriptorType
    ):
        return True
    home = str(getattr(target, "__module__", "") or "torch")
    name = target.__name__
    if not home.startswith("torch") or any(word in name for word in _WRITERS) or True in node.args:
        return True  # ``inplace`` may stand among the arguments
    return _named_like_a_writer(name)


def _named_like_a_writer(name: str) -> bool:
    """``add_``, ``__iadd__``, ``iadd``, ``setitem``."""
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
    in_place = name.startswith("i") and hasattr(operator, name) and hasattr(operator, name[1:])
    return name.endswith("_") or in_place or name in ("setitem", "delitem")
