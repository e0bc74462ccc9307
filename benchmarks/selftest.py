"""benchmarks.selftest: does the harness tell the truth about an engine whose speed is known?

An engine that does all the work of eager several times must come out slower by that factor.
"""

from __future__ import annotations

from rich.console import Console

from benchmarks.models import CASES
from benchmarks.phases import Settings, measure

FACTORS = (1, 2, 5)
TOLERANCE = 0.15  # of the factor: other programs may run on this machine
ATTEMPTS = 3


def measured_factors(
    rounds: int = 15, seconds: float = 0.05, clock: str = "wall"
) -> dict[int, float]:
    """How many times slower than eager each slowed engine is reported to be."""
    engines = ("eager", *(f"slowed:{factor}" for factor in FACTORS))
    settings = Settings(
        cases=(CASES["softmax"],),
        modes=("infer",),
        engines=engines,
        phases=("steady",),
        rounds=rounds,
        round_seconds=seconds,
        threads=1,
        clock=clock,
    )
    rows = {row["engine"]: row for row in measure(settings)}
    return {factor: 1 / rows[f"slowed:{factor}"]["ratio"] for factor in FACTORS}


def deviations(found: dict[int, float]) -> dict[int, float]:
    """Relative error of each factor."""
    return {factor: abs(value / factor - 1) for factor, value in found.items()}


def run_self_test(console: Console) -> int:
    """Print the reported factors; 0 when they are right in one of a few attempts."""
    for attempt in range(ATTEMPTS):
        found = measured_factors()
        for factor, value in found.items():
            console.print(f"slowed {factor} times, reported {value:.3f} times slower")
        if max(deviations(found).values()) <= TOLERANCE:
            console.print("self-test passed")
            return 0
        console.print(f"attempt {attempt + 1}: off by more than {TOLERANCE:.0%}")
    console.print("self-test FAILED")
    return 1
