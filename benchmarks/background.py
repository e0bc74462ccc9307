"""benchmarks.background: the first calls of a model, in eager and with ``background=True``.

``python -m benchmarks.background [--models bert,resnet18,llama] [--rounds 5] [--mode infer|train] [--clock cpu|wall]``. Fresh
processes that take turns, with an empty cache. "first" is the time of the first call; "second" that of the next; "slowest"
that of the slowest call until the compiled code took over, which is the one that captures, in calls of eager (the median of
its later ones); "over" how long, and over how many calls, it was until the compiled code took over. The clock is the CPU time
of the whole process with one thread of torch: what a thread of ours does during a call counts in full.
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


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def child(engine: str, name: str, mode: str, clock: str) -> None:
    """Call a model until its compiled form has taken over; times on standard output."""
    import torch

    import argand
    from argand.support import events
    from benchmarks.models import CASES

    read = CLOCKS[clock]
    if clock == "cpu":
        torch.set_num_threads(1)
    torch.manual_seed(0)
    program = CASES[name].program(mode)
    call = program.target
    if engine == "background":
        call = argand.compile(call, options={"background": True})
    times: list[float] = []
    begin = time.perf_counter()
    over = 0.0
    with events.collect() as seen:
        while len(times) < 8 or (engine == "background" and not over):
            started = read()
            program.run(call)
            times.append(read() - started)
            if not over and seen.total("background.ready"):
                over = time.perf_counter() - begin
            if time.perf_counter() - begin > MOST_SECONDS:
                break
    print(json.dumps({"times": times, "over": over}))


def measure(engine: str, name: str, mode: str, clock: str) -> dict[str, float]:
    """One process."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "benchmarks.background", "--child", engine]
        command += ["--models", name, "--mode", mode, "--clock", clock]
        environment = os.environ | {"XDG_CACHE_HOME": cache}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    times = found["times"]
    later = statistics.median(times[2:])
    return {
        **{"first": times[0], "second": times[1], "slowest": max(times[1:]), "later": later},
        **{"over": found["over"], "calls": len(times)},
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="bert,resnet18,llama")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mode", default="infer", choices=("infer", "train"))
    parser.add_argument("--clock", default="cpu", choices=tuple(CLOCKS))
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.models, given.mode, given.clock)
        return
    print("model       eager first   ours first  ratio  ours second  slowest  over after")
    for name in given.models.split(","):
        rows: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
        for _ in range(given.rounds):
            for engine in ENGINES:
                rows[engine].append(measure(engine, name, given.mode, given.clock))
        middle = {
            e: {k: statistics.median(r[k] for r in found) for k in found[0]}
            for e, found in rows.items()
        }
        print(_row(name, middle["eager"], middle["background"]), flush=True)


def _row(name: str, eager: dict[str, float], ours: dict[str, float]) -> str:
    """One line of the table."""
    return (
        f"{name:<10} {eager['first'] * 1e3:>9.1f} ms {ours['first'] * 1e3:>9.1f} ms {ours['first'] / eager['first']:>6.2f}"
        f" {ours['second'] * 1e3:>9.1f} ms {ours['slowest'] / eager['later']:>8.1f}"
        f"  {ours['over']:.2f} s, {ours['calls']:.0f} calls"
    )


if __name__ == "__main__":
    main()
