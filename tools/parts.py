"""Which functions take more of the tracer than they use: ``python -m tools.parts`` lists them.

The parts of a tracer (`capture/objects/parts.py`) say what a function may do. The type checker sees a part that is too
small; this tool sees one that is too large, through all functions that one hands its part on to. A part that is stored,
or handed to what is only known at run time (a rule out of a table), counts as used whole.
"""

import ast
import pathlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tools.house import HERE, Module, modules_of

PARTS = ("Outside", "GraphState", "Caller", "Tracer")  # the smaller ones first


@dataclass
class Taker:
    """A function that takes a part, and what it does with it."""

    name: str
    line: int
    part: str
    uses: set[str] = field(default_factory=set)  # attributes
    gives_to: set[str] = field(default_factory=set)  # functions that get the part
    is_kept: bool = False  # stored, or handed to the unknown


class Excess(NamedTuple):
    """A function that takes more than it uses."""

    name: str
    line: int
    takes: str
    uses: str


def attributes_of_parts(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """By part, its attributes and methods, with those of its bases."""
    classes = {
        node.name: node
        for name, module in modules.items()
        if name.startswith("argand.capture.")
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and node.name in PARTS
    }
    found: dict[str, set[str]] = {}
    for part in PARTS:
        node = classes[part]
        bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in found]
        found[part] = set().union(_own_attributes(node), *(found[base] for base in bases))
    return found


def _own_attributes(node: ast.ClassDef) -> set[str]:
    found = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    found |= {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    stored = (
        n for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    )
    return found | {
        n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self"
    }


def takers_of(module: Module) -> Iterator[Taker]:
    """The functions of a module that take a part."""
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    outermost = {id(node) for node in module.tree.body}
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        name = f"{module.name}.{node.name}" + (
            "" if id(node) in outermost else f" (line {node.lineno})"
        )
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            part = (
                "" if argument.annotation is None else ast.unparse(argument.annotation).strip("'\"")
            )
            if part in PARTS:
                taker = Taker(name, node.lineno, part)
                _follow(taker, node, argument.arg, module.name, imported)
                yield taker


def _follow(
    taker: Taker, function: ast.FunctionDef, argument: str, module: str, imported: Mapping[str, str]
) -> None:
    """Note what a function does with the argument."""
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or node.id != argument:
            continue
        parent = parents[node]
        if isinstance(parent, ast.Attribute):
            taker.uses.add(parent.attr)
        elif isinstance(parent, ast.Call) and node in parent.args:
            taker.gives_to.add(_full_name(parent, module, imported))
        else:
            taker.is_kept = True


def _full_name(call: ast.Call, module: str, imported: Mapping[str, str]) -> str:
    """Who is called, by dotted name; `functools.partial` calls its first argument."""
    callee = call.args[0] if ast.unparse(call.func) == "functools.partial" else call.func
    head, dot, rest = ast.unparse(callee).partition(".")
    return imported[head] + dot + rest if head in imported else f"{module}.{head}{dot}{rest}"


def excesses(modules: Mapping[str, Module]) -> list[Excess]:
    """Functions that take more than they and those they hand it to use."""
    attributes = attributes_of_parts(modules)
    takers = [
        taker
        for name, module in modules.items()
        if name.startswith("argand.")
        for taker in takers_of(module)
    ]
    by_name = {taker.name: taker for taker in takers}
    constructors = _constructors(modules)
    needed = {id(t): set(attributes[t.part] if t.is_kept else t.uses) for t in takers}
    changed = True
    while changed:
        changed = False
        for taker in takers:
            before = len(needed[id(taker)])
            for callee in taker.gives_to:
                if callee in by_name:
                    needed[id(taker)] |= needed[id(by_name[callee])]
                else:
                    needed[id(taker)] |= attributes[constructors.get(callee, taker.part)]
            changed = changed or len(needed[id(taker)]) != before
    least = {
        id(t): next((p for p in PARTS if needed[id(t)] <= attributes[p]), t.part) for t in takers
    }
    return [Excess(t.name, t.line, t.part, least[id(t)]) for t in takers if least[id(t)] != t.part]


def _constructors(modules: Mapping[str, Module]) -> dict[str, str]:
    """By dotted name of a class, the part that its constructor takes."""
    found = {}
    for name, module in modules.items():
        for node in module.tree.body:
            for item in node.body if isinstance(node, ast.ClassDef) else ():
                is_annotated = isinstance(item, ast.AnnAssign) and item.value is None
                given = [item.annotation] if is_annotated else []
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    given = [a.annotation for a in item.args.args if a.annotation is not None]
                parts = [ast.unparse(annotation) for annotation in given]
                found |= {f"{name}.{node.name}": part for part in parts if part in PARTS}
    return found


def main() -> None:
    """Print them."""
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    modules = modules_of(root)
    takers = [taker for module in modules.values() for taker in takers_of(module)]
    for part in PARTS:
        print(f"{part}: {sum(taker.part == part for taker in takers)} functions")
    for excess in excesses(modules):
        print(f"{excess.name}:{excess.line} takes a {excess.takes}, uses a {excess.uses}")


if __name__ == "__main__":
    main()
