"""cli.main: one parser, one module per command."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from argand.cli import (
    bench,
    bisect,
    cache,
    compare,
    completion,
    doctor,
    explain,
    listing,
    profile,
    report,
    verify,
)
from argand.cli.run import is_program, run_program
from argand.support.errors import ArgandError


class Command(NamedTuple):
    """Something with ``add_arguments(parser)`` and ``run(options) -> exit code``, and its help."""

    module: Any
    help: str
    examples: tuple[str, ...] = ()
    runs_a_program: bool = False


_COMMANDS: Final[Mapping[str, Command]] = {
    "report": Command(
        report,
        "run a program and write a page about what was done with it",
        ("argand report train.py --epochs 1", "argand report -o page.html -m my.training"),
        runs_a_program=True,
    ),
    "explain": Command(
        explain,
        "run a program and tell what was captured of it, and what to mend",
        ("argand explain train.py --epochs 1", "argand explain --json train.py | jq .problems"),
        runs_a_program=True,
    ),
    "profile": Command(
        profile,
        "run a program and print the time of every kernel",
        ("argand profile --first 10 serve.py",),
        runs_a_program=True,
    ),
    "verify": Command(
        verify,
        "compare what compiled code of a program gives with eager",
        ("argand verify train.py --epochs 1",),
        runs_a_program=True,
    ),
    "bisect": Command(
        bisect,
        "find the part of the compiler that a failure comes from, and a minimal script",
        ("argand bisect train.py --epochs 1", "argand bisect --slow train.py"),
        runs_a_program=True,
    ),
    "bench": Command(
        bench,
        "time a model in eager, compiled, and under torch.compile",
        ("argand bench model.py:make", "argand bench --train --no-rival model.py:make"),
    ),
    "compare": Command(
        compare,
        "a model under several backends",
        ("argand compare --backends argand,eager model.py:make",),
    ),
    "doctor": Command(doctor, "is all here that is needed, and does it work?"),
    "cache": Command(
        cache,
        "look at, clean and carry the disk cache",
        ("argand cache ls", "argand cache why train.py", "argand cache gc --max-size 500M"),
    ),
    "backends": Command(listing.backends, "list the backends"),
    "logs": Command(listing.logs, "what ARGAND_LOGS can show"),
}
_OWN: Final = "What follows the program is its own: options of this command stand before it.\n"
_EPILOG: Final = """\
`argand SCRIPT.py [args]` and `argand -m MODULE [args]` run a program with Argand behind torch.compile.
Exit codes: 0 all is well; 1 the command found what it looks for (a difference, a failure, something bad), or the program
raised; 2 it was called in a wrong way. Commands that run a program end with the program's own code."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="argand", description="A compiler for PyTorch programs.", epilog=_EPILOG
    )
    version = f"argand {importlib.metadata.version('argand')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, row in _COMMANDS.items():
        inner = commands.add_parser(
            name,
            help=row.help,
            description=f"argand {name}: {row.help}.".replace("?.", "?"),
            epilog=_examples(row),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        row.module.add_arguments(inner)
    shells = commands.add_parser("completion", help="print a script that completes command lines")
    shells.add_argument("shell", choices=tuple(completion.SHELLS))
    return parser


def _examples(row: Command) -> str:
    """What stands below the help of a command."""
    own = _OWN if row.runs_a_program else ""
    examples = "\n".join(f"  {example}" for example in row.examples)
    return f"{own}examples:\n{examples}" if examples else own


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, or a program; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
    except ArgandError as error:
        print(f"argand: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, say ``head``, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _run(words: Sequence[str]) -> int:
    if is_program(words):
        return run_program(words).code
    parser = _parser()
    if not words:
        parser.print_help()
        return 2
    options = parser.parse_args(words)
    if options.command == "completion":
        print(completion.script(parser, options.shell), end="")
        return 0
    return int(_COMMANDS[options.command].module.run(options))
