"""cli.listing: ``argand backends`` and ``argand logs``: names that can be chosen."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Final

from argand.backends.registry import list_backends
from argand.cli.tables import write_json
from argand.support.logs import ARTIFACTS


def _add_backends(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="debugging ones too")
    parser.add_argument("--json", action="store_true", help="a list of names")


def _run_backends(options: argparse.Namespace) -> int:
    names = list_backends(None if options.all else ("debug", "experimental"))
    if options.json:
        write_json(names)
    else:
        print("\n".join(names))
    return 0


def _add_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="an object: what each name shows")


def _run_logs(options: argparse.Namespace) -> int:
    if options.json:
        write_json(ARTIFACTS)
    else:
        print("\n".join(f"{name:<16} {what}" for name, what in ARTIFACTS.items()))
    return 0


backends: Final = SimpleNamespace(add_arguments=_add_backends, run=_run_backends)
logs: Final = SimpleNamespace(add_arguments=_add_logs, run=_run_logs)
