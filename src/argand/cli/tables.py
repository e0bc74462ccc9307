"""cli.tables: rows for people: a rich table on a terminal, plain columns in a pipe."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence


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
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
