"""native.ir.builder: makes tensor IR nodes, each distinct one once.

Hash-consing makes common subexpressions one node by construction, so rewriting a graph through a
fresh builder is common-subexpression elimination. Shapes and types of new nodes are computed here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, final

from argand.native.ir.affine import Affine
from argand.native.ir.tensor import OPS, Attribute, Baked, ExternCall, Node, NodeKind
from argand.native.ir.types import DType, Shape, numel
from argand.sizes.expressions import SizeInt
from argand.support.errors import InternalError


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape several shapes broadcast to."""
    rank = max((len(shape) for shape in shapes), default=0)
    sizes = [1] * rank
    for shape in shapes:
        for position, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if sizes[position] not in (1, size):
                    raise InternalError("native.lower", f"shapes do not broadcast: {shapes}")
                sizes[position] = size
    return tuple(sizes)


def reduced(shape: Shape, dims: Sequence[int]) -> Shape:
    """The shape without the dimensions of a reduction."""
    return tuple(size for dim, size in enumerate(shape) if dim not in dims)


def _key(attribute: Attribute) -> object:
    if isinstance(attribute, float | int):
        return type(attribute), repr(attribute)  # 1 == 1.0 == True and 0.0 == -0.0 for a dict
    if isinstance(attribute, ExternCall | Baked):
        return id(attribute)
    return attribute


def _fits(value: float, dtype: DType) -> bool:
    """Whether an integer type has this number, rounded toward zero; else the machine wraps it as it does."""
    bits = 8 * dtype.row.bytes
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.is_signed else (0, 2**bits - 1)
    return bool(math.isfinite(value) and low <= math.trunc(value) <= min(high, 2**62))


def _single(value: float) -> float:
    """A number as float32 has it: passes compute with constants, and must round where the machine does.

    Numbers beside half types stay as they are: their arithmetic, as eager's, takes numbers in float32.
    """
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


