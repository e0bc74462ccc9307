"""benchmarks.background: the first calls of a model, in eager and with ``background=True``.

``python -m benchmarks.background [--models bert,resnet18,llama] [--rounds 5] [--mode infer|train]``. Fresh processes that take
turns, with an empty cache. "first" is the time of the first call; "second" that of the next, which captures; "over" how long
calls went on until the compiled code took over, and "slowest" the slowest call in between, in calls of eager.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ENGINES = ("eager", "background")
MOST_SECONDS = 40.0


def child(engine: str, name: str, mode: str) -> None:
    """Call a model until its compiled form has taken over; times on standard output."""
    import torch

    import argand
    from argand.support import events
    from benchmarks.models import CASES

    torch.manual_seed(0)
    program = CASES[name].program(mode)
    call = program.target
    if engine == "background":
        call = argand.compile(call, options={"background": True})
    times: list[float] = []
    begin = time.perf_counter()
    over = 0.0
    with events.collect() as seen:
        while len(times) < 4 or (engine == "background" and not over and times[-1] < MOST_SECONDS):
            started = time.perf_counter()
            program.run(call)
            times.append(time.perf_counter() - started)
            if not over and seen.total("background.ready"):
                over = time.perf_counter() - begin
            if time.perf_counter() - begin > MOST_SECONDS:
                break
    print(json.dumps({"times": times, "over": over}))


def measure(engine: str, name: str, mode: str) -> dict[str, float]:
    """One process."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "benchmarks.background", "--child", engine, "--models", name, "--mode", mode]
        environment = os.environ | {"XDG_CACHE_HOME": cache}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    times = found["times"]
    later = times[2:-1] or times[2:]
    return {"first": times[0], "second": times[1], "over": found["over"], "slowest": max(later), "calls": len(times)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="bert,resnet18,llama")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mode", default="infer", choices=("infer", "train"))
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.models, given.mode)
        return
    print(
        f"{'model':<10} {'eager first':>12} {'ours first':>12} {'ratio':>6} {'ours second':>12} {'over after':>11} slowest"
    )
    for name in given.models.split(","):
        rows: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
        for _ in range(given.rounds):
            for engine in ENGINES:
                rows[engine].append(measure(engine, name, given.mode))
        middle = {e: {k: statistics.median(r[k] for r in found) for k in found[0]} for e, found in rows.items()}
        eager, ours = middle["eager"], middle["background"]
        print(
            f"{name:<10} {eager['first'] * 1e3:>9.1f} ms {ours['first'] * 1e3:>9.1f} ms {ours['first'] / eager['first']:>6.2f}"
            f" {ours['second'] * 1e3:>9.1f} ms {ours['over']:>9.2f} s {ours['slowest'] / eager['second']:>7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
