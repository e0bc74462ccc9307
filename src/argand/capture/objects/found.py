"""capture.objects.found: what reads of attributes have in common: where an owner lives, what was written to it, whom to trust.

In: an owner of the trace, a name, what a class holds under it. Out: the source of the owner, the value the trace wrote,
the class's value with its guard.
"""

from __future__ import annotations

import enum
import types
from typing import Any, Final

from argand.capture.markers import MISSING
from argand.capture.objects.methods import PLAIN, is_written, lookup
from argand.capture.objects.parts import GraphState
from argand.capture.outside import real
from argand.capture.outside.journal import DELETED, Journal
from argand.capture.outside.kinds import is_trusted_module
from argand.capture.outside.state import Outside
from argand.capture.outside.world import World
from argand.runtime.guards import GuardKind
from argand.runtime.sources import Source, TypeAttr

_STABLE: Final = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType)


def is_trusted(world: World, value: Any, module: str | None) -> bool:
    """Whether a value found in a module needs no guard."""
    if not isinstance(value, _STABLE) or not is_trusted_module(module) or module == "__main__":
        return False
    if isinstance(value, types.BuiltinFunctionType) and id(value) not in world.known:
        world.register(world.const(value), value, value)  # may be bound: random.random
    return True


def outside_source(world: World, owner: Any) -> Source | None:
    """Where an outside object lives that the trace works on itself, not on a copy."""
    known = world.known.get(id(owner))
    if known is not None:
        return known.source if known.raw is owner else None
    if isinstance(owner, enum.Enum) and not is_trusted_module(type(owner).__module__):
        return world.const(owner)  # members are found without a read
    return None


def written(journal: Journal, owner: Any, name: str) -> Any:
    """A value the trace gave to an attribute; MISSING if none, AttributeError if deleted."""
    entry = journal.attributes.get(id(owner))
    if entry is None:
        return MISSING
    value = entry.values.get(name, MISSING)
    if value is DELETED:
        text = f"'{type(owner).__name__}' object has no attribute '{name}'"
        real.raise_(AttributeError(text))
    return value


def is_retained(state: GraphState, tensor: Any) -> bool:
    """Whether the trace has called `retain_grad()` of a tensor."""
    return any(tensor is other for other in state.torch.retained)


def is_data_descriptor(outside: Outside, found: Any) -> bool:
    """Whether what a class holds goes before what an instance holds."""
    kind = type(found)
    if kind is property or kind is types.MemberDescriptorType:
        return True
    if kind is types.GetSetDescriptorType:
        return True
    if kind is types.FunctionType or kind in PLAIN:
        return False
    return (
        lookup(outside, kind, "__set__") is not MISSING
        or lookup(outside, kind, "__delete__") is not MISSING
    ) and lookup(outside, kind, "__get__") is not MISSING


def class_value(outside: Outside, kind: type, name: str, found: Any) -> Any:
    """What a class holds; methods of users' classes are guarded too, for they may be patched."""
    if id(kind) in outside.world.made or is_trusted(outside.world, found, kind.__module__):
        return found
    if is_written(outside.journal, kind, name):
        return found
    base = outside.world.source_of(kind) or outside.world.const(kind)
    return outside.world.read(outside.world.child(TypeAttr, base, name), found)


def rely_on(outside: Outside, kind: type, name: str, found: Any) -> None:
    """A descriptor of a user's class may be replaced."""
    world = outside.world
    made = id(kind) in world.made or is_written(outside.journal, kind, name)
    if not made and not is_trusted(outside.world, found, kind.__module__):
        base = world.source_of(kind) or world.const(kind)
        world.guard(GuardKind.ID_IS, world.child(TypeAttr, base, name), found)
