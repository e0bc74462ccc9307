"""runtime.guards: what must still hold for compiled code to be right. Data only.

Capture makes these rows while it reads the frame's world; ``runtime.programs`` turns them into a C
guard program. A ``Source`` says where a value lives, a ``Guard`` what must be true of it. The text of
a source is the expression the user would write.
"""

from __future__ import annotations

import enum
import weakref
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import torch
from typing_extensions import override

from argand.support.errors import Location

# Dicts of nn.Module whose items the user reads as plain attributes of the module.
_MODULE_DICTS = frozenset({"_parameters", "_buffers", "_modules"})


@final
@dataclass(frozen=True, slots=True)
class Local:
    """A local variable or argument of the frame."""

    name: str

    @override
    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Cell:
    """The contents of a cell or free variable of the frame."""

    name: str

    @override
    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Global:
    """A global of the frame's module; missing when the name is not in ``f_globals``."""

    name: str

    @override
    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Builtin:
    """A name of the frame's builtins."""

    name: str

    @override
    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """An object the guard program holds strongly: modules, classes, functions. Equal by identity."""

    value: Any

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and other.value is self.value

    @override
    def __hash__(self) -> int:
        return id(self.value)

    @override
    def __str__(self) -> str:
        return str(
            getattr(self.value, "__qualname__", None)
            or getattr(self.value, "__name__", repr(self.value))
        )


@final
@dataclass(frozen=True, slots=True)
class Attr:
    """``getattr(base, name)``: generic, may run descriptors, so it is the dear road."""

    base: Source
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


@final
@dataclass(frozen=True, slots=True)
class DictAttr:
    """``base.__dict__[name]``: no descriptors. On a class: its own dict, not its bases'."""

    base: Source
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


@final
@dataclass(frozen=True, slots=True)
class Item:
    """``base[key]`` of a list or tuple (int key) or a dict (constant key), by exact C access."""

    base: Source
    key: Any

    @override
    def __str__(self) -> str:
        if isinstance(self.base, DictAttr) and self.base.name in _MODULE_DICTS:
            key = str(self.key)
            owner = str(self.base.base)
            return f"{owner}[{key}]" if key.isdigit() else f"{owner}.{key}"
        return f"{self.base}[{self.key!r}]"


@final
@dataclass(frozen=True, slots=True)
class FrameFunction:
    """The function whose frame this is."""

    name: str = "this function"

    @override
    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class ClosureCell:
    """``base.__closure__[index]`` of a function: the cell itself."""

    base: Source
    index: int

    @override
    def __str__(self) -> str:
        return f"{self.base}.__closure__[{self.index}]"


@final
@dataclass(frozen=True, slots=True)
class Contents:
    """``base.cell_contents`` of a cell."""

    base: Source
    name: str = ""  # the variable, for the user to read

    @override
    def __str__(self) -> str:
        return self.name or f"{self.base}.cell_contents"


@final
@dataclass(frozen=True, slots=True)
class Closure:
    """``base.__closure__[index].cell_contents`` of a function."""

    base: Source
    index: int
    name: str = ""  # the free variable, for the user to read

    @override
    def __str__(self) -> str:
        return self.name or f"{self.base}.__closure__[{self.index}].cell_contents"


@final
@dataclass(frozen=True, slots=True)
class Defaults:
    """``base.__defaults__[index]`` of a function."""

    base: Source
    index: int

    @override
    def __str__(self) -> str:
        return f"{self.base}.__defaults__[{self.index}]"


@final
@dataclass(frozen=True, slots=True)
class KwDefaults:
    """``base.__kwdefaults__[name]`` of a function."""

    base: Source
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.base}.__kwdefaults__[{self.name!r}]"


@final
@dataclass(frozen=True, slots=True)
class TypeOf:
    """``type(base)``."""

    base: Source

    @override
    def __str__(self) -> str:
        return f"type({self.base})"


@final
@dataclass(frozen=True, slots=True)
class TypeAttr:
    """What the class ``base`` or the first of its bases holds under ``name``, not bound."""

    base: Source
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


@final
@dataclass(frozen=True, slots=True)
class DictOf:
    """``base.__dict__`` itself (the real dict; a class has none)."""

    base: Source

    @override
    def __str__(self) -> str:
        return f"{self.base}.__dict__"


@final
@dataclass(frozen=True, slots=True)
class SizeOf:
    """``base.size(dim)`` of a tensor, as an int."""

    base: Source
    dim: int

    @override
    def __str__(self) -> str:
        return f"{self.base}.shape[{self.dim}]"


Source: TypeAlias = (
    Local
    | Cell
    | Global
    | Builtin
    | FrameFunction
    | Const
    | Attr
    | DictAttr
    | Item
    | ClosureCell
    | Contents
    | Closure
    | Defaults
    | KwDefaults
    | TypeOf
    | TypeAttr
    | DictOf
    | SizeOf
)


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
    MISSING = 16  # [None] the source leads nowhere: an unset local, an absent global or dict key


@final
@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Metadata a tensor must have; a None among sizes or strides allows anything there."""

    python_type: type
    dtype: torch.dtype
    device: torch.device
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None  # None: sparse and friends have no strides
    requires_grad: bool
    keys: int  # raw dispatch key set: layout, conjugate, negative, inference, functorch, ...

    @override
    def __str__(self) -> str:
        grad = ", requires_grad" if self.requires_grad else ""
        sizes = ", ".join("*" if size is None else str(size) for size in self.sizes)
        name = self.python_type.__name__
        return f"{name} {str(self.dtype).removeprefix('torch.')}[{sizes}] strides {self.strides} on {self.device}{grad}"


@final
@dataclass(frozen=True, slots=True)
class Relation:
    """``left <op> right`` over integers; a side is an int or a product-sum of sources."""

    operator: str  # one of == != < <= > >= divides
    left: tuple[tuple[int, tuple[Source, ...]], ...]  # sum of coefficient * product of sources
    right: tuple[tuple[int, tuple[Source, ...]], ...]


@final
@dataclass(frozen=True, slots=True)
class Guard:
    """One row: a fact about one source, and the user's line that relied on it."""

    kind: GuardKind
    source: Source | None  # None for GLOBAL_STATE only
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
    if isinstance(expected, TensorSpec):
        return str(expected)
    if isinstance(expected, type):
        return expected.__qualname__
    text = repr(expected)
    return text if len(text) <= 80 else f"{text[:77]}..."


def tensor_spec(tensor: torch.Tensor, *, free: frozenset[int] = frozenset()) -> TensorSpec:
    """The metadata of a tensor as it is now; the sizes of dimensions in ``free`` may be anything.

    With a free size the strides of outer dimensions depend on it and are left open as well.
    """
    sizes = tuple(None if i in free else int(n) for i, n in enumerate(tensor.shape))
    strides: tuple[int | None, ...] | None = None
    if tensor.layout is torch.strided:
        real = tensor.stride()
        loose = [
            any(real[j] < real[i] for j in free) or (bool(free) and tensor.shape[i] <= 1)
            for i in range(tensor.dim())
        ]
        strides = tuple(None if loose[i] else int(real[i]) for i in range(tensor.dim()))
    return TensorSpec(
        python_type=type(tensor),
        dtype=tensor.dtype,
        device=tensor.device,
        sizes=sizes,
        strides=strides,
        requires_grad=tensor.requires_grad,
        keys=torch._C._dispatch_keys(tensor).raw_repr(),
    )
