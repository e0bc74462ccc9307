"""The long form: `python -m tests.stale [--mixtures N] [--seed S] [--backend NAME]`; counts, and every change that was missed."""

import argparse
import sys
import warnings

from tests.stale import test_stale  # noqa: F401, it enters the rows
from tests.stale.machine import ROWS, check, check_random


def main() -> int:
    """Every row, then mixtures of rows."""
    parser = argparse.ArgumentParser(prog="python -m tests.stale", description=__doc__)
    parser.add_argument("--mixtures", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--backend", default="")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    missed = 0
    jobs = [(name, lambda name=name: check(name, chosen.backend)) for name in ROWS]
    seeds = range(chosen.seed, chosen.seed + chosen.mixtures)
    jobs += [
        (f"seed {seed}", lambda seed=seed: check_random(seed, backend=chosen.backend))
        for seed in seeds
    ]
    for name, run in jobs:
        try:
            run()
        except Exception as error:  # a crash of the checker is a finding too
            missed += 1
            print(f"{name}: {type(error).__name__}: {str(error)[:600]}")
    print(f"stale: {len(ROWS)} kinds of change, {chosen.mixtures} mixtures, {missed} missed")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
