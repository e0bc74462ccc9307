"""capture.objects.holders: attributes of what holds a program: modules, classes, `super()`, functions and cells.

In: one of these and a name. Out: the attribute, as Python finds it, with a guard on what may change.
"""

from __future__ import annotations

import types
from typing import Any, Final

from argand.capture.markers import MISSING
from argand.capture.objects.found import class_value, is_data_descriptor, is_trusted, rely_on, written
from argand.capture.objects.methods import is_written, lookup
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.journal import DELETED
from argand.capture.outside.kinds import is_constant, is_trusted_module
from argand.capture.outside.world import World
from argand.runtime.guards import Attr, Closure, ClosureCell, Const, DictOf, GuardKind, Source
from argand.support.errors import Break, CaptureBreak

_UNTOLD: Final = frozenset({"__dict__", "__annotations__", "__doc__"})  # no token of a class or function holds these
_IMMUTABLE: Final = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
_OF_BASES: Final = frozenset({"__bases__", "__base__", "__mro__", "__flags__", "__basicsize__"})


def module_attribute(tracer: Tracer, owner: types.ModuleType, name: str) -> Any:
    """`module.name`."""
    base = tracer.world.source_of(owner) or tracer.world.const(owner)
    if name == "__dict__" and not is_trusted_module(str(tracer.frames[-1].globals.get("__name__"))):
        return tracer.world.namespace(tracer.world.child(DictOf, base, None), owner.__dict__)
    entry = tracer.journal.globals.get(id(owner.__dict__))
    if entry is not None and name in entry.values:
        return entry.values[name]
    if name not in owner.__dict__:
        tracer.world.note(owner.__dict__, name)
    raw = real.attribute(owner, name)
    if is_trusted(tracer.world, raw, owner.__name__) or name.startswith("__"):
        if owner.__dict__.get(name) is raw:
            tracer.world.note(owner.__dict__, name, raw)
        return raw
    if name not in owner.__dict__:  # a module-level __getattr__ made it
        tracer.world.keep_off_disk(f"{owner.__name__} makes {name} when it is asked for")
        return tracer.world.attribute(base, name, raw)
    return tracer.world.dict_attribute(base, name, raw)


def class_attribute(tracer: Tracer, owner: type, name: str) -> Any:
    """`kind.name`."""
    meta = lookup(tracer, type(owner), name)
    if meta is not MISSING and is_data_descriptor(tracer, meta):
        return _of_metaclass(tracer, owner, name, meta)
    found = lookup(tracer, owner, name)
    if found is MISSING:
        if meta is not MISSING:
            return _of_metaclass(tracer, owner, name, meta)
        hook = lookup(tracer, type(owner), "__getattr__")
        if type(hook) is types.FunctionType and not is_trusted_module(hook.__module__):
            return tracer.call(hook, (owner, name), {})
        if is_written(tracer.journal, owner, name):  # deleted
            text = f"type object '{owner.__name__}' has no attribute '{name}'"
            real.raise_(AttributeError(text, name=name, obj=owner))
        return real.attribute(owner, name)  # raises, or a hook of the library makes it
    which = type(found)
    if which is types.FunctionType:
        return class_value(tracer, owner, name, found)
    if which is staticmethod or which is classmethod:
        rely_on(tracer, owner, name, found)
        return found.__func__ if which is staticmethod else of_class(found, owner)
    get = lookup(tracer, which, "__get__")
    if type(get) is types.FunctionType and not is_trusted_module(which.__module__):
        return tracer.call(get, (class_value(tracer, owner, name, found), None, owner), {})
    if get is not MISSING:
        return (
            real.apply(found.__get__, None, owner)
            if is_written(tracer.journal, owner, name)
            else real.attribute(owner, name)
        )
    return class_value(tracer, owner, name, found)


def of_class(found: classmethod[Any, Any, Any], kind: type) -> types.MethodType:
    """A classmethod, bound to a class. What else it may wrap, versions of Python treat in ways of their own."""
    function = found.__func__
    if type(function) is not types.FunctionType and (hasattr(type(function), "__get__") or not callable(function)):
        raise CaptureBreak(Break.B013, None, what=f"a classmethod of a {type(function).__name__}")
    return types.MethodType(function, kind)


def is_immutable(kind: type) -> bool:
    """Whether it is a class of C code that nobody can change."""
    return bool(kind.__flags__ & _IMMUTABLE)


def _of_metaclass(tracer: Tracer, owner: type, name: str, found: Any) -> Any:
    """What a class has of its own class: a method, a property, or a fact such as its name."""
    kind, which, world = type(owner), type(found), tracer.world
    if which is types.FunctionType:
        return types.MethodType(class_value(tracer, kind, name, found), owner)
    if which is property:
        rely_on(tracer, kind, name, found)
        return tracer.call(found.fget, (owner,), {})
    get = lookup(tracer, which, "__get__")
    if type(get) is types.FunctionType and not is_trusted_module(which.__module__):
        return tracer.call(get, (class_value(tracer, kind, name, found), owner, kind), {})
    if get is MISSING:
        return class_value(tracer, kind, name, found)
    raw = real.attribute(owner, name)
    fixed = owner.__flags__ & _IMMUTABLE or id(owner) in world.made or is_trusted_module(owner.__module__)
    if fixed or which is not types.GetSetDescriptorType:
        if name in _UNTOLD and not owner.__flags__ & _IMMUTABLE:
            world.keep_off_disk(f"{owner.__qualname__}.{name} is read as a whole")
        return raw
    lookup(tracer, owner, "__class__")  # whatever is asked of it, its bases matter
    if name in _UNTOLD:
        world.keep_off_disk(f"{owner.__qualname__}.{name} is read as a whole")
    if name in _OF_BASES:
        return raw
    return world.attribute(world.source_of(owner) or world.const(owner), name, raw)


