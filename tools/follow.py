"""Follow one program through all stages, and write what they print into docs/architecture.md.

``python -m tools.follow`` prints; with ``--write`` it replaces the text between the markers, so that
the document cannot rot. A stage that prints nothing yet is named as such.
"""

import pathlib
import re
import sys
from collections.abc import Callable

import torch

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
BEGIN, END = "<!-- follow:begin (python -m tools.follow --write) -->", "<!-- follow:end -->"
MOST_LINES = 40  # of one stage; the document is to be read

PROGRAM = '''\
def program(scores, values):
    """Softmax, dropout and a product, as in attention."""
    weights = torch.softmax(scores, dim=-1)
    return torch.nn.functional.dropout(weights, 0.1) @ values
'''
STAGES = (
    ("guards", "capture: what must hold for the compiled code to be used again"),
    ("graph_code", "capture: the graph, as the user wrote it"),
    ("aot_graphs", "autograd: the same in aten, functional and flat"),
    ("ir", "native: tensor IR"),
    ("fusion", "native: what is fused, and why"),
    ("schedule", "native: loop nests and the memory plan"),
    ("output_code", "native: LLVM IR"),
)


def stage_texts() -> dict[str, list[str]]:
    """What each stage says while the program is compiled."""
    import argand  # noqa: PLC0415 - the tool must be importable where the compiler is broken
    from argand.support import events  # noqa: PLC0415 - as above

    scope: dict[str, Callable[..., torch.Tensor]] = {"torch": torch}  # type: ignore[dict-item]
    exec(compile(PROGRAM, "program.py", "exec"), scope)
    compiled = argand.compile(scope["program"], options={"cache": False})
    with events.collect() as heard:
        compiled(torch.ones(4, 32), torch.ones(32, 8))
        return {name: heard.texts(name) for name, _ in STAGES}


def shorten(text: str) -> str:
    """The first lines of a long text, with the number of those left out."""
    text = re.sub(r"from '/[^'\n]*'?", "from '...'", text)  # paths of this machine
    lines = [line.rstrip() for line in text.strip().splitlines()]
    left = len(lines) - MOST_LINES
    if left > 0:
        lines = [*lines[:MOST_LINES], f"... {left} more lines"]
    return "\n".join(lines)


def render() -> str:
    """The walk as Markdown."""
    texts = stage_texts()
    parts = ["The program:", "", "```python", PROGRAM.rstrip(), "```", ""]
    for name, title in STAGES:
        parts += [f"**{title}** (`ARGAND_LOGS={name}`)", ""]
        found = texts[name]
        parts += ["```", shorten(found[-1]), "```", ""] if found else ["This stage is silent.", ""]
    return "\n".join(parts)


def main() -> int:
    """Print the walk, or write it into the document."""
    torch.manual_seed(0)
    text = render()
    if "--write" not in sys.argv[1:]:
        print(text)
        return 0
    old = DOCUMENT.read_text()
    head, tail = old[: old.index(BEGIN)], old[old.index(END) :]
    DOCUMENT.write_text(f"{head}{BEGIN}\n{text}{tail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
