"""``python -m tests.report.planted FOLDER``: reports of programs with a planted problem each, for a reader who did not write them.

Writes 1.html, 1.txt (the page's visible text), and so on, in an order of their own, and KEY.md with the answers. The programs
are named by their numbers, and everything in them has a neutral name: nothing but what the page says tells what is wrong.
"""

import argparse
import html.parser
import os
import random
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import NamedTuple


class Planted(NamedTuple):
    """A program, and what its page must say: kind of problem, cause, fix, and the text of the line."""

    name: str
    kind: str
    cause: str
    fix: str
    line: str
    text: str
    causes: int = 1  # problems on the page; what only comes with one stands under it


HEAD = """
import torch
import argand

torch.manual_seed(0)
"""
CALLS = """
compiled = argand.compile(step, options={"measure": False})
for _ in range(12):
    compiled(torch.randn(16, 16))
"""
PLANTED = (
    Planted(
        "prints",
        "graph break",
        "prints or logs",
        "print outside",
        'print("mean is near", 0)',
        """
def step(x):
    y = torch.relu(x)
    print("mean is near", 0)
    return y + 1
"""
        + CALLS,
    ),
    Planted(
        "branches",
        "graph break",
        "branch on the value of a tensor",
        "torch.where",
        "if y.sum() > 0:",
        """
def step(x):
    y = x.sin()
    if y.sum() > 0:
        return y + 1
    return y - 1
"""
        + CALLS,
    ),
    Planted(  # broken where the number is first needed, mended where it was asked for
        "reads",
        "graph break",
        "reads the value of a tensor",
        "keep the value as a tensor",
        "most = x.abs().max().item()",
        """
def step(x):
    most = x.abs().max().item()
    return x / round(most)
"""
        + CALLS,
    ),
    Planted(
        "counts",
        "recompile",
        "`amount` was 0.5, then 1.5, 2.5, 3.5",
        "pass `amount` as a tensor",
        "return x * (amount * 0.5)",
        """
def step(x, amount):
    return x * (amount * 0.5)

compiled = argand.compile(step, options={"measure": False}, dynamic=False)
for k in range(4):
    for _ in range(6):
        compiled(torch.randn(8), k + 0.5)
""",
    ),
    Planted(
        "shapes",
        "recompile",
        "`x.shape[1]` was 8, then 9, 10, 11",
        "argand.mark_dynamic(x, 1)",
        "return torch.softmax(x, -1)",
        """
def step(x):
    return torch.softmax(x, -1)

compiled = argand.compile(step, options={"measure": False}, dynamic=False)
for k in range(4):
    for _ in range(6):
        compiled(torch.randn(4, 8 + k))
""",
    ),
    Planted(
        "limits",
        "recompile limit",
        "compiled 3 times",
        "recompile_limit",
        "return x + len(text)",
        """
def step(x, text):
    return x + len(text)

compiled = argand.compile(step, options={"measure": False, "recompile_limit": 3})
for k in range(6):
    for _ in range(4):
        compiled(torch.randn(4), "n" * k)
""",
    ),
    Planted(
        "disables",
        "graph break",
        "marked with argand.disable",
        "remove the mark",
        "@argand.disable",
        """
@argand.disable
def part(x):
    return x + 1

def step(x):
    return part(x * 2) * 3
"""
        + CALLS,
    ),
    Planted(
        "varies",
        "graph break",
        "depends on data",
        "torch.where",
        "chosen = x[x > 0]",
        """
def step(x):
    chosen = x[x > 0]
    return chosen * 2
"""
        + CALLS,
    ),
    Planted(
        "keeps_gradients",
        "wasted gradients",
        "no backward pass ever came",
        "torch.no_grad()",
        "def step(x):",
        """
weight = torch.randn(16, 16, requires_grad=True)

def step(x):
    return torch.tanh(x @ weight)
"""
        + CALLS,
    ),
    Planted(
        "sorts",
        "torch's operator",
        "aten.sort",
        "torch's kernel is called",
        "return torch.sort(x, -1)[0] + 1",
        """
def step(x):
    return torch.sort(x, -1)[0] + 1

compiled = argand.compile(step, options={"measure": False})
for _ in range(12):
    compiled(torch.randn(256, 256))
""",
    ),
    Planted(
        "raises",
        "runs in Python",
        "raised while it was captured",
        "argand.disable",
        "return torch.quantize_per_tensor(x.sin(), 0.1, 0, torch.qint8).dequantize()",
        """
def step(x):
    return torch.quantize_per_tensor(x.sin(), 0.1, 0, torch.qint8).dequantize()
"""
        + CALLS,
    ),
    Planted(
        "varies_in_a_helper",
        "recompile",
        "`k` was 0.5, then 1.5, 2.5",
        "pass `k` as a tensor",
        "return part(x.sin(), k * 2) + 1",
        """
@argand.disable
def show(x):
    pass

def part(x, amount):
    show(x)
    return x * amount

def step(x, k):
    return part(x.sin(), k * 2) + 1

compiled = argand.compile(step, options={"measure": False}, dynamic=False)
for k in range(3):
    for _ in range(6):
        compiled(torch.randn(8), k + 0.5)
""",
        causes=2,  # the break is one of its own
    ),
)


class _Visible(html.parser.HTMLParser):
    """The text of a page as a reader sees it; what is folded is unfolded."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag, attrs):
        self._hidden += tag in ("style", "script", "head")
        self.parts.append("\n" if tag in _BLOCKS else "")
        self.parts.append("Fix: " if ("class", "fix") in attrs else "")  # as the style sheet has it

    def handle_endtag(self, tag):
        self._hidden -= tag in ("style", "script", "head")
        self.parts.append("\n" if tag in _BLOCKS else " ")

    def handle_data(self, data):
        if not self._hidden:
            self.parts.append(data)


_BLOCKS = frozenset(
    "p div h1 h2 h3 section tr li details summary header nav main footer code".split()
)


def visible(page: str) -> str:
    """The text of a page."""
    reader = _Visible()
    reader.feed(page)
    lines = ("".join(reader.parts)).splitlines()
    return "\n".join(line for text in lines if (line := " ".join(text.split()))) + "\n"


def write(planted: Planted, path: Path) -> None:
    """The program as a file."""
    path.write_text(HEAD + textwrap.dedent(planted.text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=20)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    order = list(PLANTED)
    random.Random(options.seed).shuffle(order)
    key = ["| page | planted | kind | cause | fix | line |", "|---|---|---|---|---|---|"]
    for number, planted in enumerate(order, 1):
        page = options.folder.resolve() / f"{number}.html"
        with tempfile.TemporaryDirectory() as folder:
            write(planted, Path(folder) / f"program{number}.py")
            command = [sys.executable, "-m", "argand", "report", "--output", str(page)]
            subprocess.run(
                [*command, f"program{number}.py"],
                cwd=folder,
                env=os.environ | {"XDG_CACHE_HOME": folder},
                check=True,
                capture_output=True,
            )
        text = visible(page.read_text())
        page.with_suffix(".txt").write_text(text)
        print(page.with_suffix(".txt"))
        key.append("| " + " | ".join(map(str, (number, *planted[:5]))) + " |")
    (options.folder / "KEY.md").write_text("\n".join(key) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
