"""Write docs/reference: functions from their docstrings, options, commands, logs, environment and events from their tables.

``python -m tools.reference --write`` writes the pages; without an argument they are printed.
"""

import argparse
import dataclasses
import importlib
import inspect
import pathlib
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator

import argand
from argand import _WHERE
from argand.cli import main as command_line
from argand.support import events, logs, options

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "Made by `python -m tools.reference --write`.\n"

# The order of a reader, not of the sources: what is used first comes first.
CHAPTERS = {
    "Compile": ("pipeline", "drop_in", "runtime.cache", "runtime.stance"),
    "Marks": ("capture.rules.marks", "sizes.marks"),
    "See what it did": ("report.compare", "report.explained", "report.opcheck", "support.logs"),
    "Caches and packages": ("native.bundles", "packages"),
    "Backends": (
        "backends.registry",
        "backends.aot",
        "backends.argand_backend",
        "autograd.partition",
    ),
    "Custom operators": (
        "customops.definition",
        "customops.fakes",
        "customops.schema",
        "customops.by_name",
    ),
    "Errors": ("support.errors", "customops.errors", "runtime.disk.store"),
}


def _signature(value: object) -> str:
    """The signature as one would write it, without the quotes of postponed annotations."""
    try:
        text = str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(...)"
    return text.replace("'", "") if "'" in text else text


def _doc(value: object) -> str:
    """A docstring in Markdown: double backquotes are single, indented argument lists are lists."""
    text = inspect.getdoc(value) or ""
    text = text.replace("``", "`")
    return re.sub(r"(?m)^Args:\n((?:(?: {4}.*)?\n?)+)", _arguments, text)


def _arguments(match: re.Match[str]) -> str:
    body = textwrap.dedent(match.group(1))
    rows = re.split(r"(?m)^(?=\w+: )", body)
    items = (re.sub(r"\s+", " ", row).strip() for row in rows if row.strip())
    return (
        "\n"
        + "\n".join(f"- `{name}`: {what}" for name, what in (item.split(": ", 1) for item in items))
        + "\n\n"
    )


def _entry(name: str) -> str:
    value = getattr(argand, name)
    is_error = isinstance(value, type) and issubclass(value, Exception | Warning)
    signature = "" if is_error else _signature(value)
    return f"### argand.{name}\n\n```text\n{name}{signature}\n```\n\n{_doc(value)}\n"


def _other_chapters() -> dict[str, tuple[str, ...]]:
    """Modules with public names that no chapter above has: nothing is left out by being new."""
    known = {module for modules in CHAPTERS.values() for module in modules}
    rest = tuple(module for module in _WHERE if module not in known)
    return {"More": rest} if rest else {}


def api() -> str:
    """The page of functions."""
    parts = ["# Functions\n", MADE]
    for title, modules in (CHAPTERS | _other_chapters()).items():
        parts.append(f"## {title}\n")
        names = [name for module in modules if module in _WHERE for name in _WHERE[module].split()]
        parts += [_entry(name) for name in sorted(names, key=str.lower)]
    return "\n".join(parts)


def _comments(kind: type) -> Iterator[tuple[str, str]]:
    """(field, what stands above or behind it as a comment) of a class whose fields are explained that way."""
    above: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        comment = re.match(r"\s+#\s*(.*)", line)
        field = re.match(r"\s+(\w+): [^#]*(?:#\s*(.*))?", line)
        if comment:
            above.append(comment.group(1))
        elif field:
            yield field.group(1), " ".join([*above, field.group(2) or ""]).strip()
            above = []


def options_page() -> str:
    """The page of options."""
    comments = dict(_comments(options.Options))
    head = "Given as `argand.compile(f, options={...})`, or for a whole program as `ARGAND_OPTIONS=name=value,...`.\n"
    parts = ["# Options\n", MADE, head, "| option | default | what it is for |\n|---|---|---|"]
    for field in dataclasses.fields(options.Options):
        parts.append(f"| `{field.name}` | `{field.default!r}` | {comments[field.name]} |")
    parts.append(
        "\n## Modes\n\nA mode is a set of options by name; it is given instead of options.\n"
    )
    parts.append("| mode | options |\n|---|---|")
    for mode, values in options.MODES.items():
        given = ", ".join(f"`{name}={value}`" for name, value in values.items()) or "the defaults"
        parts.append(f"| `{mode}` | {given} |")
    return "\n".join(parts) + "\n"


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _parsers(child)


def commands() -> str:
    """The page of commands, from the parsers themselves."""
    parts = ["# Command line\n", MADE]
    for parser in _parsers(command_line._parser()):
        parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=100)
        parts.append(f"## {parser.prog}\n\n```text\n{parser.format_help().rstrip()}\n```\n")
    return "\n".join(parts)


def _module_doc(module: types.ModuleType) -> str:
    """What a module says of itself, without its name in front."""
    text = (inspect.getdoc(module) or "").replace("``", "`").partition(": ")[2]
    return f"{text[0].upper()}{text[1:]}\n"


def environment() -> str:
    """Logs, environment variables and events."""
    parts = ["# Logs, environment, events\n", MADE, "## Logs\n", _module_doc(logs)]
    parts.append("| name | shows |\n|---|---|")
    parts += [f"| `{name}` | {what} |" for name, what in logs.ARTIFACTS.items()]
    parts.append(
        "\n## Environment variables\n\nRead once per process.\n\n| variable | what it does |\n|---|---|"
    )
    for _, comment in _comments(options.Environment):
        variable, _, what = comment.partition(": ")
        parts.append(f"| `{variable}` | {what} |")
    parts.append(f"\n## Events\n\n{_module_doc(events)}")
    for kind in (events.StageStart, events.StageEnd, events.Count, events.Artifact, events.Record):
        fields = ", ".join(kind._fields)
        parts.append(f"- `{kind.__name__}({fields})`: {(kind.__doc__ or '').replace('``', '`')}")
    return "\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "api.md": api,
    "options.md": options_page,
    "command-line.md": commands,
    "environment.md": environment,
}


def main() -> None:
    """Write or print the pages."""
    importlib.import_module("torch")
    for name, render in PAGES.items():
        if "--write" in sys.argv:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_text(render())
        else:
            print(render())


if __name__ == "__main__":
    main()
