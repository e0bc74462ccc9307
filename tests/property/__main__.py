"""`python -m tests.property --count 2000`: run many random programs, and shrink those that differ from eager."""

from __future__ import annotations

import argparse
import time

import torch

import argand

from .checker import differences
from .program_generator import Program, generate
from .shrink import shrink


def make_wrap(backend: str):
    def wrap(function):
        argand.reset()
        return argand.compile(function, backend=backend)

    return wrap


def find_differences(program: Program, backend: str, *, exact: bool) -> str | None:
    try:
        return differences(program, make_wrap(backend), exact=exact)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


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
    exact = options.backend == "eager"
    begin, failed = time.perf_counter(), []
    for seed in range(options.first, options.first + options.count):
        program = generate(seed, options.size)
        if options.show:
            print(program.text)
        difference = find_differences(program, options.backend, exact=exact)
        if difference is None:
            continue
        failed.append(seed)
        if options.shrink:
            fails = lambda p: find_differences(p, options.backend, exact=exact) is not None
            program = shrink(program, fails)
            difference = find_differences(program, options.backend, exact=exact)
        print(
            f"--- seed {seed}\n{program.text if options.shrink else ''}{difference}"[:6000],
            flush=True,
        )
    seconds = time.perf_counter() - begin
    print(f"{options.count} programs, {len(failed)} differ from eager, {seconds:.0f} s: {failed}")


main()
