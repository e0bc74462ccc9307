"""Threads against the compiler: ``make threads``, or ``python -m tools.threads --threads 8 --turns 200``.

Each thread does the same number of turns, chosen by its own seed: calls of shared and of own compiled functions,
training steps, indices that are out of range, sizes that are new, compiling anew, ``argand.reset``, forks whose child
compiles. Every answer is compared with eager's, errors too. What is printed at the end depends on the arguments
alone: how often each thing was done, and what went wrong (nothing).
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable

import torch

import argand
from argand.runtime.cache import ArgandWarning

OPTIONS = {"cache": False, "measure": False, "recompile_limit": 1000}
CHILD_SECONDS = 120


def smooth(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Kernels and a reduction."""
    return torch.softmax(x * scale, -1).sum(0) + x.mean()


def picks(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Reads that may be out of range."""
    return x[index] * 2 + 1


def loops(x: torch.Tensor, seen: list[int]) -> torch.Tensor:
    """A break, an effect, and a helper."""
    seen.append(len(seen))
    if x.sum() > 0:
        x = smooth(x, 2.0)
    return x + len(seen)


class Bench:
    """What the threads share: compiled functions, a model to train, and the count of what happened."""

    def __init__(self) -> None:
        self.shared = {f: argand.compile(f, options=OPTIONS) for f in (smooth, picks, loops)}
        self.model = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)
        )
        self.trained = argand.compile(self.model, options=OPTIONS)
        self.done: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []

    def compare(
        self,
        what: str,
        function: Callable[..., object],
        compiled: Callable[..., object],
        *args: object,
    ) -> None:
        """Run both on equal arguments."""
        answers = []
        for run in (function, compiled):
            copies = [list(a) if isinstance(a, list) else a for a in args]
            try:
                answers.append((run(*copies), [a for a in copies if isinstance(a, list)]))
            except (IndexError, RuntimeError) as error:
                answers.append((type(error), str(error)))
        wanted, found = answers
        if isinstance(wanted[0], torch.Tensor) and isinstance(found[0], torch.Tensor):
            right = torch.allclose(wanted[0], found[0], atol=1e-5) and wanted[1] == found[1]
        else:
            right = wanted[0] is found[0] is IndexError
        if not right:
            self.wrong.append(f"{what}: {found} instead of {wanted}")

    def train(self, generator: random.Random) -> None:
        """Gradients of one step, not applied: the model is everybody's."""
        x = torch.randn(generator.choice((2, 4, 7)), 6, requires_grad=True)
        grads = [
            torch.autograd.grad(run(x).square().sum(), [x, *self.model.parameters()])
            for run in (self.model, self.trained)
        ]
        if not all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*grads, strict=True)):
            self.wrong.append("train: other gradients")

    def turn(self, what: str, generator: random.Random) -> None:
        """Do one thing."""
        size = generator.choice((2, 3, 5, 8))
        x = torch.randn(size, 4)
        match what:
            case "call":
                self.compare(what, smooth, self.shared[smooth], x, 1.5)
            case "index":
                high = generator.choice((size, size, size + 3))
                self.compare(what, picks, self.shared[picks], x, torch.tensor([0, high - 1, -1]))
            case "break":
                self.compare(what, loops, self.shared[loops], x, [1] * generator.randrange(2))
            case "train":
                self.train(generator)
            case "compile":
                scale = generator.random()
                self.compare(what, smooth, argand.compile(smooth, options=OPTIONS), x, scale)
            case "reset":
                argand.reset()
            case "fork":
                self.fork(x)

    def fork(self, x: torch.Tensor) -> None:
        """A child that compiles while this process' other threads do."""
        child = os.fork()
        if child == 0:
            signal.alarm(CHILD_SECONDS)
            code = 1
            try:
                fresh = argand.compile(smooth, options=OPTIONS)(x, 0.5)
                old = self.shared[smooth](x, 0.5)
                wanted = smooth(x, 0.5)
                code = (
                    0
                    if torch.allclose(fresh, wanted, atol=1e-5)
                    and torch.allclose(old, wanted, atol=1e-5)
                    else 2
                )
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            self.wrong.append(f"fork: the child ended with {code}")


WEIGHTS = {"call": 30, "index": 20, "break": 12, "train": 15, "compile": 6, "reset": 2, "fork": 1}


def run(threads: int, turns: int, seed: int, kinds: dict[str, int] | None = None) -> Bench:
    """Let threads loose; the bench knows what happened."""
    bench, kinds = Bench(), kinds or WEIGHTS

    def work(number: int) -> None:
        generator = random.Random(f"{seed} {number}")
        for what in generator.choices(list(kinds), list(kinds.values()), k=turns):
            try:
                bench.turn(what, generator)
            except BaseException:
                bench.wrong.append(f"{what}: {traceback.format_exc(limit=-4)}")
            bench.done[what] += 1

    workers = [
        threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
        if worker.is_alive():
            bench.wrong.append("a thread hangs")
    return bench


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--turns", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)  # the pool of torch's threads does not live in children
    warnings.simplefilter("error", ArgandWarning)
    wrong = 0
    for number in range(given.rounds):
        begin = time.monotonic()
        bench = run(given.threads, given.turns, given.seed + number)
        print(f"round {number}: {dict(sorted(bench.done.items()))}, wrong: {len(bench.wrong)}")
        print(f"  {time.monotonic() - begin:.0f} s", file=sys.stderr)
        for line in bench.wrong[:10]:
            print(f"  {line}")
        wrong += len(bench.wrong)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