def super_attribute(tracer: Tracer, owner: Any, name: str) -> Any:
    """`super().name`."""
    if name in {"__self__", "__thisclass__", "__self_class__"}:
        return real.attribute(owner, name)
    after, target, kind = owner.__thisclass__, owner.__self__, owner.__self_class__
    bases = kind.__mro__ if kind is not None else ()
    if not bases or after not in bases:  # one without an object, or of a class whose order is being made
        return real.attribute(owner, name)
    for base in bases[bases.index(after) + 1 :]:
        outside = tracer.classes.own[base, name] = base.__dict__.get(name, MISSING)
        found = tracer.journal.of_class(base, name, outside)
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
        return tracer.call(found.fget, (target,), {})
    get = lookup(tracer, which, "__get__")
    fixed = base.__flags__ & _IMMUTABLE or id(base) in tracer.world.made or is_trusted_module(base.__module__)
    if found is not outside:
        value = found
    elif fixed or (get is not MISSING and type(get) is not types.FunctionType):
        return real.attribute(owner, name)
    else:
        value = tracer.world.dict_attribute(tracer.world.const(base), name, found)
    return value if get is MISSING else tracer.call(get, (value, None if target is kind else target, kind), {})


def function_attribute(tracer: Tracer, owner: types.FunctionType, name: str) -> Any:
    """`function.name`."""
    value = written(tracer.journal, owner, name)
    if value is not MISSING:
        return value
    source = tracer.world.source_of(owner)
    if source is None:
        return real.attribute(owner, name)
    if not hasattr(owner, name):
        tracer.world.guard(GuardKind.NO_ATTR, source, name)
    return _read_function(tracer, owner, name, source, real.attribute(owner, name))


def _read_function(tracer: Tracer, owner: types.FunctionType, name: str, source: Source, raw: Any) -> Any:
    """What an outside function has under a name, guarded."""
    world = tracer.world
    if name in _UNTOLD:
        world.keep_off_disk(f"{owner.__qualname__}.{name} is read as a whole")
    match name:
        case "__code__" | "__defaults__" | "__kwdefaults__" if _is_identified(tracer.world, owner) and is_constant(raw):
            world.inlined[id(owner)] = owner  # they are asked for with its code
            return raw
        case "__globals__":
            return world.namespace(world.child(Attr, source, name), raw)
        case "__dict__":
            return world.read(world.child(DictOf, source, None), raw)
        case "__closure__":
            for i, cell in enumerate(raw or ()):
                if id(cell) not in world.known and id(cell) not in tracer.outer_cells:
                    world.register(world.child(ClosureCell, source, i), cell, cell)
            return raw
        case _ if name.startswith("__") and name != "__wrapped__" and is_trusted_module(owner.__module__):
            return raw
        case _ if isinstance(raw, types.MethodWrapperType | types.BuiltinFunctionType):
            return raw  # `function.__get__` and the like
        case _:
            return world.attribute(source, name, raw)


def _is_identified(world: World, function: types.FunctionType) -> bool:
    known = world.known.get(id(function))
    return known is None or id(function) in world.pinned or isinstance(known.source, Const)


def cell_contents(tracer: Tracer, cell: types.CellType) -> Any:
    """`cell.cell_contents`: what the trace put there, or what the outside has."""
    entry = tracer.journal.cells.get(id(cell))
    if entry is not None:
        return entry.value if entry.value is not DELETED else real.raise_(ValueError("Cell is empty"))
    source = cell_source(tracer, cell)
    if source is None:
        return real.attribute(cell, "cell_contents")
    place = tracer.world.child(Closure, source.base, source.index) if isinstance(source, ClosureCell) else None
    place = place or tracer.world.child(Attr, source, "cell_contents")
    try:
        raw = cell.cell_contents
    except ValueError:
        tracer.world.guard(GuardKind.MISSING, place)
        return real.attribute(cell, "cell_contents")  # raises
    return tracer.world.read(place, raw)


def cell_source(tracer: Tracer, cell: types.CellType) -> Source | None:
    """Where an outside cell lives."""
    shared, known = tracer.outer_cells.get(id(cell)), tracer.world.known.get(id(cell))
    return shared[2] if shared is not None else known.source if known is not None else None


def bound(function: types.FunctionType, instance: Any, owner: Any = None) -> Any:
    """`function.__get__(instance, owner)`."""
    return function if instance is None else types.MethodType(function, instance)
