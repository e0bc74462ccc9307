"""capture.finish.relied: what a trace relied on that has no guard of its own, as rows for others.

In: a tracer. Out: `Facts`, which `stored` keeps for other processes, and `Tables`, which this process asks at each
call: what modules and classes held under the names the trace asked for, and the functions it went through.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from argand.capture.markers import MISSING
from argand.capture.outside.state import Outside
from argand.capture.outside.world import SENTINEL, World
from argand.capture.stored.save import Facts
from argand.protocol import Bypass
from argand.runtime._native import NULL, Tables
from argand.runtime.guards import Guard, GuardKind
from argand.runtime.sources import Const
from argand.runtime.tables import Lookups, make_tables


def facts_of(outside: Outside, namespace: dict[str, Any], key: str | Bypass | None) -> Facts:
    """What another process must find as it was."""
    world = outside.world
    lookups, own = (
        _of_outside(outside.world, table)
        for table in (outside.classes.inherited, outside.classes.own)
    )
    absent = (SENTINEL, MISSING)
    return Facts(
        names=world.names,
        lookups=lookups,
        own=own,
        inlined=world.inlined,
        signed=world.signed,
        absent=absent,
        bypass=world.bypass,
        namespace=namespace,
        graph=key,
    )


def tables_of(outside: Outside) -> Tables:
    """What this process must find as it was, at each call."""
    world = outside.world
    names = {row: (holder, _or_null(found)) for row, (holder, found) in world.names.items()}
    lookups, own = (
        {row: _or_null(found) for row, found in _of_outside(outside.world, table).items()}
        for table in (outside.classes.inherited, outside.classes.own)
    )
    return make_tables(names, lookups, own, _functions(outside.world), world.questions)


def asked_of(world: World) -> Iterator[Guard]:
    """Guards on what was asked about the state of torch and the process. To be made in the state the trace began in."""
    for (function, args), place in world.asked.items():
        reader = functools.partial(function, *args) if args else function
        yield Guard(GuardKind.GLOBAL_STATE, None, (reader, reader()), place)


def _or_null(found: Any) -> Any:
    return NULL if found is SENTINEL or found is MISSING else found


def _of_outside(world: World, table: Lookups) -> Lookups:
    """Without classes made in the trace, and what a program sees of our own."""
    made = world.made
    kinds = {
        kind
        for kind, _ in table
        if id(kind) not in made and not str(kind.__module__).startswith("argand.")
    }
    return {row: found for row, found in table.items() if row[0] in kinds}


def _functions(world: World) -> Iterator[types.FunctionType]:
    """Functions known by identity; one that may be made anew for each call has a guard on its code."""
    for function in world.inlined.values():
        known = world.known.get(id(function))
        if known is None or id(function) in world.pinned or isinstance(known.source, Const):
            yield function
