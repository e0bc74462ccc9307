"""cli.main: one parser, one module per command."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from argand.cli import bench, bisect, cache, compare, completion, doctor, explain, listing, profile, report, verify
from argand.cli.run import is_program, run_program
from argand.support.errors import ArgandError

# One row per command: something with ``add_arguments(parser)`` and ``run(options) -> exit code``, and its help.
_COMMANDS: Final[Mapping[str, tuple[Any, str]]] = {
    "cache": (cache, "look at, clean and carry the disk cache"),
    "doctor": (doctor, "is all here that is needed, and does it work?"),
    "report": (report, "run a program and write a page about what was done with it"),
    "explain": (explain, "run a program and tell what was captured of it, and what to mend"),
    "profile": (profile, "run a program and print the time of every kernel"),
    "verify": (verify, "compare what compiled code of a program gives with eager"),
    "bisect": (bisect, "find the part of the compiler that a failure comes from, and a minimal script"),
    "bench": (bench, "time a model in eager, compiled, and under torch.compile"),
    "compare": (compare, "a model under several backends"),
    "backends": (listing.backends, "list the backends"),
    "logs": (listing.logs, "what ARGAND_LOGS can show"),
}
_EPILOG: Final = """\
`argand SCRIPT.py [args]` and `argand -m MODULE [args]` run a program with Argand behind torch.compile.
Exit codes: 0 all is well; 1 the command found what it looks for (a difference, a failure, something bad), or the program
raised; 2 it was called in a wrong way. Commands that run a program end with the program's own code."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="argand", description="A compiler for PyTorch programs.", epilog=_EPILOG)
    version = f"argand {importlib.metadata.version('argand')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (module, what) in _COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=what))
    shells = commands.add_parser("completion", help="print a script that completes command lines")
    shells.add_argument("shell", choices=tuple(completion.SHELLS))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, or a program; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if is_program(words):
        return run_program(words)
    parser = _parser()
    options = parser.parse_args(words)
    try:
        if options.command == "completion":
            print(completion.script(parser, options.shell), end="")
            return 0
        return int(_COMMANDS[options.command][0].run(options))
    except ArgandError as error:
        print(f"argand: {error}", file=sys.stderr)
        return 2
