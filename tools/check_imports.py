"""Forbid what src/ must not use of other packages: parts of torch (design D1), LLVM off its room.

import-linter watches our own rooms; it cannot tell torch.fx from torch._dynamo. This reads every
import, every dotted name and every ``import_module("...")`` in the sources.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "argand"


@dataclass(frozen=True)
class Rule:
    """A dotted name nobody may use, but for the rooms named."""

    name: str
    reason: str
    allowed: tuple[str, ...] = ()


PEER = "design D1: on torch, not in torch; a second compiler would be loaded"
BRIDGES = ("backends/bridges",)  # loaded only when the user chose that other compiler
RULES = (
    Rule("torch._dynamo", PEER, BRIDGES),
    Rule("torch._inductor", PEER, BRIDGES),
    Rule("torch._functorch", PEER, BRIDGES),
    Rule("torch.compile", PEER, BRIDGES),
    # drop_in replaces its functions, and calls none
    Rule("torch.compiler", PEER, (*BRIDGES, "drop_in.py")),
    Rule("torch.export", PEER, BRIDGES),
    Rule("torch.fx.experimental", PEER, BRIDGES),
    Rule("sympy", "design D2: importing it costs more than a compile"),
    Rule("pickle", "design D7: no pickle in caches"),
    Rule("dataclasses.dataclass", "it compiles five methods at every import: support.dataclass"),
    Rule("llvmlite", "only the code generator knows LLVM", ("native",)),
)


def used_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import and of every dotted expression."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("import_module", "__import__")
        ):
            constants = (a.value for a in node.args if isinstance(a, ast.Constant))
            yield from ((node.lineno, value) for value in constants if isinstance(value, str))


def violations(path: Path, root: Path = SOURCE) -> list[str]:
    """What one file must not use."""
    place = path.relative_to(root).as_posix()
    rules = [rule for rule in RULES if not place.startswith(rule.allowed or ("\0",))]
    found = {
        f"{place}:{line}: {rule.name}: {rule.reason}"
        for line, name in used_names(ast.parse(path.read_text()))
        for rule in rules
        if name == rule.name or name.startswith(rule.name + ".")
    }
    return sorted(found)


def main() -> int:
    """Print the violations; non-zero when there are any."""
    files = sorted(SOURCE.rglob("*.py"))
    found = [text for path in files for text in violations(path)]
    for text in found:
        print(f"imports: {text}")
    print(f"imports: {len(files)} files, {len(RULES)} rules, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
