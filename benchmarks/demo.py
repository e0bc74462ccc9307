"""benchmarks.demo: three real models under Argand, in under three minutes (``make demo``).

Shows that results and gradients equal eager, what a call costs before and after, and where the
compile time went. Parts of the compiler that are missing are named, not hidden: a model that the
default backend cannot compile yet is tried with simpler backends, and the table says which.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.child import GRADIENT_LIMIT, RESULT_LIMIT, interleave
from benchmarks.compare import distance, excused, gradient_distance
from benchmarks.engines import NotAvailable, argand_compile
from benchmarks.models.case import Case, Program
from benchmarks.models.convolutional import ResNet18
from benchmarks.models.transformers import Bert, Llama
from benchmarks.summary import time_text
from benchmarks.sweep import one_line

BACKENDS = ("argand", "aot_eager", "eager")
ROUNDS, ROUND_SECONDS = 7, 0.05
DEMO = (
    Case("ResNet-18 (convolutions)", lambda: (ResNet18(), (torch.randn(4, 3, 128, 128),))),
    Case("BERT (encoder)", lambda: (Bert(dropout=0.0), (torch.randint(1, 1000, (4, 128)),))),
    Case("Llama (decoder)", lambda: (Llama(), (torch.randint(1, 1000, (4, 128)),))),
)


@dataclass
class Outcome:
    """What the demo found out about one model in one mode."""

    case: str
    mode: str
    backend: str = ""
    first: float = 0.0
    eager: float = 0.0
    compiled: float = 0.0
    distance: float = float("inf")
    gradients: float = 0.0
    excused: bool = False  # eager's own gradients are as far from the exact ones
    stages: dict[str, float] = field(default_factory=dict)
    missing: str = ""

    @property
    def equal(self) -> bool:
        """Within the limits every benchmark uses."""
        gradients = self.gradients <= GRADIENT_LIMIT or self.excused
        return self.distance <= RESULT_LIMIT and gradients


def compile_and_compare(case: Case, program: Program, backend: str, outcome: Outcome) -> Any:
    """Compile with one backend, compare the first call with eager; the compiled program."""
    from argand.support import events

    reference = case.program(program.mode)
    expected = reference.run(reference.target)
    compile_ = argand_compile()
    with events.collect() as collector:
        begin = time.perf_counter()
        compiled = compile_(program.target, backend=backend, options={"strict": True})
        actual = program.run(compiled)
        outcome.first = time.perf_counter() - begin
    outcome.stages = collector.seconds()
    outcome.distance = distance(actual, expected)
    if program.mode == "train":
        ours, eager = program.gradients(), reference.gradients()
        outcome.gradients = gradient_distance(ours, eager)
        if outcome.gradients > GRADIENT_LIMIT:
            outcome.excused = excused(ours, eager, case.program("train").exact_gradients())
    return compiled


def show_case(case: Case, mode: str) -> Outcome:
    """Try the backends from the best to the simplest; the first that compiles is shown."""
    outcome = Outcome(case.name, mode)
    for backend in BACKENDS:
        program = case.program(mode)
        try:
            compiled = compile_and_compare(case, program, backend, outcome)
        except NotAvailable as error:
            outcome.missing = str(error)
            return outcome
        except Exception as error:
            outcome.missing = outcome.missing or f"backend {backend}: {one_line(error, 160)}"
            continue
        outcome.backend = backend
        eager = case.program(mode)
        samples = interleave(
            {
                "eager": lambda eager=eager: eager.run(eager.target),
                "compiled": lambda program=program, compiled=compiled: program.run(compiled),
            },
            ROUNDS,
            ROUND_SECONDS,
        )
        outcome.eager, outcome.compiled = (sorted(s)[len(s) // 2] for s in samples.values())
        return outcome
    return outcome


def print_outcomes(outcomes: list[Outcome], console: Console) -> None:
    """The table of results and times."""
    table = Table(title="Argand beside eager: results, first call, steady state")
    for heading in ("model", "mode", "backend", "equal to eager", "first call"):
        table.add_column(heading)
    for heading in ("eager", "Argand", "speed-up"):
        table.add_column(heading, justify="right")
    for item in outcomes:
        if not item.backend:
            table.add_row(item.case, item.mode, "none yet")
            continue
        gap = f"{item.distance:.0e}" + (f", grads {item.gradients:.0e}" if item.gradients else "")
        gap += " as eager from float64" if item.excused else ""
        table.add_row(
            item.case,
            item.mode,
            item.backend,
            f"{'yes' if item.equal else 'NO'} ({gap})",
            time_text(item.first),
            time_text(item.eager),
            time_text(item.compiled),
            f"{item.eager / item.compiled:.2f}x",
        )
    console.print(table)


def print_stages(outcomes: list[Outcome], console: Console) -> None:
    """Where the time of the first calls went; nested stages are counted in their parents too."""
    totals: dict[str, float] = {}
    for item in outcomes:
        for stage, seconds in item.stages.items():
            totals[stage] = totals.get(stage, 0.0) + seconds
    if not totals:
        return
    table = Table(title="Where compile time went (all first calls together)")
    table.add_column("stage")
    table.add_column("time", justify="right")
    for stage, seconds in sorted(totals.items(), key=lambda item: -item[1])[:20]:
        table.add_row(stage, time_text(seconds))
    console.print(table)


def main() -> int:
    """Run the demo; fails only when a compiled model gives wrong results."""
    console = Console(width=None if sys.stdout.isatty() else 130, highlight=False)
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    outcomes = []
    for case in DEMO:
        for mode in ("infer", "train"):
            outcomes.append(show_case(case, mode))
            console.print(f"  {case.name}, {mode}: {outcomes[-1].backend or 'cannot compile yet'}")
    print_outcomes(outcomes, console)
    print_stages(outcomes, console)
    for cause in dict.fromkeys(item.missing for item in outcomes if item.missing):
        console.print(f"missing: {cause}", markup=False)
    wrong = [item for item in outcomes if item.backend and not item.equal]
    for item in wrong:
        console.print(f"WRONG: {item.case} {item.mode} with backend {item.backend}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
