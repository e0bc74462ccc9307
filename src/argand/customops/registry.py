"""customops.registry: the operators defined here, by qualified name.

Module state behind a lock (design D8): an operator lives in torch's dispatcher for as long as its
``Library`` object does, so somebody has to keep it.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from typing import Any, Final

import torch

from argand.customops.errors import RegistrationError, SchemaError
from argand.customops.operator import CFunction, Operator
from argand.support.errors import Location
from argand.support.locks import make_lock

RESERVED_NAMESPACES: Final = frozenset(
    {"prim", "prims", "aten", "at", "torch", "pytorch", "argand"}
)

_lock: Final = make_lock()
_ops: Final[dict[str, Operator]] = {}
kernels: Final[set[types.CodeType]] = set()  # code of implementations written in Python


def parse_name(qualname: str, where: Location | None = None) -> tuple[str, str]:
    """(namespace, name) of ``"ns::name"``."""
    namespace, separator, name = qualname.partition("::")
    if not separator:
        raise SchemaError(
            f"the name {qualname!r} has no namespace",
            where=where,
            hint=f'write "mylib::{qualname}"',
        )
    if namespace in RESERVED_NAMESPACES:
        raise SchemaError(
            f"{namespace!r} is a reserved namespace",
            where=where,
            hint="use the name of your library; reserved: "
            + ", ".join(sorted(RESERVED_NAMESPACES)),
        )
    for part, what in ((namespace, "namespace"), (name, "operator name")):
        if "." in part:
            raise SchemaError(
                f"the {what} {part!r} has a dot: overloads are not supported", where=where
            )
        if not re.fullmatch(r"[A-Za-z_]\w*", part):
            raise SchemaError(f"the {what} {part!r} is not an identifier", where=where)
    return namespace, name


def refuse_second(qualname: str, where: Location | None) -> None:
    """A name that is taken is an error naming the first operator."""
    first = find(qualname)
    if first is not None:
        text = f"operator {qualname!r} is defined already, at {first.where}"
        raise RegistrationError(text, where=where, hint="choose another name")


def remember(op: Operator) -> None:
    """Keep an operator alive."""
    with _lock:
        refuse_second(op.qualname, op.where)
        _ops[op.qualname] = op


def forget(qualname: str) -> None:
    """Drop an operator, so that its name is free again."""
    with _lock:
        _ops.pop(qualname, None)


def find(qualname: str) -> Operator | None:
    """The operator defined here under a name."""
    with _lock:
        return _ops.get(qualname)


def c_function(name: str) -> CFunction:
    """The C function of the name that plans and caches hold; KeyError where it is not, or of another version."""
    op = find(name.partition("|")[0])
    return {f.name: f for f in (op.c_functions.values() if op else ())}[name]


def version_of(qualname: str) -> str | None:
    """What a cache key holds of an operator; None, so no entry, where its author gave no version."""
    op = find(qualname)
    if op is None or op.version is None:
        return None
    return f"{op.schema} {op.version} {' '.join(f.name for f in op.c_functions.values())}"


def existing_overload(qualname: str) -> Any:
    """The overload of an operator somebody else defined with torch.library."""
    namespace, separator, name = qualname.partition("::")
    if not separator:
        raise SchemaError(f"the name {qualname!r} has no namespace")
    try:
        return getattr(getattr(torch.ops, namespace), name).default
    except AttributeError:
        raise RegistrationError(
            f"there is no operator {qualname!r}",
            hint="define it first; did its module get imported?",
        ) from None


def location_of(function: Callable[..., Any]) -> Location:
    """Where a function was written."""
    code = getattr(function, "__code__", None)
    if code is None:
        return Location("<unknown>", 0)
    return Location(code.co_filename, code.co_firstlineno, function.__name__)
