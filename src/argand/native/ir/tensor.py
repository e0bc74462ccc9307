"""native.ir.tensor: the tensor IR, a graph of small typed operations on whole tensors.

Made by ``native.lower`` from aten graphs, rewritten by ``native.passes``, cut into kernels by
``native.schedule``. Values have a shape and an element type but no layout; layouts are asked for
where a value leaves our code: at graph outputs and at calls of torch's kernels.

Pointwise inputs broadcast as in torch; casts are explicit. A view says, for each dimension of its
input, which affine form of its own coordinates d0, d1, ... reads it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, final

from typing_extensions import override

from argand.native.ir.affine import Affine
from argand.native.ir.types import DType, Shape
from argand.runtime.marks import OutOfRange
from argand.support.dataclass import dataclass

Ordered = TypeVar("Ordered")


class NodeKind(enum.Enum):
    """What the scheduler may do with an op."""

    LEAF = "leaf"
    POINTWISE = "pointwise"
    VIEW = "view"
    REDUCE = "reduce"
    GATHER = "gather"
    ASSEMBLED = "assembled"  # written piece by piece, maybe by several kernels
    EXTERN = "extern"


class OpRow(NamedTuple):
    """One op: its kind, number of inputs (-1: any), result type rule and cost in vector instructions."""

    kind: NodeKind
    arity: int
    result: str = "same"  # same (as inputs), bool, free (any)
    cost: int = 1
    domain: str = "any"  # any, float, integer (bool included), number


def _pointwise(arity: int, result: str = "same", cost: int = 1, domain: str = "any") -> OpRow:
    return OpRow(NodeKind.POINTWISE, arity, result, cost, domain)


MATHS: Final = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "erfc",
    "atan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh", "erfinv", "lgamma", "digamma",
)  # fmt: skip
ACTIVATIONS: Final = ("gelu", "gelu_tanh", "silu", "softplus")

OPS: Final[Mapping[str, OpRow]] = {
    "input": OpRow(NodeKind.LEAF, 0, "free"),  # attribute: position among the graph inputs
    "constant": OpRow(NodeKind.LEAF, 0, "free"),  # attribute: the value, of every element
    "size": OpRow(NodeKind.LEAF, 0, "free"),  # attribute: (a size known at run time,)
    "iota": OpRow(NodeKind.LEAF, 0, "free"),  # attribute: dimension whose coordinate is the value
    "seed": OpRow(NodeKind.LEAF, 0, "free"),  # attribute: which seed of the call, for one random op
    "flag": OpRow(NodeKind.LEAF, 0, "free"),  # memory a kernel marks when an index is out of range
    "tensor": OpRow(NodeKind.LEAF, 0, "free"),  # attribute: Baked, a torch tensor of the graph
    "view": OpRow(NodeKind.VIEW, 1),  # attribute: an Affine per input dimension
    "reshape": OpRow(NodeKind.VIEW, 1),
    "cast": _pointwise(1, "free"),
    "float_of_bits": _pointwise(1, "free"),
    # what a half type keeps of it, see native.passes.halves
    "round": _pointwise(1, cost=4, domain="float"),
    "copy": _pointwise(1),  # the same value, written to memory: made by the scheduler
    **{name: _pointwise(2) for name in ("add", "sub", "mul", "max", "min")},
    **{name: _pointwise(1) for name in ("neg", "abs")},
    "div": _pointwise(2, cost=4, domain="float"),
    "fmod": _pointwise(2, cost=20, domain="float"),
    **{name: _pointwise(1, domain="float") for name in ("floor", "ceil", "trunc", "rint")},
    "copysign": _pointwise(2, domain="float"),
    "sqrt": _pointwise(1, cost=6, domain="float"),
    "idiv": _pointwise(2, cost=20, domain="integer"),  # towards zero; x / 0 == 0
    "irem": _pointwise(2, cost=20, domain="integer"),
    **{name: _pointwise(2, domain="integer") for name in ("and", "or", "xor", "shl", "shr")},
    "not": _pointwise(1, domain="integer"),
    **{name: _pointwise(2, "bool") for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "select": _pointwise(3, "second"),
    **{name: _pointwise(1, cost=20, domain="float") for name in (*MATHS, *ACTIVATIONS)},
    "pow": _pointwise(2, cost=40, domain="float"),
    "uniform": _pointwise(2, "free", cost=20),  # a number of [0, 1) from a seed and an index
    "normal": _pointwise(2, "free", cost=60),
    "atan2": _pointwise(2, cost=40, domain="float"),
    **{name: OpRow(NodeKind.REDUCE, 1) for name in ("sum", "prod", "amax", "amin")},
    "argmax": OpRow(NodeKind.REDUCE, 1, "free"),
    "argmin": OpRow(NodeKind.REDUCE, 1, "free"),
    # attribute: Affine | input number per dim
    "gather": OpRow(NodeKind.GATHER, -1, "free", cost=8),
    "concat": OpRow(NodeKind.ASSEMBLED, -1),  # attribute: dimension
    # attribute: where input 1 goes: Affine of its coordinates
    "update": OpRow(NodeKind.ASSEMBLED, 2),
    "extern": OpRow(NodeKind.EXTERN, -1, "free"),  # attribute: ExternCall
    "item": OpRow(NodeKind.EXTERN, 1, "free"),  # attribute: which output of an extern
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class TensorMeta:
    """Metadata of a tensor at the border of our code."""

    shape: Shape
    strides: Shape
    torch_dtype: Any
    dtype: DType | None  # None: a type we only hand through (complex, quantized)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ExternCall:
    """A call of torch's own kernel. Tensor arguments are ``TensorArgument``s inside args and kwargs."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    layouts: tuple[Shape, ...]  # strides each tensor input must have
    outputs: tuple[TensorMeta | None, ...]
    single: bool  # the op returns one tensor, no tuple
    writes: bool = False  # changes an input of the graph: runs after everything else
    # perhaps, on the values it gets: inputs of the graph stay as they are until then
    raises: bool = False
    in_place: bool = False  # it writes a part of its first input, an input of the graph, which then is its result


