"""capture.objects.attributes: attribute access with Python's rules, and a guard for each outside read.

In: an object of the trace and a name. Out: the attribute. Properties, descriptors and `__getattr__` written in
Python are interpreted; writes to outside objects go to the journal and are seen by later reads.
"""

from __future__ import annotations

import enum
import functools
import os
import threading
import types
from typing import Any, Final

import torch

from argand.capture.markers import MISSING
from argand.capture.objects import generators, holders, tensor_attributes
from argand.capture.objects.found import (
    class_value,
    is_data_descriptor,
    outside_source,
    rely_on,
    written,
)
from argand.capture.objects.methods import PLAIN, check_native, lookup
from argand.capture.objects.parts import Caller
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import pure, real
from argand.capture.outside.arrays import KINDS
from argand.capture.outside.journal import DELETED
from argand.capture.outside.state import Outside
from argand.capture.outside.world import World
from argand.capture.record.pending import Pending, looked_at
from argand.runtime.guards import GuardKind
from argand.runtime.sources import DictAttr, DictOf, Item
from argand.support.errors import Break, CaptureBreak

_MODULE_DICTS: Final = {
    "_parameters": torch.nn.Parameter,
    "_buffers": torch.Tensor,
    "_modules": torch.nn.Module,
}
_OF_C: Final = (types.MemberDescriptorType, types.GetSetDescriptorType)
_ENVIRONMENT: Final = type(os.environ)
_MODULE_SETTER: Final = torch.nn.Module.__setattr__


def load_or(tracer: Tracer, owner: Any, name: str, default: Any) -> Any:
    """`getattr(owner, name, default)`."""
    try:
        return load(tracer, owner, name)
    except AttributeError:
        return default


def load(tracer: Tracer, owner: Any, name: str) -> Any:
    """`owner.name`."""
    kind = type(owner)
    if kind in PLAIN:
        return real.attribute(owner, name)
    if kind is generators.Generator:
        return generators.attribute(owner, name)
    if isinstance(owner, torch.Tensor):
        return tensor_attributes.load(tracer, owner, name)
    if kind is Pending:
        raise looked_at(owner, CaptureBreak(Break.B004, None, method=f"item().{name}"))
    if kind in KINDS:
        return tracer.arrays.attribute(tracer, owner, name)
    if kind is types.ModuleType or isinstance(owner, types.ModuleType):
        return holders.module_attribute(tracer, owner, name)
    if isinstance(owner, type):
        return holders.class_attribute(tracer, owner, name)
    if kind is super:
        return holders.super_attribute(tracer, owner, name)
    if kind is types.FunctionType:
        return holders.function_attribute(tracer, owner, name)
    if kind is types.CellType and name == "cell_contents":
        return holders.cell_contents(tracer, owner)
    if kind is types.MethodType and name not in {"__self__", "__func__"}:
        return load(tracer, owner.__func__, name)
    return _named(tracer, owner, kind, name)


def _named(caller: Caller, owner: Any, kind: type, name: str) -> Any:
    """The same of any other object; an error that names neither the attribute nor its object gets both."""
    try:
        return _object_attribute(caller, owner, kind, name)
    except AttributeError as error:
        if error.name is None and error.obj is None and id(error) not in caller.world.known:
            error.name, error.obj = name, owner
        raise


def _object_attribute(caller: Caller, owner: Any, kind: type, name: str) -> Any:
    if kind is _ENVIRONMENT:  # and its secrets are for no file
        caller.world.keep_off_disk("the environment is of the process")
    getter = lookup(caller, kind, "__getattribute__")
    if type(getter) is types.FunctionType:
        return caller.call(getter, (owner, name), {})
    check_native(caller, kind, "__getattribute__", getter)
    return generic(caller, owner, kind, name)


def generic(caller: Caller, owner: Any, kind: type, name: str, hook: bool = True) -> Any:
    """`object.__getattribute__(owner, name)`, then `__getattr__`."""
    found = lookup(caller, kind, name)
    if isinstance(owner, threading.local) and type(found) not in (types.FunctionType, property):
        return _of_thread(caller, owner, name)
    if found is not MISSING and is_data_descriptor(caller, found):
        return _from_descriptor(caller, owner, kind, name, found)
    value = _instance_value(caller, owner, name, absent=True)
    if value is not MISSING:
        return value
    if found is not MISSING:
        return _bind(caller, owner, kind, name, found)
    fallback = lookup(caller, kind, "__getattr__") if hook else MISSING
    if fallback is torch.nn.Module.__getattr__:
        return module_member(caller, owner, name)
    if type(fallback) is types.FunctionType:
        return caller.call(fallback, (owner, name), {})
    check_native(caller, kind, "__getattr__", fallback)
    if caller.is_outside(owner):
        text = f"'{kind.__name__}' object has no attribute '{name}'"
        real.raise_(AttributeError(text, name=name, obj=owner))
    return real.attribute(owner, name)


