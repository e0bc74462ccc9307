"""cli.completion: ``argand completion SHELL``: what a shell must know to complete our command lines.

In: the tree of argparse parsers. Out: a script for bash, zsh or fish, with every command, its options and the words they take;
names of files are left to the shell. Nothing here names a command: a new one is completed when it is there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, final


@final
class CommandWords(NamedTuple):
    """What can follow a command."""

    name: str
    help: str
    flags: tuple[tuple[str, str], ...]  # with what they do
    words: tuple[str, ...]  # choices of its arguments


def commands_of(parser: argparse.ArgumentParser) -> list[CommandWords]:
    """The commands of a parser."""
    groups = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    found = []
    for group in groups:
        helps = {choice.dest: choice.help or "" for choice in group._choices_actions}
        found += [_words(name, helps.get(name, ""), inner) for name, inner in group.choices.items()]
    return found


def _words(name: str, text: str, parser: argparse.ArgumentParser) -> CommandWords:
    flags = [
        (flag, action.help or "") for action in parser._actions for flag in action.option_strings
    ]
    words = [
        str(word)
        for action in parser._actions
        if not action.option_strings
        for word in action.choices or ()
    ]
    return CommandWords(name, text, tuple(flags), tuple(words))


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script of one shell."""
    return "\n".join(SHELLS[shell](commands_of(parser))) + "\n"


def _bash(commands: list[CommandWords]) -> Iterator[str]:
    yield "_argand() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" words='
    yield '  if [ "$COMP_CWORD" -gt 1 ]; then case "${COMP_WORDS[1]}" in'
    for command in commands:
        yield f'    {command.name}) words="{" ".join([*(f for f, _ in command.flags), *command.words])}" ;;'
    yield "  esac; else"
    yield f'    words="{" ".join(command.name for command in commands)}"'
    yield "  fi"
    yield "  local IFS=$'\\n'  # names of files may have spaces"
    yield '  COMPREPLY=($(IFS=" " compgen -W "$words" -- "$word"; compgen -f -- "$word"))'
    yield "}"
    yield "complete -o filenames -F _argand argand"


def _zsh(commands: list[CommandWords]) -> Iterator[str]:
    yield "#compdef argand"
    yield "_argand() {"
    yield "  if (( CURRENT == 2 )); then"
    rows = " ".join(f"'{command.name}:{_plain(command.help)}'" for command in commands)
    yield f"    local -a commands=({rows})"
    yield "    _describe command commands; _files; return"
    yield "  fi"
    yield "  case $words[2] in"
    for command in commands:
        flags = " ".join(f"'{flag}:{_plain(what)}'" for flag, what in command.flags)
        yield f"    {command.name}) local -a flags=({flags}); _describe option flags"
        yield f"      compadd -- {' '.join(command.words)} ;;" if command.words else "      ;;"
    yield "  esac"
    yield "  _files"
    yield "}"
    yield "compdef _argand argand"


def _fish(commands: list[CommandWords]) -> Iterator[str]:
    for command in commands:
        yield f"complete -c argand -n __fish_use_subcommand -a {command.name} -d '{_plain(command.help)}'"
    for command in commands:
        when = f"complete -c argand -n '__fish_seen_subcommand_from {command.name}'"
        for flag, what in command.flags:
            kind = "-l" if flag.startswith("--") else "-s"
            yield f"{when} {kind} {flag.lstrip('-')} -d '{_plain(what)}'"
        if command.words:
            yield f"{when} -a '{' '.join(command.words)}'"


def _plain(text: str) -> str:
    """A text that no shell reads as anything else."""
    return "".join(c for c in text if c.isalnum() or c in " ,.-/").strip()


SHELLS: Final[Mapping[str, Callable[[list[CommandWords]], Iterator[str]]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
