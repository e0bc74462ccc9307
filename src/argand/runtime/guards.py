"""runtime.guards: what must still hold for compiled code to be right. Data only.

Capture makes these rows while it reads the frame's world; ``runtime.guard_programs`` turns them into a C
guard program. A ``Source`` says where a value lives, a ``Guard`` what must be true of it. The text of
a source is the expression the user would write.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, final

import torch
from typing_extensions import override

from argand.runtime.strides import derived_strides as derived_strides
from argand.runtime.strides import inner_first as inner_first
from argand.support.errors import Location

# Dicts of nn.Module whose items the user reads as plain attributes of the module.
_MODULE_DICTS = frozenset({"_parameters", "_buffers", "_modules"})


class _Place:
    """Base of sources: plain classes of slots, because capture makes thousands of them.

    Two are equal when they are of one class and have equal fields. They are never changed.
    """

    __slots__ = ()
    text = ""  # what the user would write, over the fields
    base: Source | None = None  # the source it is found under

    @override
    def __str__(self) -> str:
        return self.text.format(self=self)

    @override
    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    @override
    def __hash__(self) -> int:
        return hash(self._key())

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._key()}"

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)  # type: ignore[attr-defined]


class _Named(_Place):
    __slots__ = ("name",)
    __match_args__ = ("name",)
    text = "{self.name}"

    def __init__(self, name: str) -> None:
        self.name = name

    @override
    def _key(self) -> tuple[Any, ...]:
        return (type(self), self.name)


class _Under(_Place):
    """What is found by a name under another source."""

    __slots__ = ("base", "name")
    __match_args__ = ("base", "name")
    text = "{self.base}.{self.name}"

    def __init__(self, base: Source, name: str) -> None:
        self.base, self.name = base, name

    @override
    def _key(self) -> tuple[Any, ...]:
        return (self.base, self.name)


class _At(_Place):
    """What is found at a position of another source."""

    __slots__ = ("base", "index")
    __match_args__ = ("base", "index")

    def __init__(self, base: Source, index: int) -> None:
        self.base, self.index = base, index


class _Of(_Place):
    """What belongs to another source."""

    __slots__ = ("base",)
    __match_args__ = ("base",)

    def __init__(self, base: Source) -> None:
        self.base = base


@final
class Local(_Named):
    """A local variable or argument of the frame."""

    __slots__ = ()


@final
class Cell(_Named):
    """The contents of a cell or free variable of the frame."""

    __slots__ = ()


@final
class Global(_Named):
    """A global of the frame's module; missing when the name is not in ``f_globals``."""

    __slots__ = ()


@final
class Builtin(_Named):
    """A name of the frame's builtins."""

    __slots__ = ()


@final
class FrameFunction(_Named):
    """The function whose frame this is."""

    __slots__ = ()

    def __init__(self, name: str = "this function") -> None:
        super().__init__(name)


@final
class Const(_Place):
    """An object the guard program holds strongly: modules, classes, functions. Equal by identity."""

    __slots__ = ("value",)
    __match_args__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @override
    def _key(self) -> tuple[Any, ...]:
        return (id(self.value),)

    @override
    def __str__(self) -> str:
        value = self.value
        if type(value) is dict and type(value.get("__name__")) is str:
            return f"globals of {value['__name__']}"  # all of it would be thousands of lines
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        return str(name or repr(value))


@final
class Attr(_Under):
    """``getattr(base, name)``: generic, may run descriptors, so it costs most."""

    __slots__ = ()


@final
class DictAttr(_Under):
    """``base.__dict__[name]``: no descriptors. On a class: its own dict, not its bases'."""

    __slots__ = ()


@final
class TypeAttr(_Under):
    """What the class ``base`` or the first of its bases holds under ``name``, not bound."""

    __slots__ = ()


@final
class KwDefaults(_Under):
    """``base.__kwdefaults__[name]`` of a function."""

    __slots__ = ()
    text = "{self.base}.__kwdefaults__[{self.name!r}]"


@final
class Item(_Place):
    """``base[key]`` of a list or tuple (int key) or a dict (constant key), by exact C access."""

    __slots__ = ("base", "key")
    __match_args__ = ("base", "key")

    def __init__(self, base: Source, key: Any) -> None:
        self.base, self.key = base, key

    @override
    def _key(self) -> tuple[Any, ...]:
        return (self.base, self.key)

    @override
    def __str__(self) -> str:
        if isinstance(self.base, DictAttr) and self.base.name in _MODULE_DICTS:
            owner, key = str(self.base.base), str(self.key)
            return f"{owner}[{key}]" if key.isdigit() else f"{owner}.{key}"
        return f"{self.base}[{self.key!r}]"


@final
class Object(_Place):
    """An object that is known by identity and not kept alive: the key of a dict. The program ends with it."""

    __slots__ = ("reference",)
    __match_args__ = ("reference",)

    def __init__(self, value: Any) -> None:
        self.reference = weakref.ref(value)

    @override
    def _key(self) -> tuple[Any, ...]:
        return (id(self.reference),)  # one object, one reference

    @override
    def __str__(self) -> str:
        return f"a {type(self.reference()).__name__}"


