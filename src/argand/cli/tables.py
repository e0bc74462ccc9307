"""cli.tables: what commands print: for people a rich table on a terminal and plain columns in a pipe, for programs JSON."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Sequence
from typing import Any, Final

NOTHING: Final = (
    "nothing was compiled: it needs argand.compile or torch.compile on a function or module"
)


def write_json(value: Any) -> None:
    """Print one JSON value; numbers that JSON has not are null."""
    print(json.dumps(_finite(value), indent=2, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to standard output."""
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        from rich.console import Console  # noqa: PLC0415  # when there is somebody to see it
        from rich.table import Table  # noqa: PLC0415

        table = Table(*head, box=None)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for line in (head, *rows):
        print(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        )
