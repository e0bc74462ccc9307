"""capture.outside.known: what the world keeps of an object from outside."""

from __future__ import annotations

from typing import Any, final

from argand.runtime.sources import Source
from argand.support.dataclass import dataclass


@final
@dataclass(slots=True, eq=False)
class Known:
    """An outside object: itself, what the trace sees of it, and where it lives."""

    raw: Any
    value: Any
    source: Source
    partial: bool = False  # a list whose `value` holds only what the trace appends


@final
@dataclass(slots=True, eq=False)
class Shadow:
    """A copy of an outside container on which the trace works; compared with `before` at the end."""

    known: Known
    before: Any  # the contents at first access, as the trace sees them; None: only appended to
    attributes: dict[str, Any] | None  # of an instance of a container's subclass

    def is_changed(self) -> bool:
        """Whether the trace has changed what it holds."""
        return parts_of(self.known.value) != parts_of(self.before or ())


@final
class Namespace(dict[str, Any]):
    """Stands for the dict of a module in a trace; holds nothing."""


@final
class LoadedModules(dict[str, Any]):
    """Stands for `sys.modules` in a trace: asked for one name at a time, for every import changes the whole."""


def contents(container: Any) -> tuple[Any, ...]:
    """What a container holds: items, or pairs of a dict."""
    return tuple(container.items() if isinstance(container, dict) else container)


def parts_of(container: Any) -> list[int]:
    """The ids of all that a container holds."""
    rows = dict.items(container) if isinstance(container, dict) else [(item,) for item in container]
    return [id(part) for row in rows for part in row]
