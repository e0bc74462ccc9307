"""capture.outside.containers: tuples, lists, dicts, sets and deques from outside, as the trace sees them.

In: a container and where it is found. Out: a tuple of what the trace sees of its items, or a copy (a shadow) that the
trace works on, with guards on its length or keys and on what is in it.
"""

from __future__ import annotations

import collections
import operator
from typing import Any, Final

from argand.capture.outside.kinds import (
    HEAP_TYPE,
    is_constant,
    is_object_key,
    native_base,
    tuple_like,
)
from argand.capture.outside.known import Known as Known
from argand.capture.outside.known import Namespace as Namespace
from argand.capture.outside.known import Shadow as Shadow
from argand.capture.outside.known import contents
from argand.capture.outside.reader import WorldReader
from argand.runtime import sources
from argand.runtime.guards import GuardKind
from argand.runtime.sources import Source

# items of a container that are guarded one by one: better messages
FEW: Final = 8


def read_tuple(world: WorldReader, source: Source, raw: tuple[Any, ...]) -> Any:
    """The trace's view of a tuple."""
    plain = type(raw) is tuple and is_constant(raw)
    if plain and (len(raw) > FEW or not any(type(item) is float for item in raw)):
        world.guard(GuardKind.EQUALS, source, raw)
        return raw
    world.guard(GuardKind.TYPE_IS, source, type(raw))
    world.guard(GuardKind.LENGTH, source, len(raw))
    items = [world.item(source, i, item) for i, item in enumerate(tuple.__iter__(raw))]
    if plain and all(map(operator.is_, items, raw)):  # each may be left open if it varies
        return raw
    value = tuple(items) if type(raw) is tuple else tuple_like(raw, items)
    if hasattr(raw, "__dict__"):
        _copy_attributes(world, source, raw, value)
    return world.register(source, raw, value)


def _copy_attributes(world: WorldReader, source: Source, raw: Any, value: Any) -> dict[str, Any]:
    world.guard(GuardKind.DICT_KEYS, world.child(sources.DictOf, source, None), tuple(raw.__dict__))
    attributes = {
        name: world.dict_attribute(source, name, item) for name, item in raw.__dict__.items()
    }
    value.__dict__.update(attributes)
    return attributes


def read_container(world: WorldReader, source: Source, raw: Any) -> Any:
    """The trace's view of a list, dict, set or deque: a copy to work on."""
    kind: Any = type(raw)
    if isinstance(raw, collections.OrderedDict) and any(map(is_object_key, dict.keys(raw))):
        world.opaque.add(id(raw))  # its order is no guard's
        return world.register(source, raw, raw)
    make: Any = native_base(kind)  # `__new__` of Python code may ask for arguments
    value: Any = make.__new__(kind)
    world.register(source, raw, value)
    known = world.known[id(raw)]
    before: Any
    if kind in (list, dict) and len(raw) > FEW and is_constant(contents(raw)):
        world.guard(GuardKind.EQUALS, source, kind(raw))  # one row says it all
        if kind is list:
            value.extend(raw)
        else:
            value.update(raw)
        before = kind(raw)
    elif isinstance(raw, dict) and any(map(is_object_key, dict.keys(raw))):
        before = _fill_by_objects(world, source, raw, value)
    elif isinstance(raw, dict):
        ordered = isinstance(raw, collections.OrderedDict)  # has an order of its own
        keys = tuple((collections.OrderedDict if ordered else dict).keys(raw))
        world.guard(GuardKind.DICT_KEYS, source, keys)
        _know_parts(world, keys)
        if isinstance(raw, collections.defaultdict):
            value.default_factory = world.attribute(source, "default_factory", raw.default_factory)
        store = collections.OrderedDict.__setitem__ if ordered else dict.__setitem__
        for key in keys:
            store(value, key, world.item(source, key, dict.__getitem__(raw, key)))
        before = dict(dict.items(value))
    elif isinstance(raw, set):
        world.guard(GuardKind.EQUALS, source, set(raw))
        set.update(value, raw)
        before = frozenset(raw)
    else:
        world.guard(GuardKind.LENGTH, source, len(raw))
        if isinstance(raw, collections.deque):
            world.guard(GuardKind.EQUALS, world.child(sources.Attr, source, "maxlen"), raw.maxlen)
            value = collections.deque(maxlen=raw.maxlen)
            known.value = value
            world.known[id(value)] = known
            world.guard(GuardKind.EQUALS, source, collections.deque(raw, raw.maxlen))
            value.extend(raw)
        else:
            for i, item in enumerate(list.__iter__(raw)):
                list.append(value, world.item(source, i, item))
        before = list(value)
    attributes = None
    if kind.__flags__ & HEAP_TYPE and hasattr(raw, "__dict__"):
        attributes = _copy_attributes(world, source, raw, value)
    world.shadows.append(Shadow(known, before, attributes))
    return value


def _know_parts(world: WorldReader, keys: tuple[Any, ...]) -> None:
    """Objects in keys that are tuples stay what they are."""
    for part in [part for key in keys if type(key) is tuple for part in key if is_object_key(part)]:
        world.read(world.const(part), part)


def _fill_by_objects(
    world: WorldReader, source: Source, raw: dict[Any, Any], value: dict[Any, Any]
) -> dict[Any, Any]:
    """Fill the shadow of a dict with objects as keys, which are known by identity: tensors by their fakes."""
    world.keep_off_disk("objects as keys of a dict")
    places = [sources.Object(key) if is_object_key(key) else None for key in dict.keys(raw)]
    keys = [
        key if place is None else place.reference
        for place, key in zip(places, dict.keys(raw), strict=True)
    ]
    world.guard(GuardKind.OBJECT_KEYS, source, tuple(keys))
    if isinstance(raw, collections.defaultdict):
        value.default_factory = world.attribute(source, "default_factory", raw.default_factory)  # type: ignore[attr-defined]
    for place, (key, item) in zip(places, dict.items(raw), strict=True):
        if place is None:
            dict.__setitem__(value, key, world.item(source, key, item))
            continue
        root = world.key(place)
        found = world.read(root, key)
        dict.__setitem__(value, found, world.read(world.child(sources.Keyed, source, root), item))
    return dict(dict.items(value))
