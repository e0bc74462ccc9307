"""Print the sizes of rooms, files and functions, and fail on files and functions that are too long.

Sizes are counted in statements, which neither comments, blank lines nor line breaks change; the two
limits are in lines, because they are about what a reader has to scroll.
"""

import ast
import pathlib
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src" / "argand"
MAX_FILE = 500  # lines, of Python and of C
MAX_FUNCTION = 60  # lines, docstring included
C_STATEMENT = re.compile(r";|\{")


def statements(path: pathlib.Path) -> int:
    """Statements of a file: of Python's syntax tree; in C, semicolons and blocks outside of comments."""
    text = path.read_text()
    if path.suffix == ".py":
        return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text)))
    code = re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", "", text, flags=re.DOTALL)
    return len(C_STATEMENT.findall(code))


def function_lengths(path: pathlib.Path) -> list[tuple[int, str]]:
    """Length in lines and place of every Python function in a file."""
    return [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{path.name}:{node.name}")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def percentiles(lengths: Iterable[int]) -> str:
    """Median and 95th percentile, and the longest."""
    ordered = sorted(lengths)
    return f"p50 {statistics.median(ordered):.0f}, p95 {ordered[len(ordered) * 95 // 100]}, longest {ordered[-1]}"


def room_of(path: pathlib.Path, source: pathlib.Path) -> str:
    """The room a file belongs to: its first folder, or the file itself."""
    return path.relative_to(source).parts[0]


def main(source: pathlib.Path = SOURCE) -> int:
    """Report the sizes; non-zero when a limit is passed."""
    files = sorted(path for path in source.rglob("*") if path.suffix in {".py", ".c", ".h"})
    lengths = {path: len(path.read_text().splitlines()) for path in files}
    functions = sorted(
        (item for path in files if path.suffix == ".py" for item in function_lengths(path)),
        reverse=True,
    )
    rooms: Counter[str] = Counter()
    for path in files:
        rooms[room_of(path, source)] += statements(path)
    for room, count in sorted(rooms.items()):
        members = [path for path in files if room_of(path, source) == room]
        longest = max(members, key=statements)
        print(
            f"sizes: {room:14} {count:6} statements in {len(members):3} files, most in {longest.name}: {statements(longest)}"
        )
    print(f"sizes: {rooms.total()} statements in {len(files)} files")
    print(
        f"sizes: lines of a file {percentiles(lengths.values())}; of a function {percentiles(n for n, _ in functions)}"
    )
    faults = [
        f"{path.relative_to(source)}: {n} lines of at most {MAX_FILE}"
        for path, n in lengths.items()
        if n > MAX_FILE
    ]
    faults += [
        f"{name}: {n} lines of at most {MAX_FUNCTION}" for n, name in functions if n > MAX_FUNCTION
    ]
    for fault in faults:
        print(f"sizes: too long: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
