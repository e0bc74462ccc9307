"""benchmarks.language.speed: the programs whose speed the language is measured by, in one command.

``python -m benchmarks.language.speed [--rival] [--rounds N]``: an Adam step and a whole training step in one function
(`optimizer_speed`), gradients of each sample (`per_sample`), a scan of 1,000 rounds and flex attention (`control_flow`). One process
each; inside of it eager, torch.compile and Argand take turns. For a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

PARTS = {  # module -> its options: those that all of them have, and those for rounds
    "benchmarks.optimizer_speed": ("--rival", "--rounds"),
    "benchmarks.per_sample": ("", "--rounds"),
    "benchmarks.control_flow": ("--rival", ""),
}


def commands(only: str, rival: bool, rounds: int) -> list[list[str]]:
    """The command lines of the parts."""
    found = []
    for module, (rivals, count) in PARTS.items():
        if only in module:
            options = [rivals] if rival and rivals else []
            found.append(
                [sys.executable, "-m", module, *options, *([count, str(rounds)] if count else [])]
            )
    return found


def main() -> int:
    """Run them one after the other; 1 when one of them fails."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.language.speed", description=__doc__
    )
    parser.add_argument("--rival", action="store_true", help="torch.compile too")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="", help="parts whose name has this in it")
    given = parser.parse_args()
    failed = 0
    for command in commands(given.only, given.rival, given.rounds):
        print(f"== {command[2]}", flush=True)
        failed |= subprocess.run(command, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
