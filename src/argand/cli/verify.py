"""cli.verify: ``argand verify SCRIPT``: is what compiled code gives and does what eager gives and does?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from argand.cli.tables import write_json
from argand.support.errors import UserError

if TYPE_CHECKING:
    from argand.report.trials import Trial


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one object with all that was found")
    parser.add_argument("--times", action="store_true", help="compare times instead of results")
    parser.add_argument("script", help="a program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def run(options: argparse.Namespace) -> int:
    """Run the program, compare, and say what differs; exit code 1 when something does."""
    if not Path(options.script).is_file():
        raise UserError(f"there is no file {options.script!r}")
    from argand.report.trials import files_of, run_trial  # noqa: PLC0415  # it loads the whole compiler

    how = {"verify": "times" if options.times else "report"}
    outcome = run_trial(files_of([options.script, *options.arguments]), how, quiet=options.json, longest=1e6)
    if options.json:
        write_json(outcome._asdict())
    else:
        print(show(outcome))
    return 0 if outcome.is_good and outcome.counts.get("verify.calls", 0) else 1


def show(outcome: Trial) -> str:
    """What was found, for people."""
    counts = outcome.counts
    seen = f"{counts.get('verify.calls', 0)} calls of compiled graphs and {counts.get('verify.frames', 0)} of captured frames"
    lines = [f"argand verify: {seen} were compared with eager"]
    if counts.get("verify.skipped"):
        lines.append(f"{counts['verify.skipped']} calls could not be compared (ARGAND_LOGS=stages says why)")
    if outcome.is_good:
        lines.append("all are equal" if counts.get("verify.calls") else "nothing was compiled")
        return "\n".join(lines)
    lines.append(f"{outcome.kind}: {outcome.text}" + (f"\n  at {outcome.where}" if outcome.where else ""))
    lines += [f"then: {text}" for text in outcome.differences[1:10]]
    return "\n".join([*lines, "argand bisect SCRIPT finds the guilty part"])
