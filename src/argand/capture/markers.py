"""capture.markers: values of the interpreter that are no values of the program."""

from __future__ import annotations

from typing import Final

from typing_extensions import override


class Marker:
    """A named sentinel."""

    def __init__(self, name: str) -> None:
        self.name = name

    @override
    def __repr__(self) -> str:
        return f"<{self.name}>"


NULL: Final = Marker("NULL")  # CPython's NULL on the stack
MISSING: Final = Marker("MISSING")  # a lookup found nothing
END: Final = Marker("END")  # an iterator is exhausted
