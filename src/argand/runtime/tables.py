"""runtime.tables: facts about tables that rarely change, for one row of a guard program.

In: what a trace found in the dicts of modules and in classes (or that there was nothing), the functions it went
through, and which classes it took for subclasses of abstract ones. Out: the C object that a TABLES guard expects: it costs one
comparison for each dict and class while nobody changes them. See tables.c.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Mapping
from typing import Any, Final

from argand.runtime._native import NULL, Tables
from argand.runtime.constants import is_constant

ABSENT, THE_OBJECT, OF_CLASS, EQUAL = range(4)  # the C code knows the numbers
_IMMUTABLE: Final = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: a class of C code that nobody can change
# What a class holds and acts by itself. Of other values only the class matters here: whether they are descriptors.
_ACTING: Final = (
    *(types.FunctionType, types.BuiltinFunctionType, staticmethod, classmethod, property, type),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        functools.cached_property,
        functools._lru_cache_wrapper,
    ),
)
# (id of a dict, name) -> the dict, what it holds
Names = Mapping[tuple[int, str], tuple[dict[str, Any], Any]]
Lookups = Mapping[tuple[type, str], Any]  # what a class holds; NULL for nothing, as above


def make_tables(
    names: Names,
    lookups: Lookups,
    own: Lookups,
    functions: Iterable[types.FunctionType],
    questions: Iterable[tuple[type, type, bool]] = (),
) -> Tables:
    """The facts as one object. `own`: what classes hold themselves, not their bases."""
    dicts: dict[int, tuple[dict[str, Any], list[Any]]] = {}
    for (_, name), (holder, found) in names.items():
        dicts.setdefault(id(holder), (holder, []))[1].append(_of_module(name, found))
    classes = [(kind, False, rows) for kind, rows in _by_class(lookups).items()]
    classes += [(kind, True, rows) for kind, rows in _by_class(own).items()]
    return Tables(
        tuple([(holder, tuple(rows)) for holder, rows in dicts.values()]),
        tuple([(kind, only, tuple(rows)) for kind, only, rows in classes]),
        tuple([_function(function) for function in {id(f): f for f in functions}.values()]),
        tuple(questions),
    )


def _of_module(name: str, found: Any) -> tuple[str, int, Any]:
    if found is NULL:
        return (name, ABSENT, None)
    return (name, EQUAL if is_constant(found) else THE_OBJECT, found)


def _by_class(lookups: Lookups) -> dict[type, list[tuple[str, int, Any]]]:
    tables: dict[type, list[tuple[str, int, Any]]] = {}
    for (kind, name), found in lookups.items():
        if kind.__flags__ & _IMMUTABLE:
            continue
        if found is NULL:
            row: tuple[str, int, Any] = (name, ABSENT, None)
        else:
            row = (
                (name, THE_OBJECT, found)
                if isinstance(found, _ACTING)
                else (name, OF_CLASS, type(found))
            )
        tables.setdefault(kind, []).append(row)
    return tables


def _function(function: types.FunctionType) -> tuple[types.FunctionType, Any, Any]:
    """A default that is no constant is guarded where it is read."""
    defaults, keywords = function.__defaults__, function.__kwdefaults__
    if defaults is not None and not all(map(is_constant, defaults)):
        defaults = tuple([item if is_constant(item) else NULL for item in defaults])
    if keywords is not None:
        keywords = {name: item if is_constant(item) else NULL for name, item in keywords.items()}
    return function, defaults, keywords
