"""capture.interpret.variables: the arguments of the frame that is captured, read when they are first used.

In: raw arguments, and how each is read. Out: the trace's view of them. Reading one guards it, and guards that it is the same
object as another, so an argument that this trace only hands on to what comes after a break has no guard here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

from typing_extensions import override

from argand.capture.markers import Marker

_UNREAD: Final = Marker("UNREAD")


@final
class WaitingLocals(dict[str, Any]):
    """Local variables by name; those that wait are read at their first load."""

    def __init__(self, waiting: dict[str, Callable[[], Any]]) -> None:
        super().__init__(dict.fromkeys(waiting, _UNREAD))
        self._waiting = waiting

    def waits(self, name: str) -> bool:
        """Whether a variable is an argument that nobody has looked at."""
        return super().get(name) is _UNREAD

    def _read(self, name: str) -> Any:
        value = self[name] = self._waiting[name]()
        return value

    @override
    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return self._read(name) if value is _UNREAD else value

    @override
    def get(self, name: str, default: Any = None) -> Any:
        value = super().get(name, default)
        return self._read(name) if value is _UNREAD else value

    @override
    def pop(self, name: str, default: Any = None) -> Any:
        value = self.get(name, default)
        super().pop(name, None)
        return value

    def close(self) -> None:
        """Let go of what the call was given."""
        self.clear()
        self._waiting.clear()
