"""capture.stored.tokens: what makes a function, class or descriptor the same one in another process.

In: an object that a trace relied on by identity. Out: its token, plain data that is equal in two processes when
the object does the same: a function is its code, names and constant defaults, a class its name and bases.
Code of torch, Python and Argand is known by name, for their versions are part of every key.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import importlib
import sys
import types
from typing import Any, Final

import torch

from argand.runtime.disk.values import Unstorable, name_of_function
from argand.runtime.skips import is_library

_SCALARS: Final = frozenset(
    (int, float, bool, str, bytes, complex, type(None), type(...), type(NotImplemented))
)
_NAMED: Final = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme, torch.device)
_WRAPPERS: Final = {staticmethod: "__func__", classmethod: "__func__"} | {
    functools.cached_property: "func",
    functools._lru_cache_wrapper: "__wrapped__",
}
_OF_CLASSES: Final = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)
_TYPES: Final = {
    kind: name for name, kind in reversed(vars(types).items()) if isinstance(kind, type)
}
IMMUTABLE: Final = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: a class of C code


@functools.lru_cache(maxsize=4096)
def code_hash(code: types.CodeType) -> str:
    """A hash of what code does: not where it stands."""
    state = hashlib.blake2b(code.co_code, digest_size=16)
    facts = (
        code.co_qualname,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
        (code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars),
        code.co_exceptiontable,
        *map(_constant, code.co_consts),
    )
    state.update(repr(facts).encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return code_hash(value)
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):
        return sorted(repr(_constant(item)) for item in value)
    return (type(value).__name__, repr(value))


def find(module: str, path: str) -> Any:
    """What a module that is there, or is ours, holds under a dotted name, as it lies in the dicts; None if nothing."""
    found: Any = (
        importlib.import_module(module) if module.startswith("argand.") else sys.modules.get(module)
    )
    for part in path.split("."):
        found = getattr(found, "__dict__", {}).get(part)
        found = found.__func__ if isinstance(found, staticmethod | classmethod) else found
    return found


class Tokens:
    """Makes tokens; `seen` are the ids of code that is part of one."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self._classes: dict[type, list[Any]] = {}
        self._open: set[int] = set()

    def of(self, value: Any, exact: bool = False) -> Any:
        """The token of an object; of one without a name its class, or Unstorable if it must be `exact`."""
        kind = type(value)
        if kind in _SCALARS or isinstance(value, _NAMED):
            return [kind.__name__, repr(value)]
        if kind is types.FunctionType:
            return self._function(value)
        if isinstance(value, type):
            return self.of_class(value)
        if kind in _WRAPPERS:
            return [kind.__name__, self.of(getattr(value, _WRAPPERS[kind]), exact)]
        if isinstance(value, property | types.DynamicClassAttribute):  # the latter of enumerations
            return ["property", *map(self.of, (value.fget, value.fset, value.fdel))]
        if kind is types.BuiltinFunctionType:
            return self._builtin(value, exact)
        if kind in _OF_CLASSES:
            return [kind.__name__, value.__objclass__.__module__, value.__qualname__]
        return self._rare(value, kind, exact)

    def _rare(self, value: Any, kind: type, exact: bool) -> list[Any]:
        if isinstance(value, types.ModuleType):
            return ["module", value.__name__]
        if isinstance(value, enum.Enum):
            return [*self.of_class(kind), value._name_]
        if kind is types.CodeType:
            self.seen.add(id(value))
            return ["code", code_hash(value)]
        if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            return ["op", str(value)]
        if kind is tuple and not exact:
            return ["tuple", *map(self.of, value)]
        if exact:
            raise Unstorable(f"an object of type {kind.__module__}.{kind.__qualname__} by identity")
        return ["a", *self.of_class(kind)]

    def _function(self, value: types.FunctionType) -> list[Any]:
        code = value.__code__
        self.seen.add(id(code))
        place = f"{code.co_qualname}:{code.co_firstlineno}"
        body = place if is_library(code) else code_hash(code)
        token = ["function", value.__module__, value.__qualname__, body]
        if value.__defaults__ or value.__kwdefaults__:
            token += [self.of(value.__defaults__), *self._items(value.__kwdefaults__ or {})]
        # they may hold each other
        if (value.__dict__ or value.__closure__) and id(value) not in self._open:
            self._open.add(id(value))
            # torch's decorators note the address of what they made in it
            token += self._items(
                {k: "its id" if item == id(value) else item for k, item in value.__dict__.items()}
            )
            if is_library(code):  # of others, what was read is guarded
                token += [self.of(cell.cell_contents) for cell in value.__closure__ or ()]
            self._open.discard(id(value))
        return token

    def _items(self, values: dict[str, Any]) -> list[Any]:
        return [[str(key), self.of(item)] for key, item in values.items()]

    def _builtin(self, value: Any, exact: bool) -> list[Any]:
        owner = value.__self__
        if owner is None or isinstance(owner, types.ModuleType | type):
            return ["builtin", getattr(owner, "__name__", ""), value.__module__, value.__qualname__]
        if exact:
            raise Unstorable(f"the bound method {value.__qualname__} by identity")
        return ["bound", value.__name__, *self.of_class(type(owner))]

    def of_class(self, kind: type) -> list[Any]:
        """The token of a class."""
        token = self._classes.get(kind)
        if token is None:
            bases = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
            token = self._classes[kind] = ["class", *bases, type(kind).__qualname__]
            if issubclass(kind, enum.Enum):
                token.append(
                    [[name, repr(item._value_)] for name, item in kind._member_map_.items()]
                )
        return token


def name_of(value: Any) -> list[str]:
    """Where a module, its namespace, a class or a function is found by name: [how, module, path]."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
        if sys.modules.get(name) is value:
            return ["module", name, ""]
    elif type(value) is dict:
        # they may differ
        for found in (value.get("__name__"), getattr(value.get("__spec__"), "name", None)):
            if type(found) is str and getattr(sys.modules.get(found), "__dict__", None) is value:
                return ["namespace", found, ""]
    else:
        home: Any = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
        own = str(getattr(value, "__module__", None) or getattr(home, "__module__", None))
        own = home.__name__ if isinstance(home, types.ModuleType) else own
        path = str(getattr(value, "__qualname__", ""))
        if find(own, path) is value:
            return ["named", own, path]
        if value in _TYPES:
            return ["named", "types", _TYPES[value]]
        if callable(value):
            return ["torch", *name_of_function(value)]
    raise Unstorable(f"{type(value).__name__} {getattr(value, '__qualname__', '')} without a name")
