"""cli.main: one parser, one function per command."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from argand.backends.registry import list_backends
from argand.cli import bisect, cache, doctor, explain, profile, report, verify
from argand.cli.run import is_program, run_program
from argand.report.compare import compare
from argand.support.errors import ArgandError, UserError
from argand.support.logs import ARTIFACTS

# One row per command: a module with ``add_arguments(parser)`` and ``run(options) -> exit code``, and its help.
_COMMANDS: Final[Mapping[str, tuple[Any, str]]] = {
    "cache": (cache, "look at, clean and carry the disk cache"),
    "doctor": (doctor, "is all here that is needed, and does it work?"),
    "report": (report, "run a program and write a page about what was done with it"),
    "explain": (explain, "run a program and tell what was captured of it, and what to mend"),
    "profile": (profile, "run a program and print the time of every kernel"),
    "verify": (verify, "compare what compiled code of a program gives with eager"),
    "bisect": (bisect, "find the part of the compiler that a failure comes from, and a minimal script"),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="argand",
        description="A compiler for PyTorch programs.",
        epilog="`argand SCRIPT.py [args]` and `argand -m MODULE [args]` run a program with Argand behind torch.compile.",
    )
    version = f"argand {importlib.metadata.version('argand')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (module, what) in _COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=what))
    backends = commands.add_parser("backends", help="list the backends")
    backends.add_argument("--all", action="store_true", help="debugging ones too")
    commands.add_parser("logs", help="what ARGAND_LOGS can show")
    table = commands.add_parser("compare", help="a model under several backends")
    table.add_argument("factory", help="FILE.py:FUNCTION, which returns (model, inputs)")
    table.add_argument("--backends", default="argand", help="comma-separated names")
    table.add_argument("--rounds", type=int, default=10)
    return parser


def _load_factory(place: str) -> Any:
    path, separator, name = place.partition(":")
    if not separator or not Path(path).is_file():
        raise UserError(f"{place!r} is not FILE.py:FUNCTION", hint="name a file and a function in it")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    factory = getattr(module, name, None)
    if factory is None:
        raise UserError(f"{path} has no function {name!r}")
    return factory


def _compare(options: argparse.Namespace) -> int:
    model, inputs = _load_factory(options.factory)()
    comparison = compare(model, inputs, options.backends.split(","), rounds=options.rounds)
    print(comparison)
    return 0 if all(row.correct for row in comparison.rows) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, or a program; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if is_program(words):
        return run_program(words)
    options = _parser().parse_args(words)
    try:
        match options.command:
            case name if name in _COMMANDS:
                return int(_COMMANDS[name][0].run(options))
            case "compare":
                return _compare(options)
            case "backends":
                print("\n".join(list_backends(None if options.all else ("debug", "experimental"))))
            case _:
                print("\n".join(f"{name:<16} {what}" for name, what in ARTIFACTS.items()))
    except ArgandError as error:
        print(f"argand: {error}", file=sys.stderr)
        return 2
    return 0
