"""Write docs/breaks.md: every reason why capture stops, from the rows in support.errors.

``python -m tools.breaks --write`` writes the page, without an argument it is printed.
"""

import pathlib
import sys

from argand.support.errors import Break

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "breaks.md"


def render() -> str:
    """The page."""
    rows = [f"| {row.name} | {row.text} | {row.hint} |" for row in Break]
    head = [
        "# Graph breaks",
        "",
        "Why capture stops and what to do about it. Ids are stable. `argand.explain(f)(*args)` and",
        "`ARGAND_LOGS=graph_breaks` show them with your line; `fullgraph=True` makes one an error.",
        "Made by `python -m tools.breaks --write`.",
        "",
        "| id | reason | what to do |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(render())
    else:
        print(render())
