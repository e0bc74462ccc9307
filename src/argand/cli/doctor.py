"""cli.doctor: ``argand doctor``: what was found, as text or JSON. Exit code 1 when something is bad."""

from __future__ import annotations

import argparse

from argand.cli.tables import write_json
from argand.report.doctor import Verdict, examine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one object with all findings")


def run(options: argparse.Namespace) -> int:
    """Look at everything, and print it as it is found."""
    findings = []
    area = ""
    for finding in examine():
        findings.append(finding)
        if options.json:
            continue
        if finding.area != area:
            area = finding.area
            print(area)
        mark = "" if finding.verdict is Verdict.GOOD else f"[{finding.verdict.value}] "
        print(f"  {finding.what:<18} {mark}{finding.value}")
        if finding.hint:
            print(f"  {'':<18} hint: {finding.hint}")
    bad = [finding for finding in findings if finding.verdict is Verdict.BAD]
    if options.json:
        rows = [finding._asdict() | {"verdict": finding.verdict.value} for finding in findings]
        write_json({"healthy": not bad, "findings": rows})
    else:
        print(
            "all is well"
            if not bad
            else f"not well: {len(bad)} of {len(findings)} findings are bad"
        )
    return 1 if bad else 0
