"""support.dataclass: the standard library's ``dataclass``, for classes that are defined at every start.

In: a class with annotated fields and no base classes. Out: the same class with slots, and the methods of a data class.
The library's decorator writes five methods as text and compiles each, 0.3 to 0.5 ms for every class that is imported:
a quarter of a warm start. Here ``__init__``, ``__eq__`` and ``__hash__`` are written when they are first called, and
the others are the same functions for all classes. ``dataclasses.fields`` and ``replace`` work on these classes, too;
``replace`` of this module does the same and is faster.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    dataclass_transform,
)

Class = TypeVar("Class", bound=type)
_NONE: Final = dataclasses.MISSING
_FIELDS: Final = "_argand_fields"


class Field(NamedTuple):
    """One field of a class."""

    name: str
    default: Any = _NONE
    factory: Any = _NONE
    compared: bool = True
    keyword: bool = False


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    *, slots: Literal[True], frozen: bool = False, eq: bool = True, kw_only: bool = False
) -> Callable[[Class], Class]:
    """A decorator as ``dataclasses.dataclass``, for classes with slots.

    Args:
        slots: always; said where it is used, so that the class reads as it does with the library.
        frozen: fields cannot be set again; with ``eq``, objects can be hashed.
        eq: objects are equal when their fields are; otherwise when they are the same object.
        kw_only: all fields are given by name.
    """
    return lambda cls: _make(cls, frozen, eq, kw_only)


def _make(cls: Class, frozen: bool, eq: bool, kw_only: bool) -> Class:
    if cls.__bases__ != (object,):
        raise TypeError(f"this dataclass takes no base classes, {cls.__qualname__} has some")
    own = dict(cls.__dict__)
    fields = tuple(_field(name, own, kw_only) for name in cls.__annotations__)
    for name in (*(field.name for field in fields), "__dict__", "__weakref__"):
        own.pop(name, None)
    own["__slots__"] = tuple(field.name for field in fields)
    own["__match_args__"] = tuple(field.name for field in fields if not field.keyword)
    own[_FIELDS] = fields
    own["__dataclass_fields__"] = _LibraryFields()
    own.setdefault("__repr__", _repr)
    if eq and "__eq__" not in own:
        own["__eq__"] = _later("__eq__", _equality_text)
        if own.get("__hash__") is None:  # a class body with __eq__ alone says None
            own["__hash__"] = _later("__hash__", _hash_text) if frozen else None
    if frozen:
        own |= {"__setattr__": _no_set, "__delattr__": _no_delete}
        own |= {"__getstate__": _get_state, "__setstate__": _set_state}
    own["__init__"] = _later("__init__", _frozen_init_text if frozen else _init_text)
    made = type(cls)(cls.__name__, (), own)
    made.__qualname__ = cls.__qualname__
    return made


def fields_of(cls: Any) -> tuple[Field, ...]:
    """The fields of such a class, or of an object of it."""
    found: tuple[Field, ...] = getattr(cls, _FIELDS)
    return found


def _field(name: str, own: dict[str, Any], kw_only: bool) -> Field:
    default = own.get(name, _NONE)
    if not isinstance(default, dataclasses.Field):
        return Field(name, default, keyword=kw_only)
    keyword = kw_only if default.kw_only is _NONE else default.kw_only
    return Field(name, default.default, default.default_factory, default.compare, keyword)


# --- methods written at their first call ----------------------------------------------------------------

MethodText: TypeAlias = Callable[[tuple[Field, ...]], str]


def _later(name: str, writer: MethodText) -> Callable[..., Any]:
    """A method that puts the real one in its place."""

    def first(self: Any, *args: Any, **keywords: Any) -> Any:
        method = _write(self.__class__, name, writer)
        setattr(self.__class__, name, method)
        return method(self, *args, **keywords)

    first.__name__ = name
    return first


def _write(cls: type, name: str, writer: MethodText) -> Callable[..., Any]:
    fields = fields_of(cls)
    names: dict[str, Any] = {"__name__": cls.__module__, "_set": object.__setattr__, "_NONE": _NONE}
    for number, field in enumerate(fields):
        names |= {f"_default{number}": field.default, f"_made{number}": field.factory}
    exec(compile(writer(fields), "<string>", "exec", dont_inherit=True), names)
    method: Callable[..., Any] = names[name]
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method


def _init_text(fields: tuple[Field, ...], put: str = "self.{0} = {1}") -> str:
    given, keywords, body = ["self"], list[str](), list[str]()
    for number, field in enumerate(fields):
        default, value = "", field.name
        if field.factory is not _NONE:
            default, value = " = _NONE", f"_made{number}() if {value} is _NONE else {value}"
        elif field.default is not _NONE:
            default = f" = _default{number}"
        (keywords if field.keyword else given).append(f"{field.name}{default}")
        body.append(put.format(field.name, value))
    header = ", ".join([*given, *(["*", *keywords] if keywords else [])])
    return f"def __init__({header}):\n " + "\n ".join(body or ["pass"])


def _frozen_init_text(fields: tuple[Field, ...]) -> str:
    return _init_text(fields, "_set(self, {0!r}, {1})")


def _values_text(fields: tuple[Field, ...], of: str) -> str:
    return "(" + "".join(f"{of}.{field.name}, " for field in fields if field.compared) + ")"


def _equality_text(fields: tuple[Field, ...]) -> str:
    values = f"{_values_text(fields, 'self')} == {_values_text(fields, 'other')}"
    same = "other.__class__ is self.__class__"
    return f"def __eq__(self, other):\n return {values} if {same} else NotImplemented"


def _hash_text(fields: tuple[Field, ...]) -> str:
    return f"def __hash__(self):\n return hash({_values_text(fields, 'self')})"


# --- methods that all classes share ---------------------------------------------------------------------


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _no_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__slots__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__slots__, state, strict=True):
        object.__setattr__(self, name, value)


# --- for the library's functions ------------------------------------------------------------------------


class _LibraryFields:
    """``__dataclass_fields__``, made by the library when somebody asks."""

    def __get__(self, instance: object, owner: Any) -> dict[str, dataclasses.Field[Any]]:
        rows = [(field.name, Any, _library_field(field)) for field in fields_of(owner)]
        library: Any = dataclasses.make_dataclass(owner.__name__, rows)
        found: dict[str, dataclasses.Field[Any]] = library.__dataclass_fields__
        for name, text in owner.__annotations__.items():
            found[name].type = text
        owner.__dataclass_fields__ = found
        return found


def _library_field(field: Field) -> Any:
    keywords: dict[str, Any] = {"compare": field.compared, "kw_only": field.keyword}
    if field.factory is not _NONE:
        keywords["default_factory"] = field.factory
    elif field.default is not _NONE:
        keywords["default"] = field.default
    return dataclasses.field(**keywords)


if TYPE_CHECKING:
    from dataclasses import replace as replace
else:

    def replace(old: Any, /, **changes: Any) -> Any:
        """The same with other values in some fields."""
        return old.__class__(**{name: getattr(old, name) for name in old.__slots__} | changes)
