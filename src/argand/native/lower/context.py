"""native.lower.context: what a lowering row works with.

A row is ``(context, *args, **kwargs) -> Node | tuple``: tensor arguments are nodes, others are as in
the aten graph. The context knows the metadata of the result. ``NotLowered`` sends the op to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import torch

from argand.native.codegen import math
from argand.native.ir.builder import Builder
from argand.native.ir.tensor import MATHS, GatherMap, Lookup, Node
from argand.native.ir.types import FROM_TORCH, DType, Shape
from argand.sizes.expressions import SizeInt
from argand.support.dataclass import dataclass, replace
from argand.support.options import Options

Scalar: TypeAlias = bool | int | float
Value: TypeAlias = Node | Scalar


@final
class NotLowered(Exception):
    """This call has no lowering (an argument or type we do not cover): call torch's kernel."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class LoweringContext:
    """Builder plus what is known about the call being lowered."""

    build: Builder
    result: Any  # fake tensor, or tuple of them
    arguments: tuple[Any, ...]  # the fakes and scalars of the call
    options: Options
    compute: DType | None = None  # the type to compute in, when it is not the result's
    express: Callable[[Sequence[int]], Shape] = tuple  # sizes of fakes as sizes of the program

    @property
    def dtype(self) -> DType:
        """Element type the row computes in: the (first) result's unless ``compute`` says more."""
        if self.compute is not None:
            return self.compute
        first = self.result[0] if isinstance(self.result, tuple | list) else self.result
        return dtype_of(first.dtype)

    @property
    def shape(self) -> Shape:
        """Shape of the (first) result."""
        first = self.result[0] if isinstance(self.result, tuple | list) else self.result
        return self.express(first.shape)

    def promoted(self) -> DType:
        """The type eager computes a comparison of the arguments in."""
        values = [a for a in self.arguments if isinstance(a, torch.Tensor | bool | int | float)]
        kind = values[0].dtype if isinstance(values[0], torch.Tensor) else None
        if len(values) > 1:
            kind = torch.result_type(values[0], values[1])
        return dtype_of(kind)

    def node(self, value: Value, dtype: DType | None = None) -> Node:
        """A node of the given type (the result's by default) from a node or a Python number.

        Eager makes a number an element of that type first, so 0.1 equals a float16 that was made of it.
        """
        dtype = dtype or self.dtype
        return self.factor(value if isinstance(value, Node) else self.number(value, dtype), dtype)

    def number(self, value: Scalar, dtype: DType | None = None) -> Scalar:
        """A Python number as a half type has it; other types take it as it is."""
        dtype = dtype or self.dtype
        if not dtype.is_half or not isinstance(value, float | int) or isinstance(value, SizeInt):
            return value
        return float(torch.tensor(float(value), dtype=dtype.row.torch_dtype).item())

    def factor(self, value: Value, dtype: DType | None = None) -> Node:
        """The same for products and quotients, where eager does not round a number to a half type."""
        dtype = dtype or self.dtype
        if isinstance(value, Node):
            return self.build.cast(value, dtype)
        if not isinstance(value, bool | int | float):
            raise NotLowered
        return self.build.constant(value, dtype)

    def op(self, name: str, *values: Value) -> Node:
        """A pointwise op; Python numbers take the type of the node arguments."""
        if name in MATHS and name not in math.SUPPORTED:
            raise NotLowered
        dtype = next(v.dtype for v in reversed(values) if isinstance(v, Node))
        nodes = [v if isinstance(v, Node) else self.build.constant(v, dtype) for v in values]  # type: ignore[arg-type]
        return self.build.pointwise(name, *nodes)

    def where(self, condition: Node, yes: Value, no: Value) -> Node:
        """Elementwise choice."""
        return self.op("select", condition, *self._alike(yes, no))

    def gather(
        self, inputs: tuple[Node, ...], shape: Shape, dtype: DType | None, forms: GatherMap
    ) -> Node:
        """Elements looked up by index; torch's kernel says what is wrong with a lookup where nothing is."""
        sizes = inputs[0].shape
        if any(
            isinstance(form, Lookup) and size == 0 for form, size in zip(forms, sizes, strict=True)
        ):
            raise NotLowered
        return self.build.node("gather", inputs, shape, dtype, forms)

    def _alike(self, *values: Value) -> list[Node]:
        dtype = next((v.dtype for v in values if isinstance(v, Node)), self.dtype)
        return [
            v if isinstance(v, Node) else self.build.constant(v, dtype or self.dtype)
            for v in values
        ]

    def full(self, node: Node) -> Node:
        """The node broadcast to the shape of the result."""
        return node if node.shape == self.shape else self.build.expand(node, self.shape)


Lowering: TypeAlias = Callable[..., Any]


def in_float(row: Lowering) -> Lowering:
    """A row that works in float on half types: its sums must not be rounded or overflow."""

    def lower(context: LoweringContext, *args: Any, **kwargs: Any) -> Any:
        tensors = [a for a in args if isinstance(a, Node)]
        if not any(t.dtype is not None and t.dtype.is_half for t in tensors):
            return row(context, *args, **kwargs)

        def widen(value: Any) -> Any:
            half = isinstance(value, Node) and value.dtype is not None and value.dtype.is_half
            return context.build.cast(value, DType.F32) if half else value

        wide = replace(context, compute=DType.F32)
        return row(wide, *map(widen, args), **{k: widen(v) for k, v in kwargs.items()})

    return lower


def dtype_of(kind: Any) -> DType:
    """Our type of a torch dtype; NotLowered for complex and quantized ones."""
    found = FROM_TORCH.get(kind)
    if found is None:
        raise NotLowered
    return found


def wrap_dims(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Dimensions as sorted non-negative numbers; None or an empty list means all."""
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return tuple(range(rank))
    given = [dims] if isinstance(dims, int) else list(dims)
    return tuple(sorted({d % max(rank, 1) for d in given})) if rank else ()
