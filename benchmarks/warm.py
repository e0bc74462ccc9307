"""benchmarks.warm: a fresh process until its first result: eager, Argand and torch.compile with filled caches.

``python -m benchmarks.warm [--models mlp,bert12,resnet50] [--rounds 7] [--mode infer|train]``. The engines take
turns. "process" is the whole life of the process, "first" the time from the built model to the first result (imports
of the compiler included), "own" what the compiler adds to eager's, "CPU" the same in seconds of the processor, which
a busy machine does not stretch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

ENGINES = ("eager", "argand", "torch.compile")
MODELS = ("mlp", "bert12", "resnet50")


def build(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model and its inputs; only what the model needs is imported."""
    import torch  # the parent measures processes and needs none

    torch.manual_seed(0)
    if name == "mlp":
        sizes = (128, 256, 256, 10)
        layers: list[torch.nn.Module] = []
        for one, two in itertools.pairwise(sizes):
            layers += [torch.nn.Linear(one, two), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1]), (torch.randn(32, 128),)
    if name == "bert12":
        from benchmarks.models.transformers import Bert

        return Bert(layers=12), (torch.randint(1, 1000, (4, 128)),)
    from benchmarks.models.convolutional import ResNet50

    return ResNet50(), (torch.randn(1, 3, 224, 224),)


def child(engine: str, name: str, mode: str) -> None:
    """Run one engine once; the seconds of the first result on standard output."""
    import torch

    model, inputs = build(name)
    model.train(mode == "train")
    begin, worked = time.perf_counter(), time.process_time()
    compiled = model
    if engine == "argand":
        import argand

        compiled = argand.compile(model)
    elif engine == "torch.compile":
        compiled = torch.compile(model)
    with torch.set_grad_enabled(mode == "train"):
        result = compiled(*inputs)
        if mode == "train":
            result.sum().backward()
    print(json.dumps([time.perf_counter() - begin, time.process_time() - worked]))


def spawn(engine: str, name: str, mode: str, caches: str) -> tuple[float, ...]:
    """(life of the process, its first result, the processor's time for that) in seconds."""
    places = {"XDG_CACHE_HOME": caches, "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
    command = [
        sys.executable,
        "-m",
        "benchmarks.warm",
        "--child",
        engine,
        "--models",
        name,
        "--mode",
        mode,
    ]
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=known | places, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(f"{engine} on {name}: {done.stderr[-2000:]}")
    return seconds, *json.loads(done.stdout.splitlines()[-1])


def measure(name: str, mode: str, rounds: int, engines: tuple[str, ...]) -> None:
    """Fill the caches, then let the engines take turns; one line each."""
    with tempfile.TemporaryDirectory() as caches:
        cold = {engine: spawn(engine, name, mode, caches) for engine in engines}
        samples = {engine: [] for engine in engines}  # type: dict[str, list[tuple[float, ...]]]
        for _ in range(rounds):
            for engine in engines:
                samples[engine].append(spawn(engine, name, mode, caches))
    whole, first, worked = (
        {e: statistics.median(sample[i] for sample in samples[e]) for e in engines}
        for i in range(3)
    )
    for engine in engines:
        ratio, own = whole[engine] / whole["eager"], 1000 * (first[engine] - first["eager"])
        print(
            f"{name:<9} {mode:<6} {engine:<14} cold {cold[engine][0]:6.2f} s   warm process {whole[engine]:6.2f} s "
            f"({ratio:4.2f} of eager)   first {1000 * first[engine]:7.0f} ms   own {own:6.0f} ms, "
            f"CPU {1000 * (worked[engine] - worked['eager']):6.0f} ms",
            flush=True,
        )


def main() -> None:
    """The table, or one child of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--engines", default=",".join(ENGINES[1:]))
    parser.add_argument("--mode", choices=("infer", "train"), default="infer")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", choices=ENGINES)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.models, arguments.mode)
        return
    for name in arguments.models.split(","):
        measure(name, arguments.mode, arguments.rounds, ("eager", *arguments.engines.split(",")))


if __name__ == "__main__":
    main()
