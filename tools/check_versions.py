"""Nothing outside of `bytecode/` names an opcode of CPython or a Python version (cpython.h and versions.h in C).

Reads the sources: comments and docstrings too, for what they say of a version grows old unseen.
"""

import ast
import dis
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "argand"
ALLOWED = ("bytecode/", "runtime/cpython.h", "runtime/versions.c", "runtime/versions.h")
VERSION = re.compile(
    r"(?<![\d.])3\.1\d(?![\d])(?!\.\d*e)|version_info|hexversion|python_version|PY_VERSION_HEX|PY_(MAJOR|MINOR)_VERSION"
)
NOT_PYTHON = re.compile(r"llvm_version_info")
MODULES = frozenset({"dis", "opcode", "_opcode"})


def opcodes(root: Path = SOURCE) -> frozenset[str]:
    """Raw names of instructions: those of this interpreter, and what the modules of the versions name."""
    named = {name for name in dis.opmap if "_" in name}
    for path in (root / "bytecode").glob("py3*.py"):
        named |= set(re.findall(r'"([A-Z]+(?:_[A-Z0-9]+)+)"', path.read_text()))
    return frozenset(name for name in named if not name.startswith("INTRINSIC"))


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


def violations(path: Path, names: frozenset[str], root: Path = SOURCE) -> list[str]:
    """What one file says that only `bytecode/` may know."""
    place = path.relative_to(root).as_posix()
    if place.startswith(ALLOWED):
        return []
    text = path.read_text()
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if VERSION.search(NOT_PYTHON.sub("", line)):
            found.append(f"{place}:{number}: a Python version: {line.strip()[:80]}")
        for word in re.findall(r"\b[A-Z]+(?:_[A-Z0-9]+)+\b", line):
            if word in names:
                found.append(f"{place}:{number}: the opcode {word}")
    if path.suffix == ".py":
        imports = _imports(ast.parse(text))
        found += [f"{place}:{line}: import of {name}" for line, name in imports if name in MODULES]
    return found


def main() -> int:
    """Print every violation."""
    names = opcodes()
    paths = [
        path for kind in ("*.py", "*.pyi", "*.c", "*.h") for path in sorted(SOURCE.rglob(kind))
    ]
    found = [violation for path in paths for violation in violations(path, names)]
    print(
        "\n".join(found) or f"versions: {len(paths)} files name no opcode and no version of Python"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
