"""capture.objects.holders: attributes of what holds a program: modules, classes, `super()`, functions and cells.

In: one of these and a name. Out: the attribute, as Python finds it, with a guard on what may change.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Final

from argand.capture.markers import MISSING
from argand.capture.objects.found import (
    class_value,
    is_data_descriptor,
    is_trusted,
    rely_on,
    written,
)
from argand.capture.objects.methods import is_written, lookup
from argand.capture.objects.parts import Caller
from argand.capture.outside import real
from argand.capture.outside.journal import DELETED
from argand.capture.outside.kinds import PINNED, is_constant, is_trusted_module
from argand.capture.outside.state import Outside
from argand.capture.outside.world import World
from argand.runtime.guards import GuardKind
from argand.runtime.sources import Attr, Closure, ClosureCell, Const, DictOf, Source
from argand.support.errors import Break, CaptureBreak

# no token of a class or function holds these
_UNTOLD: Final = frozenset({"__dict__", "__annotations__", "__doc__"})
# themselves without a word, or read by rules of their own
_SEEN: Final = (types.FunctionType, list, dict, set)
_IMMUTABLE: Final = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
_OF_BASES: Final = frozenset({"__bases__", "__base__", "__mro__", "__flags__", "__basicsize__"})


def module_attribute(caller: Caller, owner: types.ModuleType, name: str) -> Any:
    """`module.name`."""
    base = caller.world.source_of(owner) or caller.world.const(owner)
    if name == "__dict__" and not is_trusted_module(str(caller.frames[-1].globals.get("__name__"))):
        return caller.world.namespace(caller.world.child(DictOf, base, None), owner.__dict__)
    entry = caller.journal.globals.get(id(owner.__dict__))
    if entry is not None and name in entry.values:
        return entry.values[name]
    try:
        raw = real.attribute(owner, name)
    finally:  # a name that is bound when it is first asked for, as those of `torch.ops`, is there now
        if name not in owner.__dict__:
            caller.world.note(owner.__dict__, name)
    if is_trusted(caller.world, raw, owner.__name__) or name.startswith("__"):
        if owner.__dict__.get(name) is raw:
            caller.world.note(owner.__dict__, name, raw)
        return raw
    if name not in owner.__dict__:  # a module-level __getattr__ made it
        caller.world.keep_off_disk(f"{owner.__name__} makes {name} when it is asked for")
        return caller.world.attribute(base, name, raw)
    return caller.world.dict_attribute(base, name, raw)


def class_attribute(caller: Caller, owner: type, name: str) -> Any:
    """`kind.name`."""
    meta = lookup(caller, type(owner), name)
    if meta is not MISSING and is_data_descriptor(caller, meta):
        return _of_metaclass(caller, owner, name, meta)
    found = lookup(caller, owner, name)
    if found is MISSING:
        if meta is not MISSING:
            return _of_metaclass(caller, owner, name, meta)
        hook = lookup(caller, type(owner), "__getattr__")
        if type(hook) is types.FunctionType and not is_trusted_module(hook.__module__):
            return caller.call(hook, (owner, name), {})
        if is_written(caller.journal, owner, name):  # deleted
            text = f"type object '{owner.__name__}' has no attribute '{name}'"
            real.raise_(AttributeError(text, name=name, obj=owner))
        return real.attribute(owner, name)  # raises, or a hook of the library makes it
    which = type(found)
    if which is types.FunctionType:
        return class_value(caller, owner, name, found)
    if which is staticmethod or which is classmethod:
        rely_on(caller, owner, name, found)
        return found.__func__ if which is staticmethod else of_class(found, owner)
    get = lookup(caller, which, "__get__")
    if type(get) is types.FunctionType and not is_trusted_module(which.__module__):
        return caller.call(get, (class_value(caller, owner, name, found), None, owner), {})
    if get is not MISSING:
        return (
            real.apply(found.__get__, None, owner)
            if is_written(caller.journal, owner, name)
            else real.attribute(owner, name)
        )
    return class_value(caller, owner, name, found)


def of_class(found: classmethod[Any, Any, Any], kind: type) -> types.MethodType:
    """A classmethod, bound to a class. What else it may wrap, versions of Python treat in ways of their own."""
    function = found.__func__
    if type(function) is not types.FunctionType and (
        hasattr(type(function), "__get__") or not callable(function)
    ):
        raise CaptureBreak(Break.B013, None, what=f"a classmethod of a {type(function).__name__}")
    return types.MethodType(function, kind)


def is_immutable(kind: type) -> bool:
    """Whether it is a class of C code that nobody can change."""
    return bool(kind.__flags__ & _IMMUTABLE)


def _of_metaclass(caller: Caller, owner: type, name: str, found: Any) -> Any:
    """What a class has of its own class: a method, a property, or a fact such as its name."""
    kind, which, world = type(owner), type(found), caller.world
    if which is types.FunctionType:
        return types.MethodType(class_value(caller, kind, name, found), owner)
    if which is property:
        rely_on(caller, kind, name, found)
        return caller.call(found.fget, (owner,), {})
    get = lookup(caller, which, "__get__")
    if type(get) is types.FunctionType and not is_trusted_module(which.__module__):
        return caller.call(get, (class_value(caller, kind, name, found), owner, kind), {})
    if get is MISSING:
        return class_value(caller, kind, name, found)
    raw = real.attribute(owner, name)
    fixed = (
        owner.__flags__ & _IMMUTABLE
        or id(owner) in world.made
        or is_trusted_module(owner.__module__)
    )
    if fixed or which is not types.GetSetDescriptorType:
        if name in _UNTOLD and not owner.__flags__ & _IMMUTABLE:
            world.keep_off_disk(f"{owner.__qualname__}.{name} is read as a whole")
        if name == "__dict__" and id(owner) not in world.made:
            _know_values(world, raw)
        return raw
    lookup(caller, owner, "__class__")  # whatever is asked of it, its bases matter
    if name in _UNTOLD:
        world.keep_off_disk(f"{owner.__qualname__}.{name} is read as a whole")
    if name in _OF_BASES:
        return raw
    return world.attribute(world.source_of(owner) or world.const(owner), name, raw)


def _know_values(world: World, attributes: Mapping[str, Any]) -> None:
    """The descriptors and other objects in the dict of a class of a library stay themselves, whoever reads them there."""
    for value in attributes.values():
        if (
            id(value) not in world.known
            and not isinstance(value, (*PINNED, *_SEEN))
            and not is_constant(value)
        ):
            world.register(world.const(value), value, value)


def super_attribute(caller: Caller, owner: Any, name: str) -> Any:
    """`super().name`."""
    if name in {"__self__", "__thisclass__", "__self_class__"}:
        return real.attribute(owner, name)
    after, target, kind = owner.__thisclass__, owner.__self__, owner.__self_class__
    bases = kind.__mro__ if kind is not None else ()
    # one without an object, or of a class whose order is being made
    if not bases or after not in bases:
        return real.attribute(owner, name)
    for base in bases[bases.index(after) + 1 :]:
        outside = caller.classes.own[base, name] = base.__dict__.get(name, MISSING)
        found = caller.journal.of_class(base, name, outside)
        if found is not MISSING and found is not DELETED:
            break
    else:
        return real.attribute(owner, name)
    which = type(found)
    if which is types.FunctionType:
        return found if target is kind else types.MethodType(found, target)
    if which is staticmethod:
        return found.__func__
    if which is classmethod:
        return of_class(found, kind)
    if which is property:
        return caller.call(found.fget, (target,), {})
    get = lookup(caller, which, "__get__")
    fixed = (
        base.__flags__ & _IMMUTABLE
        or id(base) in caller.world.made
        or is_trusted_module(base.__module__)
    )
    if found is not outside:
        value = found
    elif fixed or (get is not MISSING and type(get) is not types.FunctionType):
        return real.attribute(owner, name)
    else:
        value = caller.world.dict_attribute(caller.world.const(base), name, found)
    return (
        value
        if get is MISSING
        else caller.call(get, (value, None if target is kind else target, kind), {})
    )


def function_attribute(outside: Outside, owner: types.FunctionType, name: str) -> Any:
    """`function.name`."""
    value = written(outside.journal, owner, name)
    if value is not MISSING:
        return value
    source = outside.world.source_of(owner)
    if source is None:
        return real.attribute(owner, name)
    if not hasattr(owner, name):
        outside.world.guard(GuardKind.NO_ATTR, source, name)
    return _read_function(outside, owner, name, source, real.attribute(owner, name))


def _read_function(
    outside: Outside, owner: types.FunctionType, name: str, source: Source, raw: Any
) -> Any:
    """What an outside function has under a name, guarded."""
    world = outside.world
    if name in _UNTOLD:
        world.keep_off_disk(f"{owner.__qualname__}.{name} is read as a whole")
    match name:
        case "__code__" | "__defaults__" | "__kwdefaults__" if _is_identified(
            outside.world, owner
        ) and is_constant(raw):
            world.inlined[id(owner)] = owner  # they are asked for with its code
            return raw
        case "__globals__":
            return world.namespace(world.child(Attr, source, name), raw)
        case "__dict__":
            return world.read(world.child(DictOf, source, None), raw)
        case "__closure__":
            for i, cell in enumerate(raw or ()):
                if id(cell) not in world.known and id(cell) not in outside.outer_cells:
                    world.register(world.child(ClosureCell, source, i), cell, cell)
            return raw
        case _ if (
            name.startswith("__") and name != "__wrapped__" and is_trusted_module(owner.__module__)
        ):
            return raw
        case _ if isinstance(raw, types.MethodWrapperType | types.BuiltinFunctionType):
            return raw  # `function.__get__` and the like
        case _:
            return world.attribute(source, name, raw)


def _is_identified(world: World, function: types.FunctionType) -> bool:
    known = world.known.get(id(function))
    return known is None or id(function) in world.pinned or isinstance(known.source, Const)


def cell_contents(outside: Outside, cell: types.CellType) -> Any:
    """`cell.cell_contents`: what the trace put there, or what the outside has."""
    entry = outside.journal.cells.get(id(cell))
    if entry is not None:
        return (
            entry.value if entry.value is not DELETED else real.raise_(ValueError("Cell is empty"))
        )
    source = cell_source(outside, cell)
    if source is None:
        return real.attribute(cell, "cell_contents")
    place = (
        outside.world.child(Closure, source.base, source.index)
        if isinstance(source, ClosureCell)
        else None
    )
    place = place or outside.world.child(Attr, source, "cell_contents")
    try:
        raw = cell.cell_contents
    except ValueError:
        outside.world.guard(GuardKind.MISSING, place)
        return real.attribute(cell, "cell_contents")  # raises
    return outside.world.read(place, raw)


def cell_source(outside: Outside, cell: types.CellType) -> Source | None:
    """Where an outside cell lives."""
    shared, known = outside.outer_cells.get(id(cell)), outside.world.known.get(id(cell))
    return shared[2] if shared is not None else known.source if known is not None else None


def bound(function: types.FunctionType, instance: Any, owner: Any = None) -> Any:
    """`function.__get__(instance, owner)`."""
    return function if instance is None else types.MethodType(function, instance)
