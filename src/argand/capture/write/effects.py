"""capture.write.effects: statements that apply a trace's writes to the outside world.

In: the journal and the shadows. Out: lines of the compiled function, after the graph has run. Only what
differs from the state at the start is written.
"""

from __future__ import annotations

import collections
import threading
from typing import Any

import torch

from argand.capture.attempts import LeaveIterators
from argand.capture.markers import MISSING
from argand.capture.outside import iterators
from argand.capture.outside.journal import DELETED, Writes
from argand.capture.outside.kinds import native_base
from argand.capture.outside.state import Outside
from argand.capture.outside.world import Shadow
from argand.capture.record.pending import Pending
from argand.capture.write.rebuild import Rebuilder
from argand.sizes.refusals import Stop


def write_effects(rebuilder: Rebuilder) -> None:
    """Emit every write of the trace."""
    tracer = rebuilder.tracer
    for number, _, _ in tracer.journal.checks:
        # an output of the graph
        rebuilder.value(number.tensor if isinstance(number, Pending) else number)
    _write_iterators(rebuilder)
    for shadow in list(tracer.world.shadows):
        _write_shadow(rebuilder, shadow)
    _write_all_attributes(rebuilder)
    for write in list(tracer.journal.cells.values()):
        _assign(rebuilder, f"{rebuilder.source(write.source)}.cell_contents", write.value)
    for module in list(tracer.journal.globals.values()):
        name = rebuilder.constant(module.owner, "globals")
        for key, value in module.values.items():
            if value is DELETED:
                rebuilder.emit(f"{name}.pop({key!r}, None)")
            else:
                _assign(rebuilder, f"{name}[{key!r}]", value)


def _write_iterators(rebuilder: Rebuilder) -> None:
    """Move the iterators from outside, as long as what they go through is as they found it."""
    world = rebuilder.tracer.world
    through = {id(part) for row in world.iterators for part in row.through}
    if any(id(shadow.known.value) in through and _is_changed(shadow) for shadow in world.shadows):
        raise Stop(LeaveIterators())
    for row, left, ended in iterators.moved(world.iterators):
        rebuilder.emit(
            f"{rebuilder.constant(iterators.move)}({rebuilder.source(row.source)}, {left}, {ended})"
        )


def _is_changed(shadow: Shadow) -> bool:
    return shadow.before is None or not _same(list(shadow.known.value), list(shadow.before))


def _write_all_attributes(rebuilder: Rebuilder) -> None:
    """Writes to objects from outside, then to tensors of the trace, if somebody will hold these."""
    tracer = rebuilder.tracer
    waiting = dict(tracer.journal.attributes)  # by the identity of the owner
    for key in [key for key, entry in waiting.items() if not _is_made(tracer, entry.owner)]:
        _write_attributes(rebuilder, waiting.pop(key))
    while ready := [key for key, entry in waiting.items() if rebuilder.has_made(entry.owner)]:
        for key in ready:
            _write_attributes(rebuilder, waiting.pop(key))


def _is_made(outside: Outside, owner: Any) -> bool:
    """Whether a tensor is the trace's own: outside nobody knows it."""
    return isinstance(owner, torch.Tensor) and id(owner) not in outside.world.known


def _assign(rebuilder: Rebuilder, target: str, value: Any) -> None:
    rebuilder.emit(f"del {target}" if value is DELETED else f"{target} = {rebuilder.value(value)}")


def _write_attributes(rebuilder: Rebuilder, entry: Writes) -> None:
    owner = rebuilder.value(entry.owner)
    whole = isinstance(entry.owner, torch.nn.Module | torch.Tensor | threading.local)
    kind: Any = type if isinstance(entry.owner, type) else object
    meta: Any = type(entry.owner)
    # What a class of the user's does to a write, or a metaclass, was interpreted.
    plain = whole or (kind is type and meta.__setattr__ is kind.__setattr__)
    store = "setattr" if plain else rebuilder.constant(kind.__setattr__)
    for name, value in entry.values.items():
        if value is DELETED:
            simple = whole or meta.__delattr__ is kind.__delattr__
            delete = "delattr" if simple else rebuilder.constant(kind.__delattr__)
            rebuilder.emit(f"{_if_there(entry.owner, owner, name)}{delete}({owner}, {name!r})")
        elif plain and name.isidentifier():
            rebuilder.emit(f"{owner}.{name} = {rebuilder.value(value)}")
        else:
            rebuilder.emit(f"{store}({owner}, {name!r}, {rebuilder.value(value)})")


