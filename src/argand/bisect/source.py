"""bisect.source: a script made smaller by leaving out statements, where what fails is not in a graph.

In: the text of a script and a test. Out: a shorter text that fails in the same way. For failures of capture (side effects,
guards): a graph shows nothing of them. Scripts that could do harm when a part of them is missing are left whole (`refusal`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from typing_extensions import override

from argand.bisect.smallest import first_smaller, smallest

# What may be imported by a script that runs in pieces: nothing of it writes files or talks to others.
_HARMLESS: Final = frozenset(
    [
        "__future__",
        "abc",
        "argand",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "enum",
        "functools",
        "itertools",
        "math",
        "numpy",
        "operator",
        "random",
        "torch",
        "types",
        "typing",
        "typing_extensions",
        "warnings",
        "weakref",
    ]
)
_HARMFUL: Final = frozenset(
    [
        "open",
        "exec",
        "eval",
        "save",
        "tofile",
        "remove",
        "unlink",
        "rmtree",
        "system",
        "popen",
        "__import__",
    ]
)
TextFails = Callable[[str], bool]


def refusal(text: str) -> str:
    """Why a script is not run in pieces; "" if it may be."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            strange = [name for name in names if name.partition(".")[0] not in _HARMLESS]
            if strange:
                return f"it imports {strange[0]}"
        name = (
            node.attr
            if isinstance(node, ast.Attribute)
            else node.id
            if isinstance(node, ast.Name)
            else ""
        )
        if name in _HARMFUL:
            return f"it uses {name}"
    return ""


def shrunk_source(text: str, fails: TextFails) -> str:
    """The script without statements, blocks and large numbers that the failure does without."""
    for step in (_fewer_statements, _without_blocks, _fewer_statements, _smaller_numbers):
        text = step(text, fails)
    return text


def _fewer_statements(text: str, fails: TextFails) -> str:
    """Level by level, from the outside: of each, as few statements as possible."""
    depth = 0
    while True:
        tree = ast.parse(text)
        level = [number for number, deep in _numbered(tree) if deep == depth]
        if not level:
            return text

        def fails_with(some: Sequence[int], text: str = text, level: list[int] = level) -> bool:
            return fails(_without(text, set(level) - set(some)))

        kept = smallest(level, fails_with)
        if len(kept) == 1 and fails(_without(text, level)):
            kept = []
        if len(kept) < len(level):
            text = _without(text, set(level) - set(kept))
        depth += 1


def _numbered(tree: ast.AST, depth: int = 0) -> Iterator[tuple[int, int]]:
    """(number in the order of ``ast.walk``, depth) of every statement."""
    deep = {id(tree): -1}
    for number, node in enumerate(ast.walk(tree)):
        here = deep[id(node)]
        if isinstance(node, ast.stmt):
            yield number, here
        for child in ast.iter_child_nodes(node):
            deep[id(child)] = here + 1 if isinstance(child, ast.stmt) else here


def _without(text: str, numbers: Collection[int]) -> str:
    tree = ast.parse(text)
    gone = {id(node) for number, node in enumerate(ast.walk(tree)) if number in numbers}
    _Removing(gone).visit(tree)
    return ast.unparse(tree) + "\n"


class _Removing(ast.NodeTransformer):
    """Leaves out statements; a block that has none left holds ``pass``."""

    def __init__(self, gone: Collection[int]) -> None:
        self.gone = gone

    @override
    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                left = [child for child in block if id(child) not in self.gone]
                if not left and name == "body" and not isinstance(node, ast.Module):
                    left = [ast.Pass()]
                setattr(node, name, left)
        return super().generic_visit(node)


def _without_blocks(text: str, fails: TextFails) -> str:
    """``if``, ``for``, ``with`` and ``try`` replaced by what is in them, one at a time."""
    number = 0
    while True:
        smaller = _opened(text, number)
        if smaller is None:
            return text
        if fails(smaller):
            text = smaller
        else:
            number += 1


def _opened(text: str, number: int) -> str | None:
    tree = ast.parse(text)
    blocks = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.If | ast.For | ast.With | ast.While | ast.Try)
    ]
    if number >= len(blocks):
        return None
    target = blocks[number]
    for node in ast.walk(tree):
        for _, block in ast.iter_fields(node):
            if isinstance(block, list) and target in block:
                at = block.index(target)
                block[at : at + 1] = target.body
                return ast.unparse(tree) + "\n"
    return None


def _smaller_numbers(text: str, fails: TextFails) -> str:
    """Integers above two as small as possible, all that are equal together."""
    numbers = {
        n.value
        for n in ast.walk(ast.parse(text))
        if isinstance(n, ast.Constant) and type(n.value) is int
    }
    for number in sorted((n for n in numbers if n > 2), reverse=True):
        found = first_smaller(number, lambda new, old=number, t=text: fails(_replaced(t, old, new)))  # type: ignore[misc]
        text = _replaced(text, number, found) if found != number else text
    return text


def _replaced(text: str, old: int, new: int) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value == old:
            node.value = new
    return ast.unparse(tree) + "\n"
