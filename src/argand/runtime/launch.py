"""runtime.launch: the plan of one compiled graph, as data.

In: buffers and steps that the native compiler chose. Out: rows, from which ``runtime.plans`` makes the C object
that runs them (launch.c).

Buffers are numbered: 0 to inputs-1 are the inputs of the graph, inputs+k is `buffers[k]`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, final

import torch

from argand.support.dataclass import dataclass

# The numbers torch's C interface uses for element types; tests compare them with torch's own.
DTYPE_NUMBERS: Final[Mapping[torch.dtype, int]] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex32: 8,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.float8_e5m2fnuz: 25,
    torch.float8_e4m3fnuz: 26,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
}


@final
@dataclass(frozen=True, slots=True)
class Sym:
    """Number `index` of the plan's `numbers`, where a size is known only at run time."""

    index: int


PlanSize = int | Sym
PlanSizes = tuple[PlanSize, ...]


@final
@dataclass(frozen=True, slots=True)
class Number:
    """An integer computed from the inputs before the first step.

    "size" and "stride" of input `left` in dimension `right`; "input": input `left` is an int;
    "add", "sub", "mul", "floordiv", "mod", "min", "max" of integers and of earlier numbers.
    """

    kind: str
    left: PlanSize
    right: PlanSize = 0


SYMBOL: Final = -(2**63)  # how the C tables mark a Sym


@final
@dataclass(frozen=True, slots=True)
class Fresh:
    """A new tensor in each call: outputs, and operands of calls that must be real tensors."""

    sizes: PlanSizes
    strides: PlanSizes
    dtype: torch.dtype


@final
@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of the arena, `offset` bytes from its start; a tensor only while a call needs one."""

    offset: PlanSize
    sizes: PlanSizes
    strides: PlanSizes
    dtype: torch.dtype


@final
@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor kept by the plan."""

    tensor: torch.Tensor


@final
@dataclass(frozen=True, slots=True)
class Made:
    """A tensor that a Call step returns.

    With sizes, strides and dtype given, a result of other strides is copied to these, and one of
    another shape is an error.
    """

    sizes: PlanSizes | None = None
    strides: PlanSizes = ()
    dtype: torch.dtype = torch.float32


@final
@dataclass(frozen=True, slots=True)
class View:
    """as_strided of buffer `base`; `offset` counts elements from the base's own first element."""

    base: int
    sizes: PlanSizes
    strides: PlanSizes
    offset: PlanSize = 0


@final
@dataclass(frozen=True, slots=True)
class Integer:
    """A number of the plan as a Python int, for outputs and arguments."""

    number: Sym


@final
@dataclass(frozen=True, slots=True, eq=False)
class PythonValue:
    """A Python constant, for outputs that are not tensors."""

    value: object


@final
@dataclass(frozen=True, slots=True)
class Marks:
    """Words of one call, 0 at its start, in which kernels note what is wrong; the call then raises (run.h)."""


@final
@dataclass(frozen=True, slots=True)
class Kept:
    """Memory that a plan keeps from call to call, `offset` bytes from its start; steps after a `Keep` make it."""

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


Buffer = Fresh | Slot | Constant | Made | View | Integer | PythonValue | Marks | Kept


@final
@dataclass(frozen=True, slots=True)
class Ref:
    """The tensor of a buffer, where the arguments of a Call name one."""

    buffer: int


@final
@dataclass(frozen=True, slots=True)
class KernelStep:
    """Machine code: `void f(void **buffers, const int64_t *sizes, int64_t begin, int64_t end)`.

    The range 0..total is split over threads in pieces of at least `grain` units; a kernel gives
    the same bits however it is split. Kernels with a total of at least `grain` release the GIL.
    """

    pointer: int
    buffers: tuple[int, ...]
    total: PlanSize
    grain: int
    sizes: PlanSizes = ()


@final
@dataclass(frozen=True, slots=True)
class Product:
    """`out[i, j] = alpha * left[i, j] @ right[i, j] + beta * out[i, j]` by BLAS, on pointers.

    The batch has two dimensions; steps count elements from one of the batch to the next, 0 where
    an operand is broadcast. `transpose_left` says that the memory of `left` is the row-major
    transpose, [inner, rows]. A `bias` fills `out` before.
    """

    left: int
    right: int
    out: int
    rows: PlanSize
    columns: PlanSize
    inner: PlanSize
    left_stride: PlanSize
    right_stride: PlanSize
    out_stride: PlanSize
    transpose_left: bool = False
    transpose_right: bool = False
    double: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    batch: tuple[PlanSize, PlanSize] = (1, 1)
    left_steps: tuple[PlanSize, PlanSize] = (0, 0)
    right_steps: tuple[PlanSize, PlanSize] = (0, 0)
    out_steps: tuple[PlanSize, PlanSize] = (0, 0)
    bias: int | None = None
    bias_steps: tuple[PlanSize, PlanSize] = (0, 0)
    bias_strides: tuple[PlanSize, PlanSize] = (0, 0)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A Python function on tensors.

    `outputs` are the Made buffers for its results (-1: not wanted); () when it writes to a `Ref`
    given as `out=`. Arguments may hold Refs, also inside lists and tuples (handed on as lists).
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[int, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Free:
    """Drop the tensors of these buffers before the end of the run."""

    buffers: tuple[int, ...]


class NestedKind(enum.IntEnum):
    """Steps that run other plans, in C's order."""

    COND = 0
    LOOP = 1
    WHILE = 2


class PlaceKind(enum.IntEnum):
    """Where an input of a branch comes from, or a result goes to, in C's order."""

    BUFFER = 0
    CARRY = 1
    NUMBER = 2
    ROUND = 3


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A buffer, from byte `start` on and `step` bytes further in each round; or carry `id`; or the integer `start`.

    `bytes`: how large a result is.
    """

    kind: PlaceKind
    id: int
    start: PlanSize = 0
    step: PlanSize = 0
    bytes: PlanSize = 0


@final
@dataclass(frozen=True, slots=True)
class Carry:
    """A value that goes from round to round: the buffer it is in at first, and the one it ends in."""

    first: int
    last: int
    bytes: PlanSize


@final
@dataclass(frozen=True, slots=True, eq=False)
class Nested:
    """A condition, a loop of `count` rounds, or a loop while a condition holds, over plans (nested.c).

    The results of a branch are dense; a carry never lies where it is read from.
    """

    kind: NestedKind
    bodies: tuple[Any, ...]  # `plans.NestedPlan`
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    carries: tuple[Carry, ...] = ()
    condition: int = 0  # the buffer that decides
    count: PlanSize = 0

    def buffers(self) -> tuple[int, ...]:
        """All buffers it reads or writes."""
        decides = (self.condition,) if self.kind is NestedKind.COND else ()
        placed = [
            place.id for place in (*self.inputs, *self.outputs) if place.kind is PlaceKind.BUFFER
        ]
        carried = [number for carry in self.carries for number in (carry.first, carry.last)]
        return tuple(dict.fromkeys((*decides, *placed, *carried)))


@final
@dataclass(frozen=True, slots=True)
class Keep:
    """The next `steps` steps make the `Kept` buffers, of `bytes` together, out of `watched` ones alone.

    They run when the contents of a watched buffer (`sizes`: bytes of each) are not what they were, however they were
    changed; with `frozen`, only when one lies elsewhere. At most one in a plan; all that it makes is made by kernels and products.
    """

    watched: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: int
    bytes: int
    frozen: bool = False


Step = KernelStep | Product | Call | Free | Nested | Keep