def _from_descriptor(caller: Caller, owner: Any, kind: type, name: str, found: Any) -> Any:
    rely_on(caller, kind, name, found)
    if isinstance(owner, enum.Enum) and found is enum.Enum.__dict__.get(name):  # `name` and `value`
        return _instance_value(caller, owner, f"_{name}_")
    if type(found) is property:
        if found.fget is None:
            return real.attribute(owner, name)
        return caller.call(found.fget, (owner,), {})
    get = lookup(caller, type(found), "__get__")
    if type(get) is types.FunctionType:
        return caller.call(get, (class_value(caller, kind, name, found), owner, kind), {})
    if name == "__dict__":
        return _dict_of(caller, owner)
    if name == "__class__":
        return real.attribute(owner, name)
    if name == "__traceback__" and id(owner) in caller.exceptions.before:
        raise CaptureBreak(
            Break.B013,
            None,
            what="the traceback of an exception from outside that was raised again",
        )
    source = outside_source(caller.world, owner)
    if source is None:
        return real.attribute(owner, name)
    value = written(caller.journal, owner, name)
    if value is not MISSING:
        return value
    raw = real.attribute(owner, name)
    return caller.world.attribute(source, name, raw)


def _of_thread(outside: Outside, owner: threading.local, name: str) -> Any:
    """An attribute that each thread has its own of: asked for in the calling thread."""
    source = outside_source(outside.world, owner)
    value = written(outside.journal, owner, name)
    if value is not MISSING or source is None:
        return real.attribute(owner, name) if value is MISSING else value
    if not hasattr(owner, name):
        outside.world.guard(GuardKind.NO_ATTR, source, name)
    return outside.world.attribute(source, name, real.attribute(owner, name))


def _instance_value(outside: Outside, owner: Any, name: str, *, absent: bool = False) -> Any:
    """What the instance itself holds; with `absent`, rely on it holding nothing."""
    entry = outside.journal.attributes.get(id(owner))
    if entry is not None and name in entry.values:
        value = entry.values[name]
        return MISSING if value is DELETED else value
    try:
        values = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return MISSING
    if type(values) is not dict:
        return MISSING
    source = outside_source(outside.world, owner)
    if source is None:
        return values.get(name, MISSING)
    shadow = outside.world.known.get(id(values))
    if shadow is not None:
        return shadow.value.get(name, MISSING)
    if name in values:
        return outside.world.dict_attribute(source, name, values[name])
    if absent:
        place = outside.world.child(DictOf, source, None)
        outside.world.guard(GuardKind.DICT_MISSING, place, name)
    return MISSING


def _dict_of(outside: Outside, owner: Any) -> Any:
    """`owner.__dict__`: for an outside object a shadow, from now on the home of its attributes."""
    source = outside_source(outside.world, owner)
    raw = object.__getattribute__(owner, "__dict__")
    if source is None:
        return raw
    place = outside.world.child(DictOf, source, None)
    shadow = outside.world.read(place, raw)
    entry = outside.journal.attributes.pop(id(owner), None)
    for name, value in (entry.values if entry else {}).items():
        if value is DELETED:
            shadow.pop(name, None)
        else:
            shadow[name] = value
    return shadow


def _bind(caller: Caller, owner: Any, kind: type, name: str, found: Any) -> Any:
    """A class attribute, seen through an instance."""
    which = type(found)
    if which is types.FunctionType:
        return types.MethodType(class_value(caller, kind, name, found), owner)
    get = lookup(caller, which, "__get__")
    if get is MISSING:  # what it holds is guarded, not which object it is
        return class_value(caller, kind, name, found)
    rely_on(caller, kind, name, found)
    if which is staticmethod:
        return found.__func__
    if which is classmethod:
        return holders.of_class(found, kind)
    if which is functools.cached_property:
        value = caller.sealed(found.func, (owner,), {})
        store_plain(caller, owner, found.attrname or name, value)
        return value
    if type(get) is types.FunctionType:
        return caller.call(get, (class_value(caller, kind, name, found), owner, kind), {})
    return real.apply(found.__get__, owner, kind)


