"""Troubleshooting has every error and every warning that a program can meet, found in the sources and not listed by hand."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "argand"
PAGE = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())
STRIPPED = " :;,()'`\n"
TELLING = {"warn", "_warn", "_warn_once"}


def sources():
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), path.read_text()


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def public_classes():
    """ArgandError, warnings, and what is derived from them."""
    parents = {
        name: set(re.findall(r"\w+", bases))
        for _, text in sources()
        for name, bases in re.findall(r"^class (\w+)\((.*)\):", text, re.MULTILINE)
    }
    found = {"ArgandError"} | {name for name, bases in parents.items() if "UserWarning" in bases}
    while more := {name for name, bases in parents.items() if bases & found} - found:
        found |= more
    return sorted(found)


def fixed_parts(node, names):
    """The texts of a message that are the same each time; names lead to what was assigned to them."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            for value in names.get(each.id, ()):
                yield from fixed_parts(value, {})
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield from (
                part.strip(STRIPPED) for part in re.split(r"\{[^}]*\}|\n|  |\. ", each.value)
            )


def assigned(tree):
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found.setdefault(name_of(target), []).append(node.value)
    return found


def warnings_given():
    """(file:line, longest fixed part of the message) of every call that warns."""
    for path, text in sources():
        if "warn" not in text:
            continue
        tree = ast.parse(text)
        names = assigned(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or name_of(node.func) not in TELLING:
                continue
            parts = [part for given in node.args for part in fixed_parts(given, names)]
            said = " ".join(max(parts, key=len, default="").split())
            if len(said) > 12:
                yield pytest.param(said, id=f"{path}:{node.lineno}")


@pytest.mark.parametrize("name", public_classes())
def test_every_class_is_on_the_page(name):
    assert re.search(rf"\b{name}\b", PAGE)


@pytest.mark.parametrize("text", warnings_given())
def test_every_warning_is_on_the_page(text):
    assert text in PAGE


def test_the_lists_are_not_empty():
    assert {"CaptureError", "SchemaError", "CacheWarning"} <= set(public_classes())
    assert len(list(warnings_given())) > 12
