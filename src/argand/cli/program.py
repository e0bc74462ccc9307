"""cli.program: the program on the command lines of commands that run one: ``[options] SCRIPT.py [args]`` or ``-m MODULE [args]``."""

from __future__ import annotations

import argparse

from argand.cli.run import check_program
from argand.support.errors import UserError


def add_program(parser: argparse.ArgumentParser) -> None:
    """The program; all that follows it is its own."""
    parser.add_argument("program", metavar="SCRIPT", nargs="?", help="a Python file")
    parser.add_argument(
        "arguments", metavar="ARGUMENTS", nargs=argparse.REMAINDER, help="those of the program"
    )
    parser.add_argument(
        "-m",
        dest="module",
        metavar="MODULE",
        nargs=argparse.REMAINDER,
        help="a module, with its arguments, in place of a file",
    )


def program_of(options: argparse.Namespace) -> list[str]:
    """The words of the program, as after ``python``; fails when there is no such program."""
    if options.module is not None and options.program is None:
        words = ["-m", *options.module]
    elif options.program is not None:
        words = [options.program, *options.arguments]
    else:
        raise UserError("which program?", hint=f"argand {options.command} SCRIPT.py [arguments]")
    check_program(words)
    return words
