"""``python -m tests.programs --count N --first SEED``: random programs, in child processes that may die.

A program that fails is made small and printed; ``--keep`` writes it to ``tests/programs/found``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import importlib
import io
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import torch

import argand
from tests.programs import operands, worlds
from tests.programs.checker import check
from tests.programs.generator import Program, generate
from tests.programs.shrink import kind_of, shrink
from tests.programs.world_checker import check_world
from tests.programs.worlds import World

_FOUND = Path(__file__).parent / "found"
_CHUNK = 100
_WARM = Program(["tensor((3,), 'float32', 'plain', 0, True)"], ["v0 = torch.sin(a0) * a0"], ["v0"])


def in_child(run, timeout: int = 120) -> tuple[int, str]:
    """(signal that ended it, what it told) of a function that runs in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(timeout)
        try:  # whatever happens, a child does not go on with what is its parent's
            with contextlib.redirect_stderr(io.StringIO()), os.fdopen(write, "w") as tell:
                run(tell)
        except BaseException:
            os.abort()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        text = told.read()
    _, status = os.waitpid(child, 0)
    return (os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0), text


def made(seed: int) -> Program | World:
    """The program of a seed, by the generator it belongs to."""
    makers = ((operands.FIRST, operands.generate), (worlds.FIRST, worlds.generate), (0, generate))
    return next(make(seed) for first, make in makers if seed >= first)


def guarded(program: Program | World, options: dict[str, object]) -> str | None:
    """The failure of a program, a crash included."""

    def run(tell: io.TextIOBase) -> None:
        tell.write(_checked(program, options) or "")

    ended, text = in_child(run)
    return f"died: {signal.Signals(ended).name}" if ended else text or None


def _checked(given: int | Program | World, options: dict[str, object]) -> str | None:
    try:
        program = made(given) if isinstance(given, int) else given
        if isinstance(program, World):
            return check_world(program, options)
        return check(program, options)
    except Exception as error:
        return f"the checker failed: {type(error).__name__}: {error}"


def _rare(seed: int) -> dict[str, object]:
    """What only some programs do: files take a third of the time, and what is tried against eager may run there."""
    return {"cache": seed % 8 == 0, "measure": seed % 8 == 4}


def _sweep(seeds: list[int], options: dict[str, object]) -> list[tuple[int, str]]:
    """Failures among programs; one child for many of them, another when it dies."""
    failures: list[tuple[int, str]] = []
    while seeds:

        def run(tell: io.TextIOBase, seeds: list[int] = seeds) -> None:
            for seed in seeds:
                tell.write(f"start {seed}\n")
                tell.flush()
                found = _checked(seed, {**_rare(seed), **options})
                tell.write(f"end {seed} {(found or '').replace(chr(10), ' ')}\n")

        ended, text = in_child(run, timeout=60 * len(seeds))
        rows = text.splitlines()
        done = [row for row in rows if row.startswith("end ")]
        failures += (
            (int(row.split(" ", 2)[1]), row.split(" ", 2)[2])
            for row in done
            if row.split(" ", 2)[2]
        )
        seeds = seeds[len(done) :]
        if ended and seeds:
            if not _dies_in_eager(seeds[0]):
                failures.append((seeds[0], f"died: {signal.Signals(ended).name}"))
            seeds = seeds[1:]
    return failures


def _dies_in_eager(seed: int) -> bool:
    """Whether torch alone ends the process, as its gradient of `pdist` of no rows does."""

    def run(_: io.TextIOBase) -> None:
        argand.compile = lambda function, **_: function  # in this child alone
        _checked(seed, {})

    return bool(in_child(run)[0])


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--verify", action="store_true", help="fakes that cannot be read")
    parser.add_argument("--small", type=int, default=20, help="how many failures to make small")
    given = parser.parse_args()
    torch.set_num_threads(1)
    options: dict[str, object] = {"verify": True} if given.verify else {}
    for backend in ("argand", "aot_eager", "eager"):  # what children would import, each for itself
        check(dataclasses.replace(_WARM, backend=backend), options)
    # formulas of some derivatives do, in each child anew: five seconds, for each step of making a program small too
    importlib.import_module("torch._dynamo")
    gc.freeze()
    kinds: Counter[str] = Counter()
    start = time.monotonic()
    for first in range(given.first, given.first + given.count, _CHUNK):
        seeds = list(range(first, min(first + _CHUNK, given.first + given.count)))
        for seed, failure in _sweep(seeds, options):
            kinds[kind_of(failure)] += 1
            print(f"-- seed {seed}: {failure[:400]}", flush=True)
            if given.small > 0 and kinds[kind_of(failure)] <= 3:
                given.small -= 1
                small = shrink(made(seed), failure, lambda program: guarded(program, options))
                print(small.text(), flush=True)
                if given.keep:
                    (_FOUND / f"seed_{seed}.py").write_text(
                        f'"""{failure[:100]}"""\n\n{small.text()}'
                    )
    print(
        f"{given.count} programs, {sum(kinds.values())} failures, {time.monotonic() - start:.0f} s"
    )
    for kind, count in kinds.most_common():
        print(f"{count:6} {kind}")
    return bool(kinds)


if __name__ == "__main__":
    sys.exit(main())
