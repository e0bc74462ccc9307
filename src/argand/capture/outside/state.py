"""capture.outside.state: what a trace knows of everything outside of it, and what it has changed there.

In: values of the outside. Out: their sources, the guards on them, and the writes kept back until the graph has run.
A function that takes an `Outside` looks and notes; it runs no Python code of the user and adds nothing to the graph.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from dataclasses import field
from typing import Any, final

from argand.capture.outside.journal import Journal
from argand.capture.outside.world import World
from argand.runtime.sources import Source
from argand.sizes.plan import SizePlan
from argand.support.dataclass import dataclass
from argand.support.errors import Location


@final
@dataclass(slots=True)
class ClassLookups:
    """What classes held under the names that the trace asked for: guards are made of it."""

    inherited: dict[tuple[type, str], Any] = field(default_factory=dict)  # with their bases
    own: dict[tuple[type, str], Any] = field(default_factory=dict)

    def forget(self, kind: type, name: str) -> None:
        """The trace has written to a class: its subclasses hold something else now."""
        for key in [key for key in self.inherited if key[1] == name and issubclass(key[0], kind)]:
            del self.inherited[key]


class Outside:
    """World, journal and what classes held: the part of a trace that reads and writes."""

    def __init__(self, place: Callable[[], Location | None], plan: SizePlan) -> None:
        self.world = World(place, plan)
        self.journal = Journal()
        self.classes = ClassLookups()
        # outside cells that functions made inside share: cell, source of its contents, of itself
        self.outer_cells: dict[int, tuple[types.CellType, Source, Source]] = {}

    def mark_made(self, value: Any) -> Any:
        """Remember that a function or class was made inside the trace."""
        self.world.made.add(id(value))
        self.world.hold(value)
        return value

    def is_outside(self, value: Any) -> bool:
        """Whether an object is used as itself though it lives outside: writes go to the journal."""
        known = self.world.known.get(id(value))
        if known is not None:
            return known.raw is value
        kinds = type | types.ModuleType | types.FunctionType | enum.Enum
        return isinstance(value, kinds) and id(value) not in self.world.made

    def written(self) -> Any:
        """Equal answers: the trace changed nothing outside between them."""
        return self.journal.mark(), self.world.changed()
