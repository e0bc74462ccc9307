"""benchmarks.child: what runs in a process of its own. In: a JSON request. Out: a JSON answer.

``first`` times the call that compiles (cold or warm: the parent chose the cache directories),
``steady`` lets engines run in turns, ``overhead`` times a call whose graph costs nothing, ``front``
times the front half of a compiler alone: capture, or capture and the joint graph.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks import memory
from benchmarks.compare import distance, excused, gradient_distance
from benchmarks.engines import NotAvailable, find
from benchmarks.models import CASES, Case, Program
from benchmarks.models.transformers import Bert
from benchmarks.sweep import one_line

Answer = dict[str, Any]
RESULT_LIMIT, GRADIENT_LIMIT, RANDOM_LIMIT = 1e-3, 1e-2, 0.3
WARM_CALLS, WARM_SECONDS = 5, 0.3


def failure(error: Exception) -> Answer:
    """The answer for an engine that could not do it."""
    status = "missing" if isinstance(error, NotAvailable) else "error"
    return {"status": status, "detail": one_line(error)}


def first(case_name: str, mode: str, engine: str) -> Answer:
    """Seconds from the call of the compiler to the first result, and memory of first and later."""
    program = CASES[case_name].program(mode)
    compile_ = find(engine)
    before = memory.mark()
    begin = time.perf_counter()
    compiled = compile_(program.target)
    program.run(compiled)
    seconds = time.perf_counter() - begin
    compile_peak = memory.peak() - before
    gc.collect()
    before = memory.mark()
    for _ in range(3):
        program.run(compiled)
    run_peak = memory.peak() - before
    return {"status": "ok", "seconds": [seconds], "compile_mb": compile_peak, "run_mb": run_peak}


def compare(case_name: str, program: Program, compiled: Callable[..., Any]) -> float:
    """Distance of one call from eager, over its limit: above one is wrong."""
    case = CASES[case_name]
    reference = case.program(program.mode)
    torch.manual_seed(1)
    expected = reference.run(reference.target)
    torch.manual_seed(1)
    actual = program.run(compiled)
    if program.mode == "infer":
        return distance(actual, expected) / RESULT_LIMIT
    if case.random:
        return distance(actual, expected) / RANDOM_LIMIT
    ours, eager = program.gradients(), reference.gradients()
    gradients = gradient_distance(ours, eager) / GRADIENT_LIMIT
    if gradients > 1 and isinstance(reference.target, torch.nn.Module):
        exact = case.program(program.mode).exact_gradients()
        noise = max(gradient_distance(_nudged(case, program.mode, k), eager) for k in range(3))
        gradients = (
            1.0
            if excused(ours, eager, exact)
            else min(gradients, gradient_distance(ours, eager) / (2 * noise + 1e-9))
        )
    return max(distance(actual, expected) / RESULT_LIMIT, gradients)


def _nudged(case: Case, mode: str, seed: int) -> list[torch.Tensor | None]:
    """Eager's gradients for inputs that differ in the last bit: what rounding alone does to this model."""
    program = case.program(mode)
    generator = torch.Generator().manual_seed(seed)
    program.args = tuple(
        a * (1 + (torch.randint(0, 2, a.shape, generator=generator) * 2 - 1) * 2**-23)
        if isinstance(a, torch.Tensor) and a.is_floating_point()
        else a
        for a in program.args
    )
    torch.manual_seed(1)
    program.run(program.target)
    return program.gradients()


def warm_up(call: Callable[[], Any]) -> float:
    """Call until compiling and trying things out are over; seconds of one call."""
    begin, calls, last = time.perf_counter(), 0, 0.0
    while calls < WARM_CALLS or time.perf_counter() - begin < WARM_SECONDS:
        start = time.perf_counter()
        call()
        last, calls = time.perf_counter() - start, calls + 1
    return last


