"""Print and limit file and function sizes: the house stays small enough to read."""

import ast
import pathlib
import statistics
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"
MAX_PYTHON_FILE = 800  # lines; style 15 says stop at 500, tables 800
MAX_FUNCTION = 80  # lines including docstring; aim 10, stop at 50
MAX_TOTAL = 30_000  # the whole product, Python and C


def function_lengths(path: pathlib.Path) -> list[tuple[int, str]]:
    """Length and place of every function in a file."""
    tree = ast.parse(path.read_text())
    return [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{path.name}:{node.name}")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def code_lines(paths: list[pathlib.Path]) -> int:
    """Lines that are neither blank nor a lone comment."""
    lines = (line.strip() for path in paths for line in path.read_text().splitlines())
    return sum(1 for line in lines if line and not line.startswith(("#", "//")))


def main() -> int:
    """Report the sizes; non-zero when a limit is passed."""
    files = sorted(SOURCE.rglob("*.py"))
    lengths = {path: len(path.read_text().splitlines()) for path in files}
    c_lines = code_lines([p for p in SOURCE.rglob("*") if p.suffix in {".c", ".h"}])
    functions = sorted((item for path in files for item in function_lengths(path)), reverse=True)
    total = code_lines(files) + c_lines
    longest = max(lengths, key=lambda path: lengths[path])
    print(f"sizes: {total} lines of code ({c_lines} of C) in {len(files)} Python files")
    print(f"sizes: median file {statistics.median(lengths.values()):.0f}, longest {longest.name}", end="")
    print(f" {lengths[longest]}; longest function {functions[0][1]} {functions[0][0]}")
    faults = [f"{p.relative_to(SOURCE)}: {n} lines" for p, n in lengths.items() if n > MAX_PYTHON_FILE]
    faults += [f"{name}: {n} lines" for n, name in functions if n > MAX_FUNCTION]
    if total > MAX_TOTAL:
        faults.append(f"the product has {total} lines, over {MAX_TOTAL}")
    for fault in faults:
        print(f"sizes: too long: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
