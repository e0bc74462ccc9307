"""Processes that end while a thread compiles: ``python -m tools.exits --count 1000``. Exit code 1 when one hangs or crashes.

Each is a fork of this process, which has loaded everything and computed nothing; it calls a function with
``background=True`` twice, waits for a moment that differs from one to the next, and ends as any program does.
"""

import argparse
import os
import random
import signal
import sys
import time

import torch

import argand
import argand.background
import argand.capture.trace
import argand.native.build

ENDINGS = ("return", "exit", "raise", "interrupt")


def program(seed: int) -> None:
    """Compile in the background, and end in its middle."""
    torch.set_num_threads(2)
    draw = random.Random(seed)
    layers = [
        torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
        for _ in range(6)
    ]
    call = argand.compile(
        torch.nn.Sequential(*layers), options={"background": True, "cache": False}
    )
    x = torch.ones(2, 16, requires_grad=draw.random() < 0.5)
    for _ in range(2):
        call(x)
    time.sleep(draw.random() * draw.choice((0.01, 0.1, 0.6)))
    ending = draw.choice(ENDINGS)
    if ending == "exit":
        raise SystemExit(0)
    if ending == "raise":
        sys.excepthook = lambda *_: None
        raise ValueError
    if ending == "interrupt":
        sys.excepthook = lambda *_: None
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


def ended(child: int, seconds: float) -> int | None:
    """The status of a child, None when it does not end."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> int:
    """Many exits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    faults, longest, codes = 0, 0.0, dict.fromkeys(("0", "1", "interrupted"), 0)
    for seed in range(given.first, given.first + given.count):
        begin, child = time.monotonic(), os.fork()
        if not child:
            program(seed)
            return 0
        status = ended(child, 60)
        longest = max(longest, time.monotonic() - begin)
        interrupted = (
            status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT
        )
        if status is None or (os.WIFSIGNALED(status) and not interrupted):
            faults += 1
            print(
                f"seed {seed}: {'hangs' if status is None else f'signal {os.WTERMSIG(status)}'}",
                flush=True,
            )
        else:
            codes["interrupted" if interrupted else str(os.WEXITSTATUS(status))] += 1
    print(
        f"{given.count} exits, {faults} hang or crash; the longest took {longest:.2f} s; exit codes {codes}"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