def module_member(outside: Outside, owner: Any, name: str) -> Any:
    """A parameter, buffer or submodule of an nn.Module."""
    source = outside_source(outside.world, owner)
    values = object.__getattribute__(owner, "__dict__")
    world = outside.world
    for table in _MODULE_DICTS:
        members = values.get(table)
        if members is None:
            continue
        if source is None:
            if name in members:
                return members[name]
            continue
        place = world.child(DictAttr, source, table)
        shadow = world.known.get(id(members))
        if shadow is not None and shadow.value is not members:
            if name in shadow.value:
                return shadow.value[name]
        elif name in members:
            return world.read(world.child(Item, place, name), members[name])
        else:
            world.guard(GuardKind.DICT_MISSING, place, name)
    text = f"'{type(owner).__name__}' object has no attribute '{name}'"
    return real.raise_(AttributeError(text, name=name, obj=owner))


_WHAT_IT_IS: Final = frozenset(
    {
        "__class__",
        "__dict__",
        "__bases__",
        "__abstractmethods__",
        "__code__",
        "__defaults__",
        "__kwdefaults__",
    }
)


def store(tracer: Tracer, owner: Any, name: str, value: Any) -> None:
    """`owner.name = value`."""
    kind = type(owner)
    if isinstance(owner, torch.Tensor):
        tensor_attributes.store(tracer, owner, name, value)
        return
    if isinstance(owner, types.ModuleType):
        tracer.journal.write_global(owner.__dict__, name, value)
        return
    if kind in KINDS:
        raise CaptureBreak(Break.B011, None, type=kind.__name__)
    setter = lookup(tracer, kind, "__setattr__")
    if type(setter) is types.FunctionType and setter is not torch.nn.Module.__setattr__:
        tracer.call(setter, (owner, name, value), {})
        return
    check_native(tracer, kind, "__setattr__", setter)
    store_plain(tracer, owner, name, value)


def store_plain(caller: Caller, owner: Any, name: str, value: Any) -> None:
    """`object.__setattr__(owner, name, value)`."""
    found = lookup(caller, type(owner), name)
    if type(found) is property and found.fset is not None:
        caller.call(found.fset, (owner, value), {})
        return
    if found is not MISSING and type(found) is not property:
        descriptor = lookup(caller, type(found), "__set__")
        if type(descriptor) is types.FunctionType:
            caller.call(descriptor, (found, owner, value), {})
            return
    if caller.is_outside(owner):
        # whoever asks what the object is looks at itself, not at the journal
        if name in _WHAT_IT_IS:
            raise CaptureBreak(Break.B013, None, what=f"a new {name} of a {type(owner).__name__}")
        _check_class(owner, name, found)
        if type(owner) is types.CellType and name == "cell_contents":
            place = holders.cell_source(caller, owner)
            if place is not None:
                caller.journal.write_cell(owner, place, value)
                return
        of_c = id(owner) in caller.world.opaque and not isinstance(owner, threading.local)
        if of_c or type(found) is property:
            raise CaptureBreak(Break.B011, None, type=type(owner).__name__)
        shadow = _shadow_dict(caller.world, owner)
        members = _members(caller, owner, name, value)
        if members is not None:
            members[name] = value
            if name in owner.__dict__:  # torch removes it there
                caller.journal.write_attribute(owner, name, value)
        elif shadow is not None:
            shadow[name] = value
        else:
            caller.journal.write_attribute(owner, name, value)
    else:
        _store_made(caller, owner, name, value, found)


def _check_class(owner: Any, name: str, found: Any) -> None:
    """Break at a write to what is read from a class itself (its name and the like), or to one that nobody can change."""
    if isinstance(owner, type) and (
        type(found) is types.GetSetDescriptorType or holders.is_immutable(owner)
    ):
        raise CaptureBreak(Break.B013, None, what=f"a new {name} of a class")


def _store_made(outside: Outside, owner: Any, name: str, value: Any, found: Any) -> None:
    """The same for what the trace made."""
    if type(found) in _OF_C and not pure.is_own(type(owner)):  # it may be anybody's
        raise CaptureBreak(Break.B011, None, type=type(owner).__name__)
    setter = lookup(outside, type(owner), "__setattr__")
    interpreted = type(setter) is types.FunctionType and setter is not _MODULE_SETTER
    plain = type.__setattr__ if isinstance(owner, type) else object.__setattr__
    real.apply(plain if interpreted else setattr, owner, name, value)
    if isinstance(owner, type):
        outside.classes.forget(owner, name)


