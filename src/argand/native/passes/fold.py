"""native.passes.fold: compute what is known.

Before:  %0 = constant[2.0]();  %1 = constant[3.0]();  %2 = mul(%0, %1)
After:   %0 = constant[6.0]()

Only ops whose result Python gives exactly as the machine would: one rounding, in the node's type.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from argand.native.ir.builder import Builder
from argand.native.ir.tensor import Graph, Node
from argand.native.ir.types import DType
from argand.native.passes.rewrite import rewrite

_OPS: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "xor")},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{"div": operator.truediv, "and": operator.and_, "or": operator.or_, "sqrt": math.sqrt},
}
_TYPES: Final = (DType.F32, DType.F64, DType.I64, DType.BOOL)


def fold_constants(graph: Graph) -> Graph:
    """Replace ops on constants by their value."""
    return rewrite(graph, _fold)


def _fold(build: Builder, node: Node) -> Node | None:
    if node.op not in _OPS or any(i.op != "constant" for i in node.inputs):
        return None
    if node.dtype not in _TYPES or any(i.dtype not in _TYPES for i in node.inputs):
        return None
    try:
        value = _OPS[node.op](*(i.attribute for i in node.inputs))
        if node.dtype is DType.F32:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
    except (ZeroDivisionError, ValueError, OverflowError):
        return None
    if node.dtype is DType.I64 and not -(2**63) <= value < 2**63:
        return None
    return build.constant(value, node.dtype, node.shape)