@final
class Builder:
    """Makes nodes; asking twice for the same node gives the same object."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Node] = {}
        self.trace = ""  # the user's lines that new nodes are made for

    def node(
        self,
        op: str,
        inputs: tuple[Node, ...],
        shape: Shape,
        dtype: DType | None,
        attribute: Attribute = None,
    ) -> Node:
        """The node with exactly these fields."""
        key = (op, tuple(map(id, inputs)), shape, dtype, _key(attribute))
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(op, inputs, shape, dtype, attribute, self.trace)
        return found

    def count(self, op: str) -> int:
        """How many nodes of an op were made so far: a number for the next."""
        return sum(node.op == op for node in self._nodes.values())

    def constant(self, value: bool | int | float, dtype: DType, shape: Shape = ()) -> Node:
        """A value of every element; the value is converted to the type."""
        if isinstance(value, SizeInt):
            return self.expand(
                self.cast(self.node("size", (), (), DType.I64, (value,)), dtype), shape
            )
        kind: type = float if dtype.is_float else bool if dtype is DType.BOOL else int
        value = _single(kind(value)) if dtype is DType.F32 else kind(value)
        return self.node("constant", (), shape, dtype, value)

    def pointwise(self, op: str, *inputs: Node) -> Node:
        """An elementwise op on inputs that broadcast."""
        row = OPS[op]
        shape = broadcast([i.shape for i in inputs])
        dtype = DType.BOOL if row.result == "bool" else inputs[-1].dtype
        return self.node(op, inputs, shape, dtype)

    def cast(self, node: Node, dtype: DType) -> Node:
        """The value converted to another type."""
        if node.dtype is dtype:
            return node
        if node.op == "constant" and not isinstance(node.attribute, tuple):
            value: Any = node.attribute
            if dtype.is_float or dtype is DType.BOOL or _fits(value, dtype):
                return self.constant(value, dtype, node.shape)
        return self.node("cast", (node,), node.shape, dtype)

    def view(self, node: Node, shape: Shape, coordinates: Sequence[Affine]) -> Node:
        """A view that reads ``node`` at these affine forms of its own coordinates."""
        if node.op == "constant":
            return self.node("constant", (), shape, node.dtype, node.attribute)
        if shape == node.shape and all(
            c.constant == 0 and (c.terms == ((d, 1),) or shape[d] == 1)
            for d, c in enumerate(coordinates)
        ):
            return node
        if node.op == "view":
            inner: Any = node.attribute
            values = dict(enumerate(coordinates))
            return self.view(node.inputs[0], shape, [c.substitute(values) for c in inner])
        return self.node("view", (node,), shape, node.dtype, tuple(coordinates))

    def expand(self, node: Node, shape: Shape) -> Node:
        """Broadcast to a shape."""
        offset = len(shape) - len(node.shape)
        forms = [
            Affine.of(d + offset) if size == shape[d + offset] else Affine()
            for d, size in enumerate(node.shape)
        ]
        return self.view(node, shape, forms)

    def permute(self, node: Node, dims: Sequence[int]) -> Node:
        """Reorder dimensions: dimension ``dims[k]`` of the input becomes k."""
        forms = [Affine.of(list(dims).index(d)) for d in range(len(dims))]
        return self.view(node, tuple(node.shape[d] for d in dims), forms)

    def slice(self, node: Node, dim: int, start: int, length: int, step: int = 1) -> Node:
        """Every ``step``-th index of one dimension; a negative step runs backwards."""
        forms = [Affine.of(d) for d in range(len(node.shape))]
        forms[dim] = forms[dim].scale(step).shift(start)
        return self.view(node, (*node.shape[:dim], length, *node.shape[dim + 1 :]), forms)

    def select(self, node: Node, dim: int, index: int) -> Node:
        """One index of a dimension, which goes away."""
        forms = [Affine.of(d if d < dim else d - 1) for d in range(len(node.shape))]
        forms[dim] = Affine(index)
        return self.view(node, reduced(node.shape, (dim,)), forms)

    def keep_dims(self, node: Node, shape: Shape, dims: Sequence[int]) -> Node:
        """Undo the removal of reduced dimensions: they come back with size 1."""
        kept = [d for d in range(len(shape)) if d not in dims]
        full = tuple(1 if d in dims else size for d, size in enumerate(shape))
        return self.view(node, full, [Affine.of(d) for d in kept])

    def reshape(self, node: Node, shape: Shape) -> Node:
        """The same elements in row-major order under another shape."""
        if shape == node.shape:
            return node
        if node.op == "constant":
            return self.node("constant", (), shape, node.dtype, node.attribute)
        if node.op == "reshape":
            return self.reshape(node.inputs[0], shape)
        kept = [d for d, size in enumerate(shape) if size != 1]
        if [shape[d] for d in kept] == [s for s in node.shape if s != 1]:
            places = iter(kept)
            forms = [Affine.of(next(places)) if s != 1 else Affine() for s in node.shape]
            return self.view(node, shape, forms)
        if numel(shape) != numel(node.shape):
            raise InternalError("native.lower", f"reshape of {node.shape} to {shape}")
        return self.node("reshape", (node,), shape, node.dtype)

    def reduce(self, op: str, node: Node, dims: Sequence[int]) -> Node:
        """A reduction; the reduced dimensions go away."""
        dtype = DType.I64 if op in ("argmax", "argmin") else node.dtype
        ordered = tuple(sorted(dims))
        if all(node.shape[d] == 1 for d in ordered):  # nothing to reduce
            if op in ("argmax", "argmin"):
                return self.constant(0, DType.I64, reduced(node.shape, ordered))
            return self.reshape(node, reduced(node.shape, ordered))
        if (
            op in ("sum", "prod")
            and dtype is not None
            and any(not isinstance(s, SizeInt) and s == 0 for s in node.shape)
        ):
            # No loop: what does not change inside it would be loaded before it, and nothing has no memory.
            return self.constant(int(op == "prod"), dtype, reduced(node.shape, ordered))
        return self.node(op, (node,), reduced(node.shape, ordered), dtype, ordered)

    def rebuild(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        """The same op on other inputs of the same shapes."""
        if node.op == "view":
            return self.view(inputs[0], node.shape, node.attribute)  # type: ignore[arg-type]
        if node.op == "reshape":
            return self.reshape(inputs[0], node.shape)
        if node.op == "cast" and node.dtype is not None:
            return self.cast(inputs[0], node.dtype)
        if node.kind is NodeKind.EXTERN and all(
            a is b for a, b in zip(inputs, node.inputs, strict=True)
        ):
            key = (node.op, tuple(map(id, inputs)), node.shape, node.dtype, _key(node.attribute))
            return self._nodes.setdefault(key, node)
        return self.node(node.op, inputs, node.shape, node.dtype, node.attribute)