def _members(outside: Outside, owner: Any, name: str, value: Any) -> dict[str, Any] | None:
    """The table (its shadow) in which an outside nn.Module has, or will have, a member."""
    source = outside_source(outside.world, owner)
    if not isinstance(owner, torch.nn.Module) or source is None:
        return None
    tables = {table: owner.__dict__[table] for table in _MODULE_DICTS if table in owner.__dict__}
    known = {table: outside.world.known.get(id(raw)) for table, raw in tables.items()}
    seen = {
        table: raw if (met := known[table]) is None else met.value for table, raw in tables.items()
    }
    holder = next((table for table in seen if name in seen[table]), None)
    new = (t for t in ("_parameters", "_modules") if isinstance(value, _MODULE_DICTS[t]))
    table = next(new, holder)
    fits = table is not None and (value is None or isinstance(value, _MODULE_DICTS[table]))
    if table is None or not fits or holder not in (None, table):
        return None  # torch's own __setattr__ will see to it
    found: dict[str, Any] = outside.world.dict_attribute(source, table, tables[table])
    return found


def _shadow_dict(world: World, owner: Any) -> dict[str, Any] | None:
    values = getattr(owner, "__dict__", None)
    known = world.known.get(id(values)) if type(values) is dict else None
    return None if known is None else known.value


def delete(tracer: Tracer, owner: Any, name: str) -> None:
    """`del owner.name`."""
    deleter = lookup(tracer, type(owner), "__delattr__")
    if type(deleter) is types.FunctionType and deleter is not torch.nn.Module.__delattr__:
        tracer.call(deleter, (owner, name), {})
        return
    check_native(tracer, type(owner), "__delattr__", deleter)
    delete_plain(tracer, owner, name)


def delete_plain(tracer: Tracer, owner: Any, name: str) -> None:
    """`object.__delattr__(owner, name)`."""
    if name == "__dict__":
        raise CaptureBreak(Break.B013, None, what="a deletion of __dict__")
    found = lookup(tracer, type(owner), name)
    if type(found) is property and found.fdel is not None:
        tracer.call(found.fdel, (owner,), {})
        return
    if type(found) is property:
        real.apply(found.__delete__, owner)  # raises
    descriptor = MISSING if found is MISSING else lookup(tracer, type(found), "__delete__")
    if type(descriptor) is types.FunctionType:
        tracer.call(descriptor, (found, owner), {})
        return
    if not tracer.is_outside(owner) and not isinstance(owner, torch.Tensor):
        deleter = lookup(tracer, type(owner), "__delattr__")
        interpreted = (
            type(deleter) is types.FunctionType and deleter is not torch.nn.Module.__delattr__
        )
        plain = type.__delattr__ if isinstance(owner, type) else object.__delattr__
        real.apply(plain if interpreted else delattr, owner, name)
        if isinstance(owner, type):
            tracer.classes.forget(owner, name)
        return
    _check_class(owner, name, found)
    _check_own(tracer, owner, name)
    shadow = _members(tracer, owner, name, None) or _shadow_dict(tracer.world, owner)
    if shadow is not None:
        del shadow[name]
    else:
        tracer.journal.write_attribute(owner, name, DELETED)


def _check_own(tracer: Tracer, owner: Any, name: str) -> None:
    """AttributeError for what an outside object, or class, does not have itself."""
    load(tracer, owner, name)  # raises if there is none
    if isinstance(owner, type):
        own = tracer.journal.of_class(owner, name, owner.__dict__.get(name, MISSING))
        missing = own is MISSING or own is DELETED
        text = f"type object '{owner.__name__}' has no attribute '{name}'"
    else:
        found = lookup(tracer, type(owner), name)
        held = isinstance(
            owner, torch.Tensor | torch.nn.Module | types.FunctionType | threading.local
        )
        # a slot, emptied by C code
        held = held or (found is not MISSING and is_data_descriptor(tracer, found))
        missing = not held and _instance_value(tracer, owner, name, absent=True) is MISSING
        text = f"'{type(owner).__name__}' object has no attribute '{name}'"
    if missing:
        real.raise_(AttributeError(text, name=name, obj=owner))
