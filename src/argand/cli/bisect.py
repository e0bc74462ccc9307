"""cli.bisect: ``argand bisect SCRIPT``: which part of the compiler is guilty, and a minimal script that shows it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from argand.cli.program import add_program, program_of
from argand.cli.tables import write_json

if TYPE_CHECKING:
    from argand.bisect.search import Bisected


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one object with what was found")
    parser.add_argument(
        "--slow",
        action="store_true",
        help="look for what is slower than eager, not for what is wrong",
    )
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="stop making it smaller after so many"
    )
    parser.add_argument(
        "--output", "-o", type=Path, default=Path("argand-minimal.py"), help="the minimal script"
    )
    add_program(parser)


def run(options: argparse.Namespace) -> int:
    """Find the guilty part; exit code 1 when there is one, 0 when nothing fails."""
    words = program_of(options)
    from argand.bisect.search import bisect  # noqa: PLC0415  # it loads the whole compiler
    from argand.report.trials import script_of  # noqa: PLC0415

    found = bisect(
        script_of(words),
        options.output,
        slow=options.slow,
        seconds=options.seconds,
        say=lambda text: print(text, file=sys.stderr),
    )
    if options.json:
        write_json(as_data(found))
    else:
        print(show(found))
    return 0 if found.symptom is None else 1


def as_data(found: Bisected) -> dict[str, object]:
    """What was found as plain values."""
    data = found._asdict()
    data["symptom"] = found.symptom and found.symptom._asdict()
    data["culprit"] = found.culprit and found.culprit._asdict()
    return data


def show(found: Bisected) -> str:
    """What was found, for people."""
    if found.symptom is None:
        said = "; ".join(["nothing fails", *found.notes])
        return f"argand bisect: {said} ({found.trials} runs, {found.seconds:.1f} s)"
    rows = [("failure", f"{found.symptom.words}: {found.text}"), ("line", found.where)]
    if found.culprit is not None:
        rows += [("stage", found.culprit.stage), ("guilty", found.culprit.says)]
        rows.append(("cure", " ".join(f"{k}={v!r}" for k, v in found.culprit.options.items())))
        rows.append(("compiled", ", ".join(found.culprit.nodes)))
    rows += [("kernels", ", ".join(dict.fromkeys(found.kernels))), ("script", _script(found))]
    rows += [("note", note) for note in found.notes]
    rows.append(("took", f"{found.trials} runs, {found.seconds:.1f} s"))
    return "\n".join(f"{name:<9} {text}" for name, text in rows if text)


def _script(found: Bisected) -> str:
    if not found.script:
        return ""
    alone = "fails by itself" if found.fails_alone else "does not fail by itself"
    return f"{found.script} ({found.lines} lines, {found.nodes} operations; {alone})"
