"""benchmarks.peers.child: one engine with one model, in a process that waits for its turns.

In: lines of JSON, ``{"seconds": 0.2, "quickest": false}``. Out: one line when it is ready, then for each request the
seconds per call of that turn: their mean by the clock on the wall, or on a machine that others use too the least of
processor time. While it waits it reads from a pipe and takes no processor time.

Engines take as many threads as ``OMP_NUM_THREADS`` says; those with pools of their own are told.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Call = Callable[[], Any]
WARM_SECONDS, WARM_CALLS = 1.0, 6
SHORTEST = 5e-4  # seconds that the clock of processor time can tell apart from its own cost


def _torch_call(name: str, compile_: Callable[[Any], Callable[..., Any]]) -> Call:
    import torch

    from benchmarks.peers.models import build

    model, inputs = build(name)
    with torch.no_grad():
        compiled = compile_(model)
        compiled(*inputs)

    def call() -> Any:
        with torch.no_grad():
            return compiled(*inputs)

    return call


def eager(name: str, _: Path) -> Call:
    """The model itself."""
    return _torch_call(name, lambda model: model)


def argand(name: str, _: Path) -> Call:
    """argand.compile with its defaults."""
    import argand as compiler

    return _torch_call(name, compiler.compile)


def argand_frozen(name: str, _: Path) -> Call:
    """argand.compile with the user's word that weights do not change."""
    import argand as compiler

    return _torch_call(name, lambda model: compiler.compile(model, options={"freeze": True}))


def torch_compile(name: str, _: Path) -> Call:
    """torch.compile with its defaults."""
    import torch

    return _torch_call(name, torch.compile)


def torch_frozen(name: str, _: Path) -> Call:
    """torch.compile with frozen weights."""
    import torch

    return _torch_call(name, lambda model: torch.compile(model, options={"freezing": True}))


def threads() -> int:
    """How many threads an engine may take; 0: as it decides."""
    return int(os.environ.get("OMP_NUM_THREADS", "0"))


def _arrays(folder: Path) -> dict[str, Any]:
    with np.load(folder / "inputs.npz") as file:
        return dict(file)


def onnxruntime(_: str, folder: Path) -> Call:
    """ONNX Runtime with its defaults."""
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads()
    session = runtime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    arrays = _arrays(folder)
    feed = {entry.name: arrays[entry.name] for entry in session.get_inputs()}
    return lambda: session.run(None, feed)[0]


def openvino(_: str, folder: Path) -> Call:
    """OpenVINO's CPU device, tuned for one request at a time, in the precision of the model."""
    import openvino as vino

    core = vino.Core()
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    if threads():
        settings["INFERENCE_NUM_THREADS"] = threads()
    request = core.compile_model(
        core.read_model(folder / "model.onnx"), "CPU", settings
    ).create_infer_request()
    arrays = _arrays(folder)
    feed = {entry.any_name: arrays[entry.any_name] for entry in request.model_inputs}
    return lambda: request.infer(feed, share_inputs=True)[0]


ENGINES: dict[str, Callable[[str, Path], Call]] = {
    "eager": eager,
    "argand": argand,
    "torch": torch_compile,
    "freezing": torch_frozen,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "argand_frozen": argand_frozen,
}


def distance(actual: Any, expected: Any) -> float:
    """The largest difference over the largest value."""
    actual = actual.numpy() if hasattr(actual, "numpy") else np.asarray(actual)
    return float(np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-12))


def turn(call: Call, seconds: float) -> float:
    """Seconds per call over at least so many seconds."""
    call()  # the caches are another engine's
    count, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds or not count:
        call()
        count += 1
    return spent / count


def quickest(call: Call, seconds: float) -> float:
    """Processor seconds of the quickest call, over at least so many seconds; short calls are timed several at a time."""
    call()
    before = time.process_time()
    call()
    several = 1 + int(SHORTEST / max(time.process_time() - before, 1e-6))
    begin, least = time.perf_counter(), float("inf")
    while time.perf_counter() - begin < seconds or least == float("inf"):
        before = time.process_time()
        for _ in range(several):
            call()
        least = min(least, (time.process_time() - before) / several)
    return least


def main() -> None:
    """Prepare, then answer requests until the input ends."""
    engine, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    answers = sys.stdout
    sys.stdout = sys.stderr  # engines talk; answers must stay readable
    try:
        call = ENGINES[engine](name, folder)
        begin, count = time.perf_counter(), 0
        while count < WARM_CALLS or time.perf_counter() - begin < WARM_SECONDS:
            result, count = call(), count + 1
        answer = {"distance": distance(result, np.load(folder / "expected.npy"))}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    gc.collect()
    gc.freeze()
    print(json.dumps(answer), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        clock = quickest if request["quickest"] else turn
        print(json.dumps(clock(call, request["seconds"])), file=answers, flush=True)


if __name__ == "__main__":
    main()
