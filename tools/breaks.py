"""Write docs/breaks.md: every reason why capture stops, from the rows in support.errors.

``python -m tools.breaks --write`` writes the page, without an argument it is printed.
"""

import pathlib
import re
import sys

from argand.support.errors import Break
from tools.break_examples import EXAMPLES, WITHOUT

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "breaks.md"


def render() -> str:
    """The page."""
    ordered = sorted(Break, key=lambda row: row.name)
    rows = [f"| [{row.name}](#{row.name.lower()}) | {_said(row)} | {row.hint} |" for row in ordered]
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
    return "\n".join([*head, *rows]) + "\n" + "".join(map(_example, ordered))


def _said(row: Break) -> str:
    """The reason, with what is put into it in italics."""
    return re.sub(r"\{(\w+)\}", r"*\1*", row.text)


def _example(row: Break) -> str:
    """The example of one reason: what breaks, and the same without a break."""
    said = _said(row)
    begin = said[0] if said.startswith("argand.") else said[0].upper()
    title = f"\n## {row.name}\n\n{begin}{said[1:]}.\n\n"
    if row.name in WITHOUT:
        return f"{title}{WITHOUT[row.name]}\n"
    example = EXAMPLES[row.name]
    after = f"\nRewritten:\n\n```py\n{example.rewrite.strip()}\n```\n" if example.rewrite else ""
    return f"{title}```py\n{example.breaks.strip()}\n```\n{after}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(render())
    else:
        print(render())
