"""runtime.sources: where a value of the frame's world lives. Data only.

The text of a source is the expression the user would write; ``runtime.guards`` says what must be true of its value.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias, final

from typing_extensions import override

from argand.runtime.strides import derived_strides as derived_strides
from argand.runtime.strides import inner_first as inner_first

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
class StrideOf(_Place):
    """``base.stride(dim)`` of a tensor, as an int; in steps of an inner dimension where one is given."""

    __slots__ = ("base", "dim", "inner")
    __match_args__ = ("base", "dim", "inner")

    def __init__(self, base: Source, dim: int, inner: int | None = None) -> None:
        self.base, self.dim, self.inner = base, dim, inner

    @property
    def place(self) -> str:
        """The stride, whatever it is counted in."""
        return f"{self.base}.stride({self.dim})"

    @override
    def __str__(self) -> str:
        over = "" if self.inner is None else f" // {self.base}.stride({self.inner})"
        return f"({self.place}{over})" if over else self.place

    @property
    def index(self) -> int:
        """To the C code strides are the sizes before the offset, backwards: 64 for each inner dimension."""
        inner = 0 if self.inner is None else self.inner + 1
        return -2 - (self.dim + 64 * inner)

    def evaluate(self, tensor: Any) -> int:
        """What it is for a tensor."""
        step: int = 1 if self.inner is None else tensor.stride(self.inner)
        return tensor.stride(self.dim) // step if step else -1


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


_Part: TypeAlias = (
    Attr | DictAttr | TypeAttr | KwDefaults | Item | Keyed | ClosureCell | Closure | Defaults
)


_Number: TypeAlias = SizeOf | StrideOf | OffsetOf | Quotient


Source: TypeAlias = _Root | _Part | TypeOf | DictOf | _Number | MadeFrom
