"""capture.finish.resized: places in which a frame leaves a tensor of another size than it found there.

In: a trace at its end. Out: names of places (`cache.keys.shape[2]`) whose size the next call of the same
code will find changed, as a cache that grows by one row at each call: they are left open in another
attempt, instead of after a call that fits nothing. Only a guess about later calls: whatever is left
open is guarded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import CellType
from typing import Any

import torch

from argand.capture.outside.known import Shadow
from argand.capture.outside.state import Outside
from argand.capture.outside.world import World
from argand.capture.sizes.places import is_state
from argand.runtime.sources import Attr, DictAttr, Source


def resized_places(outside: Outside) -> frozenset[str]:
    """The sizes of tensors in the outside that the trace has replaced by others."""
    names = (
        name
        for before, after in _replaced(outside)
        for name in _sizes(outside.world, before, after)
    )
    plan = outside.world.sizes.plan
    return frozenset(names) - plan.varied - plan.fixed - plan.pinned.keys()


def _replaced(outside: Outside) -> Iterator[tuple[Any, Any]]:
    """What the trace found at places of the outside, and what it leaves there."""
    world, journal = outside.world, outside.journal
    found = _attributes(world)
    for write in journal.attributes.values():
        source = world.source_of(write.owner)
        for name, after in write.values.items():
            yield found.get((source, name)), after
    for cell in journal.cells.values():
        yield _known(world, list(_contents(cell.cell))), cell.value
    for module in journal.globals.values():
        for name, after in module.values.items():
            yield _known(world, [module.owner.get(name)]), after
    for shadow in world.shadows:
        yield from _items(shadow)


def _contents(cell: CellType) -> Iterator[Any]:
    with contextlib.suppress(ValueError):  # the cell is empty
        yield cell.cell_contents


def _known(world: World, raws: list[Any]) -> Any:
    """The trace's view of an object that it has read."""
    return next((world.known[id(raw)].value for raw in raws if id(raw) in world.known), None)


def _attributes(world: World) -> dict[tuple[Source | None, str], torch.Tensor]:
    """The tensors that were read from attributes, by the place of the object and the name."""
    sources = [(known.source, known.value) for known in world.inputs.values()]
    return {(at.base, at.name): value for at, value in sources if isinstance(at, Attr | DictAttr)}


def _items(shadow: Shadow) -> Iterator[tuple[Any, Any]]:
    before, after = shadow.before, shadow.known.value
    if isinstance(after, list) and before is not None:
        yield from zip(before, after, strict=False)
    elif isinstance(after, dict) and before is not None:
        now = dict(dict.items(after))  # `get` may be the user's
        yield from ((value, now.get(key)) for key, value in before.items())


def _sizes(world: World, before: Any, after: Any) -> Iterator[str]:
    known = world.inputs.get(id(before))
    if known is None or before is after or not isinstance(after, torch.Tensor):
        return
    if before.dim() == after.dim() and not is_state(known.source):
        for dim, (old, new) in enumerate(zip(before.shape, after.shape, strict=True)):
            if old != new and known.raw.size(dim) > 1:  # a size of one is never open
                yield f"{known.source}.shape[{dim}]"
