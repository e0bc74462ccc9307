"""runtime.guards: what must still hold for compiled code to be right. Data only.

Capture makes these rows while it reads the frame's world; ``runtime.guard_programs`` turns them into a C
guard program. A ``Source`` says where a value lives, a ``Guard`` what must be true of it. The text of
a source is the expression the user would write.
"""

from __future__ import annotations

import enum
import weakref
from typing import Any, Final, NamedTuple, TypeAlias, final

import torch
from typing_extensions import override

from argand.runtime.sources import Source
from argand.runtime.strides import derived_strides as derived_strides
from argand.runtime.strides import inner_first as inner_first
from argand.support.errors import Location


@final
class GuardKind(enum.IntEnum):
    """What a guard checks; ``expected`` of each row in brackets. The C code knows the numbers."""

    TYPE_IS = 0  # [type] type(value) is expected
    ID_IS = 1  # [object] value is expected; held weakly where the object allows it
    EQUALS = 2  # [constant] same type and value; nan equals nan, -0.0 is not 0.0; containers deep
    LENGTH = 3  # [int] len() of a builtin container; with a TYPE_IS guard, of any object
    DICT_KEYS = 4  # [tuple of keys] in order
    HAS_ATTR = 5  # [name] hasattr(value, name)
    NO_ATTR = 6  # [name] not hasattr(value, name)
    DICT_CONTAINS = 7  # [key] key in a dict (or set)
    DICT_MISSING = 8  # [key] key not in a dict (or set)
    TENSOR = 9  # [TensorSpec]
    NOT_ALIASED = 10  # [tuple of sources] the source and these are pairwise different objects
    SAME_OBJECT = 11  # [source] both are one object
    GLOBAL_STATE = 12  # [None or state.snapshot()] torch's global state; None: as it is now
    WEAK_ALIVE = 13  # [object] the entry dies with this object; checks nothing else
    RELATION = 14  # [Relation] an integer expression over sources holds
    NO_OVERLAP = 15  # [tuple of sources] tensors with pairwise different storages
    MISSING = 16  # [None] the source has no value: an unset local, an absent global or dict key
    COMPARED = 17  # [ValueComparison] how a float compares with a number
    # [_native.Tables] what modules, classes and functions hold; asked before all others
    TABLES = 18
    HOLDS = 19  # [int, float, complex, str or bytes] the number or text in an object of a subclass; bytes: in any buffer
    # [tuple of keys] in order, as DICT_KEYS; weak references stand for what they lead to
    OBJECT_KEYS = 20


@final
class TensorSpec(NamedTuple):
    """Metadata a tensor must have; a None among sizes or strides allows anything there."""

    python_type: type
    dtype: torch.dtype
    device: torch.device
    sizes: tuple[int | None, ...]
    # None: sparse and friends have no strides. -2 - j: the size of dimension j times its stride
    strides: tuple[int | None, ...] | None
    requires_grad: bool
    keys: int  # raw dispatch key set: layout, conjugate, negative, inference, functorch, ...

    def stride(self, dim: int, tensor: torch.Tensor) -> int | None:
        """The stride a tensor must have in a dimension; None: any."""
        wanted = self.strides[dim] if self.strides is not None else None
        if wanted is None or wanted > -2:
            return wanted
        return max(tensor.size(-2 - wanted), 1) * tensor.stride(-2 - wanted)

    @override
    def __str__(self) -> str:
        grad = ", requires_grad" if self.requires_grad else ""
        sizes = ", ".join("*" if size is None else str(size) for size in self.sizes)
        name = self.python_type.__name__
        steps = ", ".join(
            "*" if step is None or step < 0 else str(step) for step in self.strides or ()
        )
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{name} {dtype}[{sizes}] strides ({steps}) on {self.device}{grad}"


COMPARISONS: Final = ("lt", "le", "eq", "ne", "gt", "ge")  # CPython's order


@final
class ValueComparison(NamedTuple):
    """Whether ``value <op> number`` holds."""

    operator: int  # a place in COMPARISONS
    number: float
    holds: bool

    @override
    def __str__(self) -> str:
        return f"{'' if self.holds else 'not '}{COMPARISONS[self.operator]} {self.number}"


Sum: TypeAlias = "tuple[tuple[int, tuple[SumFactor, ...]], ...]"
SumFactor: TypeAlias = "Source | tuple[str, Sum, Sum]"


@final
class Relation(NamedTuple):
    """``left <op> right`` over integers; a side is an int or a product-sum of sources.

    A factor is a source or ``(name, side, side)`` with ``//``, ``%``, ``min`` or ``max``.
    """

    operator: str  # one of == != < <= > >= divides
    left: Sum  # sum of coefficient * product of factors
    right: Sum
    text: str = ""  # for the user to read

    @override
    def __str__(self) -> str:
        return self.text or f"{self.left} {self.operator} {self.right}"


@final
class Guard(NamedTuple):
    """One row: a fact about one source, and the user's line that relied on it."""

    kind: GuardKind
    source: Source | None  # None for GLOBAL_STATE and TABLES only
    expected: Any = None
    where: Location | None = None

    @override
    def __str__(self) -> str:
        place = f" [{self.where}]" if self.where else ""
        shown = "" if self.expected is None else f" {_show(self.expected)}"
        return f"{self.kind.name} {self.source or ''}{shown}{place}".replace("  ", " ")


def _show(expected: object) -> str:
    if isinstance(expected, weakref.ref):
        expected = expected()
    if isinstance(expected, TensorSpec | Relation | ValueComparison):
        return str(expected)
    if isinstance(expected, type):
        return expected.__qualname__
    if isinstance(expected, tuple) and expected and isinstance(expected[0], Source):
        text = ", ".join(map(str, expected))
    else:
        text = str(expected) if isinstance(expected, Source) else repr(expected)
    return text if len(text) <= 80 else f"{text[:77]}..."


def tensor_spec(
    tensor: torch.Tensor,
    *,
    free: frozenset[int] = frozenset(),
    free_strides: frozenset[int] = frozenset(),
) -> TensorSpec:
    """The metadata of a tensor as it is now; the sizes of dimensions in ``free`` may be anything, and
    the strides of those in ``free_strides``.

    Strides of outer dimensions that follow from what is free depend on it the same way as they do now.
    """
    sizes = tuple(None if i in free else int(n) for i, n in enumerate(tensor.shape))
    strides: tuple[int | None, ...] | None = None
    if tensor.layout is torch.strided:
        strides = tensor.stride()
        if free or free_strides:
            strides = _strides(tensor, free, free_strides)
    return TensorSpec(
        python_type=type(tensor),
        dtype=tensor.dtype,
        device=tensor.device,
        sizes=sizes,
        strides=strides,
        requires_grad=tensor.requires_grad,
        keys=torch._C._dispatch_keys(tensor).raw_repr(),
    )


def _strides(
    tensor: torch.Tensor, free: frozenset[int], free_strides: frozenset[int]
) -> tuple[int | None, ...]:
    inner, strides = derived_strides(tensor), tensor.stride()
    open_ = set(free | free_strides)
    for i in inner_first(tensor):
        if inner[i] in open_:
            open_.add(i)

    def stride(dim: int) -> int | None:
        if dim in free_strides:
            return None
        j = inner[dim]
        return -2 - j if j is not None and j in open_ else strides[dim]

    return tuple(stride(dim) for dim in range(tensor.dim()))
