"""capture.interpret.arguments: binds the arguments of an interpreted call to the names of a function.

In: a function and what it was called with. Out: its local variables at the start. Fails as CPython does, with
its own TypeError.
"""

from __future__ import annotations

import types
from typing import Any

from argand.capture.outside import real
from argand.capture.outside.kinds import is_constant
from argand.capture.outside.world import World
from argand.runtime.sources import Defaults, KwDefaults

_VARARGS, _VARKEYWORDS = 4, 8  # co_flags


def bind(
    world: World,
    function: types.FunctionType,
    code: types.CodeType,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> dict[str, Any]:
    """Local variables of `function(*args, **kwargs)` before its first instruction."""
    count = code.co_argcount
    names = code.co_varnames
    values = dict(zip(names[:count], args, strict=False))
    if len(args) > count and not code.co_flags & _VARARGS:
        _fail(function, args, kwargs)
    total = count + code.co_kwonlyargcount
    at = total
    if code.co_flags & _VARARGS:
        values[names[at]] = tuple(args[count:])
        at += 1
    if kwargs:
        _bind_keywords(function, code, names=names, at=at, values=values, args=args, kwargs=kwargs)
    elif code.co_flags & _VARKEYWORDS:
        values[names[at]] = {}
    _fill_defaults(
        world,
        function,
        names=names,
        count=count,
        total=total,
        values=values,
        args=args,
        kwargs=kwargs,
    )
    return values


def _bind_keywords(
    function: Any, code: Any, names: Any, at: int, values: Any, args: Any, kwargs: Any
) -> None:
    allowed = names[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    rest: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in allowed:
            if name in values:
                _fail(function, args, kwargs)
            values[name] = value
        else:
            rest[name] = value
    if code.co_flags & _VARKEYWORDS:
        values[names[at]] = rest
    elif rest:
        _fail(function, args, kwargs)


def _fill_defaults(
    world: World,
    function: types.FunctionType,
    names: Any,
    count: int,
    total: int,
    values: Any,
    args: Any,
    kwargs: Any,
) -> None:
    defaults, keywords = function.__defaults__ or (), function.__kwdefaults__ or {}
    first = count - len(defaults)
    for i, name in enumerate(names[:total]):
        if name in values:
            continue
        if first <= i < count:
            values[name] = _default(world, function, Defaults, i - first, defaults[i - first])
        elif i >= count and name in keywords:
            values[name] = _default(world, function, KwDefaults, name, keywords[name])
        else:
            _fail(function, args, kwargs)


def _default(world: World, function: Any, kind: type, key: Any, raw: Any) -> Any:
    if id(function) in world.made:
        return raw
    known = world.known.get(id(function))
    if is_constant(raw) and (known is None or id(function) in world.pinned):
        return raw
    source = world.source_of(function)
    return raw if source is None else world.read(world.child(kind, source, key), raw)


def _fail(function: Any, args: Any, kwargs: Any) -> None:
    real.call(function, args, kwargs)  # raises TypeError before it runs a line