@final
@dataclass(frozen=True, slots=True)
class TensorArgument:
    """Place of the n-th tensor input in the arguments of an extern call."""

    number: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class Baked:
    """A tensor that is part of the graph."""

    tensor: Any
    strides: Shape


ViewMap: TypeAlias = tuple[Affine, ...]


class Lookup(int):
    """Which input of a gather has the index along a dimension, and what is said of one out of range."""

    error: OutOfRange

    def __new__(cls, number: int, error: OutOfRange = OutOfRange.SELF) -> Lookup:
        """An input by its number, from 1."""
        made = super().__new__(cls, number)
        made.error = error
        return made

    def mark(self, dim: int) -> int:
        """What a kernel writes when an index along a dimension is out of range."""
        return 64 * self.error + (self - 1 if self.error is OutOfRange.INDEX else dim)

    @override
    def __str__(self) -> str:
        return f"#{int(self)}" + (f":{self.error.name.lower()}" if self.error else "")


GatherMap: TypeAlias = tuple[Affine | Lookup, ...]
Attribute: TypeAlias = (
    bool | int | float | ViewMap | GatherMap | tuple[int, ...] | ExternCall | Baked | None
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One value. ``dtype`` None: a tensor we only hand to externs, or an extern's tuple."""

    op: str
    inputs: tuple[Node, ...]
    shape: Shape
    dtype: DType | None
    attribute: Attribute = None
    trace: str = ""  # the user's lines it was made for, as a traceback has them

    @property
    def kind(self) -> NodeKind:
        """NodeKind of the op."""
        return OPS[self.op].kind


@final
@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """A result of the graph with the strides eager gives it."""

    node: Node
    spec: TensorMeta
    memory: int = 0  # equal numbers: views of one tensor in eager; inputs count -1, -2, ...
    into: int = -1  # the input whose new value this is: its memory may take it
    is_view: bool = False  # in eager, too, it may be a part of a larger tensor


@final
@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Inputs by position (sizes and tensors; None: other), outputs (others are handed through)."""

    inputs: tuple[TensorMeta | int | None, ...]
    outputs: tuple[Output | object, ...]
    effects: tuple[Node, ...]  # externs that run whether or not a result is used, in this order
    layouts: Mapping[Node, Shape]  # strides eager gives a value, for when it gets memory
    nodes: tuple[Node, ...]  # topological

    @staticmethod
    def of(
        inputs: tuple[TensorMeta | int | None, ...],
        outputs: tuple[Output | object, ...],
        effects: tuple[Node, ...] = (),
        layouts: Mapping[Node, Shape] | None = None,
    ) -> Graph:
        """A graph with exactly the nodes its effects and outputs need, in topological order."""
        nodes = topological(roots_of(effects, outputs), lambda node: node.inputs)
        return Graph(inputs, outputs, effects, layouts or {}, nodes)


def in_running_order(effects: Iterable[Node]) -> tuple[Node, ...]:
    """Draws and checks in their order, then what writes to inputs."""
    return tuple(sorted(effects, key=_writes))  # sorting keeps the order of equals


def _writes(node: Node) -> bool:
    return isinstance(node.attribute, ExternCall) and node.attribute.writes


def roots_of(effects: Iterable[Node], results: Iterable[object]) -> list[Node]:
    """What a graph runs for: draws in their order, results, and last what writes to inputs."""
    ordered = in_running_order(effects)
    nodes = [r.node if isinstance(r, Output) else r for r in results]
    wanted = [n for n in nodes if isinstance(n, Node)]
    return [*(n for n in ordered if not _writes(n)), *wanted, *(n for n in ordered if _writes(n))]


def topological(
    roots: Iterable[Ordered], needs: Callable[[Ordered], Sequence[Ordered]]
) -> tuple[Ordered, ...]:
    """All that the roots need, each after what it needs itself."""
    order: list[Ordered] = []
    seen: set[Ordered] = set()
    stack: list[tuple[Ordered, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        item, done = stack.pop()
        if done:
            order.append(item)
        elif item not in seen:
            seen.add(item)
            stack.append((item, True))
            stack.extend((need, False) for need in reversed(needs(item)) if need not in seen)
    return tuple(order)