@final
class Keyed(_Place):
    """``base[key]`` of a dict whose key is an object, known by identity and not kept alive."""

    __slots__ = ("base", "key")
    __match_args__ = ("base", "key")
    text = "{self.base}[{self.key}]"

    def __init__(self, base: Source, key: Object) -> None:
        self.base, self.key = base, key

    @override
    def _key(self) -> tuple[Any, ...]:
        return (self.base, self.key)

    @property
    def reference(self) -> weakref.ref[Any]:
        """Leads to the key."""
        return self.key.reference


@final
class ClosureCell(_At):
    """``base.__closure__[index]`` of a function: the cell itself."""

    __slots__ = ()
    text = "{self.base}.__closure__[{self.index}]"


@final
class Closure(_At):
    """``base.__closure__[index].cell_contents`` of a function."""

    __slots__ = ()
    text = "{self.base}.__closure__[{self.index}].cell_contents"


@final
class Defaults(_At):
    """``base.__defaults__[index]`` of a function."""

    __slots__ = ()
    text = "{self.base}.__defaults__[{self.index}]"


@final
class TypeOf(_Of):
    """``type(base)``."""

    __slots__ = ()
    text = "type({self.base})"


@final
class DictOf(_Of):
    """``base.__dict__`` itself (the real dict; a class has none)."""

    __slots__ = ()
    text = "{self.base}.__dict__"


@final
class SizeOf(_At):
    """``base.size(index)`` of a tensor, as an int."""

    __slots__ = ()
    text = "{self.base}.shape[{self.index}]"


@final
class OffsetOf(_Place):
    """``base.storage_offset()`` of a tensor, as an int."""

    __slots__ = ("base",)
    __match_args__ = ("base",)
    text = "{self.base}.storage_offset()"
    index = -1  # to the C code it is the size before the first

    def __init__(self, base: Source) -> None:
        self.base = base


@final
class Quotient(_Place):
    """``base // divisor`` of an int."""

    __slots__ = ("base", "divisor")
    __match_args__ = ("base", "divisor")
    text = "({self.base} // {self.divisor})"

    def __init__(self, base: Source, divisor: int) -> None:
        self.base, self.divisor = base, divisor


@final
class MadeFrom(_Place):
    """What a function of ours makes of ``base``: the tensor over the memory of an array."""

    __slots__ = ("base", "function")
    __match_args__ = ("base", "function")
    text = "{self.function.__name__}({self.base})"

    def __init__(self, base: Source, function: Callable[[Any], Any]) -> None:
        self.base, self.function = base, function


_Root: TypeAlias = Local | Cell | Global | Builtin | FrameFunction | Const | Object
_Part: TypeAlias = Attr | DictAttr | TypeAttr | KwDefaults | Item | Keyed | ClosureCell | Closure | Defaults
Source: TypeAlias = _Root | _Part | TypeOf | DictOf | SizeOf | OffsetOf | Quotient | MadeFrom


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
    TABLES = 18  # [_native.Tables] what modules, classes and functions hold; asked before all others
    HOLDS = (
        19  # [int, float, complex, str or bytes] the number or text in an object of a subclass; bytes: in any buffer
    )
    OBJECT_KEYS = 20  # [tuple of keys] in order, as DICT_KEYS; weak references stand for what they lead to


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
        steps = ", ".join("*" if step is None or step < 0 else str(step) for step in self.strides or ())
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
    text = repr(expected)
    return text if len(text) <= 80 else f"{text[:77]}..."


def tensor_spec(tensor: torch.Tensor, *, free: frozenset[int] = frozenset()) -> TensorSpec:
    """The metadata of a tensor as it is now; the sizes of dimensions in ``free`` may be anything.

    With a free size the strides of outer dimensions depend on it: the same way as they do now.
    """
    sizes = tuple(None if i in free else int(n) for i, n in enumerate(tensor.shape))
    strides: tuple[int | None, ...] | None = None
    if tensor.layout is torch.strided:
        strides = tensor.stride() if not free else _strides(tensor, free)
    return TensorSpec(
        python_type=type(tensor),
        dtype=tensor.dtype,
        device=tensor.device,
        sizes=sizes,
        strides=strides,
        requires_grad=tensor.requires_grad,
        keys=torch._C._dispatch_keys(tensor).raw_repr(),
    )


def _strides(tensor: torch.Tensor, free: frozenset[int]) -> tuple[int, ...]:
    inner, strides = derived_strides(tensor), tensor.stride()
    open_ = set(free)
    for i in inner_first(tensor):
        if inner[i] in open_:
            open_.add(i)
    return tuple(-2 - j if (j := inner[i]) is not None and j in open_ else strides[i] for i in range(tensor.dim()))