def _if_there(raw: Any, owner: str, name: str) -> str:
    """What the trace made and deleted again may never have been there."""
    values = getattr(raw, "__dict__", None)
    if values is None:
        return f"if hasattr({owner}, {name!r}): "
    return (
        ""
        if name in values or (isinstance(raw, torch.nn.Module) and hasattr(raw, name))
        else f"if {name!r} in vars({owner}): "
    )


def _write_shadow(rebuilder: Rebuilder, shadow: Shadow) -> None:
    value, before = shadow.known.value, shadow.before
    if before is None:
        if value:
            name = rebuilder.source(shadow.known.source)
            rebuilder.emit(f"list.extend({name}, [{rebuilder.items(value)}])")
        return
    name = ""
    if isinstance(value, dict):
        _write_dict(rebuilder, shadow, value, before)
        _write_factory(rebuilder, shadow, value)
    elif isinstance(value, set):
        if value != before:
            name = rebuilder.source(shadow.known.source)
            items = rebuilder.items(value)
            rebuilder.emit(f"set.clear({name}); set.update({name}, [{items}])")
    elif not _same(list(value), before):
        name = rebuilder.source(shadow.known.source)
        items = rebuilder.items(list(value))
        if isinstance(value, collections.deque):
            rebuilder.emit(f"{name}.clear(); {name}.extend([{items}])")
        else:
            rebuilder.emit(f"list.__setitem__({name}, slice(None), [{items}])")
    if shadow.attributes is not None:
        _write_instance_dict(rebuilder, shadow, value.__dict__)


def _write_instance_dict(rebuilder: Rebuilder, shadow: Shadow, now: dict[str, Any]) -> None:
    before = shadow.attributes or {}
    changed = {k: v for k, v in now.items() if before.get(k, MISSING) is not v}
    gone = [key for key in before if key not in now]
    if changed or gone:
        name = rebuilder.source(shadow.known.source)
        for key, item in changed.items():
            rebuilder.emit(f"{name}.__dict__[{key!r}] = {rebuilder.value(item)}")
        for key in gone:
            rebuilder.emit(f"{name}.__dict__.pop({key!r}, None)")


def _write_dict(
    rebuilder: Rebuilder, shadow: Shadow, value: dict[Any, Any], before: dict[Any, Any]
) -> None:
    kind: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    # the order of an OrderedDict is its own, not that of the dict it is
    now = dict(kind.items(value))
    if _same(list(now), list(before)) and _same(list(now.values()), list(before.values())):
        return
    name = rebuilder.source(shadow.known.source)
    base: Any = native_base(type(value))
    store = rebuilder.constant(base.__setitem__)
    keys, old = list(now), list(before)
    if _same_keys(keys[: len(old)], old):
        now = {key: item for key, item in now.items() if before.get(key, MISSING) is not item}
    else:
        rebuilder.emit(f"{rebuilder.constant(base.clear)}({name})")
    for key, item in now.items():
        rebuilder.emit(f"{store}({name}, {rebuilder.value(key)}, {rebuilder.value(item)})")


def _write_factory(rebuilder: Rebuilder, shadow: Shadow, value: Any) -> None:
    """What a defaultdict makes its missing values with."""
    if isinstance(value, collections.defaultdict):
        known = rebuilder.tracer.world.known.get(id(value.default_factory))
        now = value.default_factory if known is None else known.raw
        if now is not shadow.known.raw.default_factory:
            rebuilder.emit(
                f"{rebuilder.source(shadow.known.source)}.default_factory = {rebuilder.value(value.default_factory)}"
            )


def _same_keys(now: list[Any], before: list[Any]) -> bool:
    """Tensors are keys by identity, and have no truth."""
    if len(now) != len(before):
        return False
    pairs = zip(now, before, strict=True)
    return all(
        a is b or (not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor) and a == b)
        for a, b in pairs
    )


def _same(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))
