"""capture.objects.callbacks: native operations that would run the Python methods of objects where the trace cannot see.

In: operands of an index, a lookup, a comparison, a sort or a text. Out: whether Python methods would run inside: then they
are interpreted here, or the caller breaks the graph, so that what these methods read is guarded.
"""

from __future__ import annotations

import collections
import gc
import types
from typing import Any, Final

import torch

from argand.capture.objects import polyfills
from argand.capture.objects.methods import PLAIN, python_method
from argand.capture.objects.parts import Caller
from argand.capture.outside import real
from argand.capture.outside.arrays import KINDS
from argand.capture.outside.kinds import is_trusted_module
from argand.capture.outside.state import Outside
from argand.support.errors import Break, CaptureBreak

EQUALITY: Final = ("__eq__", "__hash__")
ORDER: Final = ("__lt__", "__gt__", "__le__", "__ge__")
TEXT: Final = ("__str__", "__repr__", "__format__")
TRUTH: Final = ("__bool__", "__len__")
NUMBER: Final = (
    "__index__",
    "__int__",
    "__float__",
    "__complex__",
    "__trunc__",
    "__floor__",
    "__ceil__",
)
_NESTED: Final = (list, tuple, set, frozenset, dict, collections.deque)
_WITHOUT_PARTS: Final = frozenset({int, float, bool, str, bytes, complex, type(None), torch.Size})
_CODE: Final = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
)
_MOST_PARTS: Final = 10_000
_SEQUENCES: Final = (list, tuple, str, bytes, range, collections.deque)


def runs_python(outside: Outside, value: Any, names: tuple[str, ...], depth: int = 8) -> bool:
    """Whether a native operation on a value would call a Python method with one of these names."""
    kind = type(value)
    if names[:3] == TEXT and shows_tensors(value):
        return True
    if isinstance(value, _NESTED):
        items: Any = (
            [part for row in dict.items(value) for part in row]
            if isinstance(value, dict)
            else value
        )
        return depth > 0 and any(runs_python(outside, item, names, depth - 1) for item in items)
    if isinstance(value, torch.Tensor):
        return names is TRUTH  # code that asks for it may run where no mode of the trace is on
    if kind in PLAIN:
        return False
    if kind in KINDS:
        return True  # its numbers are not known yet
    return any(_of_user(outside, value, name) is not None for name in names)


def shows_tensors(value: Any) -> bool:
    """Whether a text of a value may tell what a tensor holds: of the trace, or of one from outside, which varies.

    torch makes it with all modes off: of a placeholder it would show what lies in its memory.
    """
    waiting, seen = [value], set[int]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, torch.Tensor):
            return True
        if type(one) in _WITHOUT_PARTS or isinstance(one, _CODE) or id(one) in seen:
            continue
        seen.add(id(one))
        if len(seen) > _MOST_PARTS:
            return True
        waiting += gc.get_referents(one)
    return False


def refuse(outside: Outside, value: Any, names: tuple[str, ...], what: str) -> None:
    """Break the graph where native code would call Python methods."""
    if runs_python(outside, value, names):
        raise CaptureBreak(Break.B002, None, function=what)


def refuse_keys(outside: Outside, containers: tuple[Any, ...], what: str) -> None:
    """Break the graph where native code would compare keys of containers by Python methods."""
    keys = [key for each in containers if isinstance(each, _NESTED) for key in each]
    if len(keys) > 1 and any(
        _of_user(outside, key, name) is not None for key in keys for name in EQUALITY
    ):
        raise CaptureBreak(Break.B002, None, function=what)


def _of_user(outside: Outside, value: Any, name: str) -> Any:
    found = python_method(outside, value, name)
    return None if found is None or is_trusted_module(found.__module__) else found


def is_object_with(outside: Outside, value: Any, name: str) -> bool:
    """Whether a value is of a user's class with a Python method of this name."""
    return (
        not isinstance(value, torch.Tensor)
        and type(value) not in KINDS
        and _of_user(outside, value, name) is not None
    )


def settle_key(caller: Caller, container: Any, key: Any) -> Any:
    """A key with which native code calls no Python method that was not interpreted before."""
    kind = type(key)
    if kind is slice:
        parts = (key.start, key.stop, key.step)
        plain = all(type(part) in PLAIN for part in parts)
        return (
            key
            if plain
            else slice(*[part if type(part) in PLAIN else index(caller, part) for part in parts])
        )
    if kind is tuple:
        refuse(caller, key, EQUALITY, "hash() of a tuple of objects")
        return key
    if kind in PLAIN:
        return key
    if isinstance(container, _SEQUENCES):
        return index(caller, key)
    return (
        _look_up(caller, container, key) if isinstance(container, dict | set | frozenset) else key
    )


def index(caller: Caller, value: Any) -> Any:
    """What native code takes for an index: ints of any class as they are, of others an interpreted `__index__`."""
    if isinstance(value, int):
        return value
    found = _of_user(caller, value, "__index__")
    if found is not None:
        return caller.sealed(found, (value,), {})
    if id(value) in caller.world.opaque:
        raise CaptureBreak(Break.B011, None, type=type(value).__name__)
    return value


def _look_up(caller: Caller, container: Any, key: Any) -> Any:
    """Interpret what a lookup calls: the hash of the key, and its equality with keys of the same hash.

    What comes back finds the same place without a comparison: the key that is there, if one is equal.
    """
    found = _of_user(caller, key, "__hash__")
    if found is None and _of_user(caller, key, "__eq__") is None:
        return key
    if found is not None:
        hash_of(caller, key, found)
    number = real.apply(hash, key)
    held = [*container]
    for other in held:
        if other is not key and real.apply(hash, other) == number:
            before = caller.written()
            equal = caller.sealed(polyfills.is_equal, (other, key), {})
            if caller.written() != before:
                raise _native(
                    CaptureBreak(Break.B002, None, function="a lookup whose keys have effects")
                )
            if [*map(id, container)] != [*map(id, held)]:
                raise _native(
                    CaptureBreak(
                        Break.B002, None, function="a lookup whose keys change the container"
                    )
                )
            if equal:
                return other
    return key


def hash_of(caller: Caller, key: Any, found: Any) -> None:
    """Interpret `__hash__`, which native code then calls again: if that would be noticed, all of it is Python's."""
    before = caller.written()
    caller.sealed(found, (key,), {})
    if caller.written() != before:
        raise _native(CaptureBreak(Break.B002, None, function="__hash__ with effects"))


def hash_all(caller: Caller, keys: list[Any]) -> None:
    """The same for the keys of a new dict or set, which are compared where their hashes are equal."""
    for key in keys:
        found = None if type(key) in PLAIN else _of_user(caller, key, "__hash__")
        if found is not None:
            hash_of(caller, key, found)
    own = any(
        type(key) not in PLAIN and _of_user(caller, key, "__eq__") is not None for key in keys
    )
    if own and len({real.apply(hash, key) for key in keys}) < len(keys):
        raise CaptureBreak(Break.B002, None, function="a comparison of new keys")


def _native(cause: CaptureBreak) -> CaptureBreak:
    """The same break before the instruction: what was interpreted in it has not happened."""
    cause.native = True
    return cause
