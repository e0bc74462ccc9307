"""capture.outside.kinds: what a trace may take a value from outside for, by its type.

In: a value or a class. Out: whether it is a constant (EQUALS says everything about it), whether it is known by
identity, whether it is a number or text under another name. `pure` knows whose state lives in C code, where no guard sees it.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
import weakref
from typing import Any, Final

import numpy
import torch

SCALARS: Final = frozenset({int, float, bool, str, bytes, complex, type(None)})
SINGLETONS: Final = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme, enum.Enum)
SINGLETONS_EXACT: Final = frozenset({type(...), type(NotImplemented)})
EQUAL_TYPES: Final = frozenset(
    {torch.device, torch.Size, range, slice, frozenset, types.GenericAlias, types.UnionType}
)
PINNED: Final = (
    type,
    types.ModuleType,
    types.CodeType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    weakref.ref,
    functools._lru_cache_wrapper,
    numpy.ufunc,
    type(numpy.sum),  # what asks `__array_function__`
)
PLAIN_TENSORS: Final = frozenset({torch.Tensor, torch.nn.Parameter})
HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by Python code, or by modern C code
# Classes of C code whose objects have nothing but what their attributes tell.
HARMLESS: Final = frozenset(
    {property, staticmethod, classmethod, types.CodeType} | {types.CellType, object}
)
_BASES: Final = (int, float, str, bytes, complex)
_PLAIN_FORM: Final[dict[type, Any]] = {  # by the base's methods, whatever the subclass does
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: lambda text: str.__getitem__(text, slice(None)),
    bytes: lambda text: bytes.__getitem__(text, slice(None)),
}


def is_constant(value: Any) -> bool:
    """Whether a value is immutable all the way down, so that EQUALS says everything about it."""
    kind = type(value)
    if kind in SCALARS or kind in SINGLETONS_EXACT:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(is_constant, value))
    if kind is slice:
        return is_constant((value.start, value.stop, value.step))
    return kind in EQUAL_TYPES or isinstance(value, SINGLETONS) or is_member(value)


def is_enumeration(kind: type) -> bool:
    """Whether a class is an enumeration of C++ (pybind11 makes them): its objects are numbers with names."""
    return type(kind).__name__ == "pybind11_type" and "__members__" in vars(kind)


def is_member(value: Any) -> bool:
    """Whether a value is the object that an enumeration of C++ has for one of its names."""
    kind = type(value)
    if not is_enumeration(kind):
        return False
    return any(value is member for member in kind.__members__.values())


def is_settled(value: Any) -> bool:
    """Whether a value compares by what it is: a constant, or a function, class or module, equal to itself only."""
    return is_constant(value) or isinstance(value, (*PINNED, types.FunctionType))


def is_object_key(key: Any) -> bool:
    """Whether a key of a dict is an object with a state, which is known by identity: a tensor, or one of a class."""
    if isinstance(key, torch.Tensor):
        return True
    return (
        not is_settled(key)
        and not isinstance(key, (*_BASES, tuple))
        and bool(type(key).__weakrefoffset__)
    )


def scalar_in(value: Any) -> Any:
    """The number or text that an object of a subclass of `int`, `str` and so on is; the bytes of a number of numpy; or None."""
    if isinstance(value, _BASES):
        base: Any = next(base for base in _BASES if isinstance(value, base))
        return _PLAIN_FORM[base](value)
    if isinstance(value, numpy.number | numpy.bool_):
        held: Any = value
        return memoryview(held).tobytes()
    return None


def is_numpy_number(value: Any) -> bool:
    """Whether a value is one of numpy's numbers."""
    return isinstance(value, numpy.number | numpy.bool_)


@functools.cache
def is_trusted_module(name: object) -> bool:
    """Modules whose functions and classes nobody replaces: the standard library, torch, ourselves."""
    top = name.partition(".")[0] if isinstance(name, str) else ""  # `__module__` may be anything
    return top in {"torch", "argand", "numpy"} or top in sys.stdlib_module_names


def tuple_like(raw: Any, items: list[Any]) -> Any:
    """A tuple of the same class; those of C (`sys.flags`) have constructors of their own, or none."""
    if not hasattr(type(raw), "n_sequence_fields"):
        return tuple.__new__(type(raw), items)
    same = all(new is old for new, old in zip(items, tuple.__iter__(raw), strict=True))
    return raw if same else type(raw)(items)


def native_base(kind: type) -> type:
    """The C class at the root of a class, whose `__new__` makes it; C classes on the heap have one of their own."""
    made = types.BuiltinFunctionType
    own = (
        base
        for base in kind.__mro__
        if not base.__flags__ & HEAP_TYPE or type(vars(base).get("__new__")) is made
    )
    return next(own)