# A user waits by the wall clock; the tests of the harness must not see what else the machine does.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def interleave(
    calls: dict[str, Callable[[], Any]], rounds: int, seconds: float, clock: str = "wall"
) -> dict[str, list[float]]:
    """Seconds per call of each contender in each round; they take turns, and turns to be first."""
    now = CLOCKS[clock]
    repeats = {name: max(1, round(seconds / warm_up(call))) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name in order:
                call, count = calls[name], repeats[name]
                begin = now()
                for _ in range(count):
                    call()
                samples[name].append((now() - begin) / count)
            order.append(order.pop(0))
    finally:
        gc.enable()
    return samples


def steady(
    case_name: str, mode: str, engines: list[str], rounds: int, seconds: float, clock: str = "wall"
) -> dict[str, Answer]:
    """Interleaved times of all engines in this process."""
    answers: dict[str, Answer] = {}
    calls: dict[str, Callable[[], Any]] = {}
    for engine in engines:
        program = CASES[case_name].program(mode)
        try:
            compiled = find(engine)(program.target)
            error = compare(case_name, program, compiled)
        except Exception as problem:
            answers[engine] = failure(problem)
            continue
        answers[engine] = {"status": "ok" if error <= 1 else "wrong", "distance": error}
        calls[engine] = lambda program=program, compiled=compiled: program.run(compiled)
    # the memory of the last engine: where it lies matters
    floor, args = (CASES[case_name].floor, program.args)
    if floor is not None:
        answers["copy"] = {"status": "ok"}
        calls["copy"] = lambda: floor(*args)
    for engine, samples in interleave(calls, rounds, seconds, clock).items():
        answers[engine]["seconds"] = samples
    return answers


def add_one(x: torch.Tensor) -> torch.Tensor:
    """The smallest program there is."""
    return x + 1


OVERHEAD: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "add_one": lambda: (add_one, (torch.randn(4),)),
    "mlp": lambda: (CASES["mlp"].program("infer").target, (torch.randn(1, 128),)),
    "bert_12_layers": lambda: (Bert(12, 32).eval(), (torch.randint(1, 1000, (1, 4)),)),
}


class InstantBackend:
    """A backend whose graphs return at once what they returned when they were compiled."""

    def __init__(self) -> None:
        self.graphs: list[tuple[Callable[..., Any], int]] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        results = graph(*inputs)

        def instant(*_: Any) -> Any:
            return results

        self.graphs.append((instant, len(inputs)))
        return instant


def overhead(
    program: str, engines: list[str], rounds: int, seconds: float, clock: str = "wall"
) -> dict[str, Answer]:
    """Seconds of a compiled call on tiny tensors, minus its graphs (which do nothing)."""
    answers: dict[str, Answer] = {}
    calls: dict[str, Callable[[], Any]] = {}
    backends: dict[str, InstantBackend] = {}
    with torch.no_grad():
        for engine in engines:
            target, args = OVERHEAD[program]()
            backend = InstantBackend()
            try:
                compiled = find(engine)(target, backend=backend)
                compiled(*args)
            except Exception as problem:
                answers[engine] = failure(problem)
                continue
            answers[engine] = {"status": "ok", "graphs": len(backend.graphs)}
            calls[engine] = lambda compiled=compiled, args=args: compiled(*args)
            backends[engine] = backend
        for engine, samples in interleave(calls, rounds, seconds, clock).items():
            graph_seconds = sum(_seconds_of(*graph) for graph in backends[engine].graphs)
            answers[engine]["seconds"] = [max(s - graph_seconds, 1e-9) for s in samples]
    return answers


def _seconds_of(graph: Callable[..., Any], inputs: int, calls: int = 2000) -> float:
    values = [None] * inputs
    begin = time.perf_counter()
    for _ in range(calls):
        graph(*values)
    return (time.perf_counter() - begin) / calls


# Phases of a compiler's front half: backend that generates no code, mode of the program.
FRONT = {"capture": ("eager", "infer"), "trace": ("aot_eager", "train")}


def front(program: str, engine: str, phase: str) -> Answer:
    """Seconds from the call of the compiler to the first result of a forward pass."""
    target, args = OVERHEAD[program]()
    backend, mode = FRONT[phase]
    with torch.set_grad_enabled(mode == "train"):
        eager = target(*args)
        begin = time.perf_counter()
        result = find(engine)(target, backend=backend)(*args)
        seconds = time.perf_counter() - begin
    bad = distance(result, eager) > RESULT_LIMIT or result.requires_grad != (mode == "train")
    return {"status": "wrong" if bad else "ok", "seconds": [seconds]}


ACTIONS: dict[str, Callable[..., Any]] = {
    "first": first,
    "steady": steady,
    "overhead": overhead,
    "front": front,
}


def main() -> None:
    """Answer the request given as the one argument; the answer is the last line of the output."""
    request = json.loads(sys.argv[1])
    threads = request.pop("threads", 0)
    if threads:
        torch.set_num_threads(threads)
    try:
        answer = ACTIONS[request.pop("action")](**request)
    except Exception as error:
        answer = failure(error)
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
