"""capture.objects.loaded: what a program asks of `sys.modules`: whether a name is there, and what is under it.

In: the world, what stands for the table, a name. Out: the answer, guarded for this name alone: any import, ours too,
changes the table as a whole.
"""

from __future__ import annotations

import sys
from typing import Any

from argand.capture.outside import real
from argand.capture.outside.known import LoadedModules
from argand.capture.outside.world import World
from argand.runtime.guards import GuardKind


def holds(world: World, table: LoadedModules, name: str) -> bool:
    """`name in sys.modules`."""
    there = name in sys.modules
    kind = GuardKind.DICT_CONTAINS if there else GuardKind.DICT_MISSING
    world.guard(kind, world.known[id(table)].source, name)
    return there


def found(world: World, table: LoadedModules, name: str) -> Any:
    """`sys.modules[name]`."""
    if not holds(world, table, name):
        return real.raise_(KeyError(name))
    return world.item(world.known[id(table)].source, name, sys.modules[name])


def found_or(world: World, table: LoadedModules, name: str, default: Any = None) -> Any:
    """`sys.modules.get(name, default)`."""
    return found(world, table, name) if holds(world, table, name) else default
