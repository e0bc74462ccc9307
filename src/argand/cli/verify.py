"""cli.verify: ``argand verify SCRIPT``: is what compiled code gives and does what eager gives and does?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from argand.cli.program import add_program, program_of
from argand.cli.tables import NOTHING, write_json

if TYPE_CHECKING:
    from argand.report.trials import Trial

LONGEST: Final = 1e6  # seconds: as long as it takes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one object with all that was found")
    parser.add_argument("--times", action="store_true", help="compare times instead of results")
    add_program(parser)


def run(options: argparse.Namespace) -> int:
    """Run the program, compare, and say what differs; exit code 1 when something does, else the program's own."""
    words = program_of(options)
    from argand.bisect.symptom import symptom_of  # noqa: PLC0415  # the whole compiler comes with them
    from argand.report.trials import EXITS, RAISES, run_trial, script_of  # noqa: PLC0415

    how = {"verify": "times" if options.times else "report"}
    script = script_of(words)
    outcome = run_trial(script, how, quiet=options.json, longest=LONGEST)
    alike = None
    if outcome.kind in (RAISES, EXITS):  # whose doing is it? In eager it is the program's own
        eager = run_trial(script, {"off": "capture"}, longest=LONGEST)
        alike = symptom_of(eager) == symptom_of(outcome)
    if options.json:
        write_json(outcome._asdict() | {"same_in_eager": alike})
    else:
        print(show(outcome, alike))
    if alike:
        return outcome.code or 1
    return 0 if outcome.is_good and outcome.counts.get("verify.calls", 0) else 1


def show(outcome: Trial, alike: bool | None) -> str:
    """What was found, for people; ``alike``: whether it ends in this way in eager as well."""
    counts = outcome.counts
    calls = counts.get("verify.calls", 0)
    seen = (
        f"{calls} calls of compiled graphs and {counts.get('verify.frames', 0)} of captured frames"
    )
    lines = [f"argand verify: {seen} were compared with eager"]
    if counts.get("verify.skipped"):
        lines.append(
            f"{counts['verify.skipped']} calls could not be compared (ARGAND_LOGS=stages says why)"
        )
    if outcome.is_good or alike:
        lines.append("all are equal" if calls else NOTHING)
    if outcome.is_good:
        return "\n".join(lines)
    at = f"\n  at {outcome.where}" if outcome.where else ""
    if alike:
        return "\n".join(
            [*lines, f"the program itself ends so, in eager as well: {outcome.text}{at}"]
        )
    lines.append(f"{outcome.kind}: {outcome.text}{at}")
    lines += [f"then: {text}" for text in outcome.differences[1:10]]
    return "\n".join([*lines, "argand bisect SCRIPT finds the guilty part"])
