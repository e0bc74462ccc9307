"""`python -m tests.property --count 2000`: run many random programs, and shrink those that differ from eager."""

from __future__ import annotations

import argparse
import time
import traceback
from collections import Counter

import torch

from argand.support import events

from .checker import compile_with, differences, uses_unknown_names
from .program_generator import Program, generate
from .shrink import shrink


def find_differences(program: Program, backend: str) -> str | None:
    try:
        return differences(program, compile_with(backend), exact=backend == "eager")
    except Exception:
        return traceback.format_exc()


class Tally:
    """Counts what capture does, so that a green run is known to have compiled something."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.left: Counter[str] = Counter()

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.Count):
            self.counts[event.counter] += event.amount
            if event.counter == "capture.breaks":
                self.reasons[event.detail] += 1
        elif isinstance(event, events.Artifact) and event.name == "graph_breaks":
            text = event.render()
            if "the frame runs in Python" in text:
                self.left[text] += 1

    def report(self) -> str:
        lines = [f"{name}: {count}" for name, count in sorted(self.counts.items())]
        lines += [f"  break {count}x {reason}" for reason, count in self.reasons.most_common(12)]
        lines += [f"  left to Python {count}x {text}" for text, count in self.left.most_common(8)]
        return "\n".join(lines)


def check(options: argparse.Namespace, seed: int) -> str | None:
    """The report on a program that differs, or None."""
    program = generate(seed, options.size)
    if options.show:
        print(program.text)
    difference = find_differences(program, options.backend)
    if difference is None:
        return None
    if options.shrink:
        unknown = uses_unknown_names(program)  # taking statements away must not bring them in
        fails = lambda smaller: (
            unknown >= uses_unknown_names(smaller)
            and find_differences(smaller, options.backend) is not None
        )
        program = shrink(program, fails)
        difference = f"{program.text}{find_differences(program, options.backend)}"
    return f"--- seed {seed}\n{difference}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    parser.add_argument("--size", type=int, default=5, help="statements at the top level")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--shrink", action="store_true", help="print the smallest failing variant")
    parser.add_argument("--show", action="store_true", help="print each program")
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin, failed, tally = time.perf_counter(), [], Tally()
    for seed in range(options.first, options.first + options.count):
        stop = events.subscribe(tally)
        report = check(options, seed)
        stop()
        if report is not None:
            failed.append(seed)
            print(report[:6000], flush=True)
    seconds = time.perf_counter() - begin
    print(tally.report())
    print(f"{options.count} programs, {len(failed)} differ from eager, {seconds:.0f} s: {failed}")


if __name__ == "__main__":
    main()
