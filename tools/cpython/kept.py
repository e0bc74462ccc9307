"""tools.cpython.kept: what a sweep found, in a file, so that one that was ended can be continued.

A line per module. Reasons are not kept: they are asked for again when a line is read, so a new row in `reasons` needs
no new run, and a row that is gone makes its tests be run again.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
from typing import Any, NamedTuple

from tools.cpython.reasons import reason_for

VERSION = ".".join(map(str, sys.version_info[:3]))


class Difference(NamedTuple):
    """A test whose outcome differs from plain Python's."""

    test: str
    wanted: str
    got: str
    text: str  # the traceback


class Row(NamedTuple):
    """What was found in a module."""

    module: str
    tests: int
    different: list[Difference]
    seconds: tuple[float, float]  # plainly, compiled

    @property
    def listed(self) -> int:
        """How many of the differences have a reason."""
        return sum(bool(reason_for(each.test)) for each in self.different)

    @property
    def unexplained(self) -> int:
        """How many have none."""
        return len(self.different) - self.listed


class Kept:
    """The rows of a file that were found by this interpreter in this way; without a file, none."""

    def __init__(self, path: pathlib.Path | None, mode: str, only: str = "") -> None:
        self._path = path
        self._key = [VERSION, mode, only]
        self._rows: dict[str, Row] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):  # half a line of a sweep that was ended
                    self._read(json.loads(line))

    def _read(self, line: dict[str, Any]) -> None:
        if line["key"] == self._key:
            module, tests, different, seconds = line["row"]
            self._rows[module] = Row(
                module, tests, [Difference(*each) for each in different], tuple(seconds)
            )

    def settled(self, module: str) -> Row | None:
        """The row of a module in which nothing is unexplained."""
        row = self._rows.get(module)
        return row if row is not None and not row.unexplained else None

    def add(self, row: Row) -> None:
        """Keep a row; it takes the place of an earlier one of the same module."""
        self._rows[row.module] = row
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"key": self._key, "row": row}) + "\n")
