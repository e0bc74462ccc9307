"""Measure the borders of the house: ``python -m tools.house [TREE ...]`` prints one column per tree.

A tree is a checkout with ``src/argand``; without arguments it is this one. What is counted is said in the rows: cycles
count imports for types, late imports are those inside of functions, probes are ``getattr`` and ``hasattr`` with a
constant name, exceptions as control flow are classes of ours that some ``except`` of ours names. ``--details`` lists them.
"""

import argparse
import ast
import collections
import pathlib
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

USER_FACING = "argand.support.errors"  # what these classes are for is told to users
# a name that Python gives to functions, classes and modules
_PYTHONS_OWN = re.compile(r"'__\w+__'")
HERE = pathlib.Path(__file__).resolve().parents[1]


class Module(NamedTuple):
    """A parsed file."""

    name: str
    is_package: bool
    lines: int
    tree: ast.Module


def modules_of(root: pathlib.Path) -> dict[str, Module]:
    """Every module of a tree, by its dotted name."""
    found = {}
    for path in sorted((root / "src" / "argand").rglob("*.py")):
        parts = path.relative_to(root / "src").with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        found[name] = Module(name, parts[-1] == "__init__", text.count("\n"), ast.parse(text))
    return found


def imports_of(module: Module, known: Iterable[str]) -> set[str]:
    """The modules of the tree that a module imports, anywhere, for types too."""
    names: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name in known and name != module.name}


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module, the largest first (Tarjan, without recursion limits)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(start: str) -> None:
        work = [(start, iter(sorted(graph[start])))]
        number[start] = low[start] = len(number)
        stack.append(start)
        while work:
            at, following = work[-1]
            for after in following:
                if after not in number:
                    number[after] = low[after] = len(number)
                    stack.append(after)
                    work.append((after, iter(sorted(graph[after]))))
                    break
                if after in stack:
                    low[at] = min(low[at], number[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == number[at]:
                    begin = stack.index(at)
                    component = stack[begin:]
                    del stack[begin:]
                    if len(component) > 1:
                        found.append(sorted(component))

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return sorted(found, key=len, reverse=True)


def room_of(name: str) -> str:
    """The room of a module: the folder or file below ``argand``."""
    return [*name.split("."), ""][1]


def largest_cycles(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    """By room, the modules of its largest import cycle."""
    largest = {}
    for room in sorted({room_of(name) for name in modules} - {""}):
        # a package imports its parts: it is no part of a cycle for that
        inside = {n: m for n, m in modules.items() if room_of(n) == room and not m.is_package}
        found = cycles({name: imports_of(module, inside) for name, module in inside.items()})
        largest[room] = found[0] if found else []
    return largest


def functions(modules: Mapping[str, Module]) -> Iterator[int]:
    """The lengths of all functions."""
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1


def late_imports(modules: Mapping[str, Module]) -> list[str]:
    """Imports inside of functions."""
    found = []
    for module in modules.values():
        for function in ast.walk(module.tree):
            if isinstance(function, ast.FunctionDef):
                inner = [
                    n for n in ast.walk(function) if isinstance(n, ast.Import | ast.ImportFrom)
                ]
                found += [f"{module.name}.{function.name}: {ast.unparse(node)}" for node in inner]
    return sorted(set(found))


def probes(modules: Mapping[str, Module]) -> list[str]:
    """Attributes asked for by a constant name."""
    found = []
    for module in modules.values():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in {"getattr", "hasattr"} and isinstance(node.args[1], ast.Constant):
                found.append(f"{module.name}: {ast.unparse(node)}")
    return found


def own_exceptions(modules: Mapping[str, Module]) -> list[str]:
    """Exception classes of ours that an ``except`` of ours names; those for users are not counted."""
    bases: dict[str, tuple[str, set[str]]] = {}
    caught: set[str] = set()
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = (
                    module.name,
                    {ast.unparse(base).rpartition(".")[2] for base in node.bases},
                )
            elif isinstance(node, ast.ExceptHandler) and node.type is not None:
                caught |= {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
                caught |= {n.attr for n in ast.walk(node.type) if isinstance(n, ast.Attribute)}
    errors = {
        "BaseException",
        "Exception",
        "ValueError",
        "KeyError",
        "RuntimeError",
        "TypeError",
        "ArgandError",
    }
    for _ in bases:
        errors |= {name for name, (_, own) in bases.items() if own & errors}
    return sorted(
        f"{bases[name][0]}.{name}"
        for name in errors & caught & bases.keys()
        if bases[name][0] != USER_FACING
    )


def _named_kinds(module: Module) -> Iterator[str]:
    """The classes and type aliases that a module defines: public names that begin like a class's."""
    for node in module.tree.body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if re.match(r"[A-Z][a-z]", name):
                    yield name
            case _:
                pass


def doubled_classes(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    """Public names of classes and type aliases that more than one module defines."""
    places = collections.defaultdict(list)
    for module in modules.values():
        for name in _named_kinds(module):
            if not name.startswith("_"):
                places[name].append(module.name)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def files_per_folder(modules: Mapping[str, Module]) -> dict[str, int]:
    """How many files each folder has, packages' own not counted."""
    counted = collections.Counter(
        m.name.rpartition(".")[0] for m in modules.values() if not m.is_package
    )
    return dict(counted.most_common())


def percentiles(values: Iterable[int]) -> str:
    """p50 / p95 / the largest."""
    sorted_ = sorted(values)
    return f"{statistics.median_low(sorted_)} / {sorted_[int(len(sorted_) * 0.95)]} / {sorted_[-1]}"


def measure(modules: Mapping[str, Module]) -> dict[str, str]:
    """One column of the table."""
    largest, folders = largest_cycles(modules), files_per_folder(modules)
    rows = {f"largest import cycle: {room}": str(len(found)) for room, found in largest.items()}
    rows["late imports"] = str(len(late_imports(modules)))
    asked = probes(modules)
    of_python = sum(bool(_PYTHONS_OWN.search(probe)) for probe in asked)
    rows["attribute probes, Python's own names / others"] = (
        f"{of_python} / {len(asked) - of_python}"
    )
    rows["exceptions as control flow"] = str(len(own_exceptions(modules)))
    rows["names of classes and types with two meanings"] = str(len(doubled_classes(modules)))
    rows["files"] = str(len(modules))
    rows["most files in one folder"] = "{1} ({0})".format(
        *max(folders.items(), key=lambda row: row[1])
    )
    rows["file length, p50 / p95 / largest"] = percentiles(
        m.lines for m in modules.values() if not m.is_package
    )
    rows["function length, p50 / p95 / largest"] = percentiles(functions(modules))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="*", type=pathlib.Path, default=[HERE])
    parser.add_argument(
        "--details", action="store_true", help="list what was counted in the last tree"
    )
    given = parser.parse_args()
    columns = [measure(modules_of(tree)) for tree in given.trees]
    print("| | " + " | ".join(tree.resolve().name for tree in given.trees) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for row in dict.fromkeys(row for column in columns for row in column):
        print(f"| {row} | " + " | ".join(column.get(row, "") for column in columns) + " |")
    if given.details:
        modules = modules_of(given.trees[-1])
        for name, listed in (
            ("late imports", late_imports(modules)),
            ("probes", probes(modules)),
            ("exceptions", own_exceptions(modules)),
            (
                "names with two meanings",
                [f"{n}: {', '.join(w)}" for n, w in doubled_classes(modules).items()],
            ),
            (
                "files per folder",
                [f"{n} {count}" for n, count in files_per_folder(modules).items()],
            ),
        ):
            print(f"\n{name}\n" + "\n".join(f"  {line}" for line in listed))


if __name__ == "__main__":
    main()
