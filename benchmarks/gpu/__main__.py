"""Every loop nest of models and of torch's operator samples as a Triton kernel, beside LLVM's (``make gpu``).

Tasks are ``main:bert`` (our benchmark models), ``zoo:...`` and ``op:...``, each in a forked child. Equal nests are run once:
what came of each is kept in results/gpu/, so a sweep that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import argand
from argand.native.codegen.triton.module import emit_nest
from argand.native.ir.loops import Contraction
from benchmarks import zoo as zoo_sweep
from benchmarks.gpu import interpreter
from benchmarks.gpu.collect import Found, collected
from benchmarks.gpu.nests import DEVICE, Verdict, described, judge, key_of, save
from benchmarks.models import CASES, MAIN
from benchmarks.ops import load_operators, samples_of
from benchmarks.sweep import Row, Sweep

FOLDER = Path(__file__).resolve().parent.parent.parent / "results" / "gpu"
OPTIONS = {"cache": False, "measure": False}
SAMPLES = 3
DTYPES = (torch.float32, torch.int64)


def judged(found: Found, task: str) -> Row:
    """What came of the nests of one task."""
    states: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    fresh = 0
    for nest, schedule in found:
        if isinstance(nest.kernel, Contraction):
            continue
        key = key_of(nest)
        path = FOLDER / "nests" / f"{key}.json"
        if path.exists():
            row = json.loads(path.read_text())
        else:
            fresh += 1
            verdict = _verdict(nest, schedule)
            row = verdict._asdict() | {"task": task}
            if verdict.state != "refused":
                row |= described(emit_nest(nest, DEVICE.gpu))  # type: ignore[arg-type]
            save(path.parent, key, row)
        states[row["state"]] += 1
        if row["state"] != "equal":
            reasons[f"{row['state']} {key}: {row['detail']}"] += 1
    bad = states["differs"] + states["error"]
    return {
        "status": "wrong" if bad else "ok",
        "states": states,
        "fresh": fresh,
        "cause": "; ".join(list(reasons)[:3]),
    }


def _verdict(nest: Any, schedule: Any) -> Verdict:
    try:
        assert DEVICE.gpu is not None
        return judge(nest, schedule, DEVICE.gpu)
    except Exception as error:
        return Verdict("error", f"{type(error).__name__}: {str(error)[:300]}")


def model_runs(name: str) -> Iterator[Callable[[], Any]]:
    """A benchmark model, forward and with its backward."""
    for mode in CASES[name].modes:
        program = CASES[name].program(mode)
        yield lambda program=program: program.run(argand.compile(program.target, options=OPTIONS))  # type: ignore[misc]


def zoo_runs(zoo: Any, name: str) -> Iterator[Callable[[], Any]]:
    """A model of the zoo, forward and with its backward."""
    for mode in ("infer", "train"):
        model, args, kwargs = zoo.build(name)
        model.train(mode == "train")

        def run(
            model: Any = model, args: Any = args, kwargs: Any = kwargs, mode: str = mode
        ) -> Any:
            return zoo_sweep.call(argand.compile(model, options=OPTIONS), model, args, kwargs, mode)

        yield run


def op_runs(op: Any) -> Iterator[Callable[[], Any]]:
    """Samples of an operator, forward and with gradients where it has some."""
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for sample in samples_of(op, dtype, SAMPLES):
            for needs in {False, dtype.is_floating_point and op.supports_autograd}:
                args, kwargs, leaves = sample.arguments(needs)

                def run(args: Any = args, kwargs: Any = kwargs, leaves: Any = leaves) -> Any:
                    result = argand.compile(lambda *a, **k: op(*a, **k), options=OPTIONS)(
                        *args, **kwargs
                    )
                    floats = [
                        t
                        for t in torch.utils._pytree.tree_leaves(result)
                        if isinstance(t, torch.Tensor)
                    ]
                    floats = [t for t in floats if t.requires_grad]
                    if floats and leaves:
                        torch.autograd.grad([t.sum() for t in floats], leaves, allow_unused=True)

                yield run


def examine(task: str, zoo: Any, operators: Any) -> Row:
    """Compile all of a task and judge its nests."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kind, name = task.split(":", 1)
    runs = {
        "main": lambda: model_runs(name),
        "zoo": lambda: zoo_runs(zoo, name),
        "op": lambda: op_runs(operators[name]),
    }
    failed: Counter[str] = Counter()
    with collected(DEVICE) as found:
        for run in runs[kind]():
            try:
                run()
            except (
                Exception
            ) as error:  # a sample that eager refuses too, or a gradient that does not exist
                failed[type(error).__name__] += 1
    return judged(found, task) | {"failed": failed, "nests": len(found)}


def summary(rows: list[Row]) -> str:
    """Counts over all tasks and over distinct nests."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.get("states", {}))
    distinct = [json.loads(path.read_text()) for path in sorted((FOLDER / "nests").glob("*.json"))]
    states = Counter(row["state"] for row in distinct)
    reasons = Counter(row["detail"] for row in distinct if row["state"] == "refused")
    lines = [
        f"{len(rows)} tasks ({sum(row['status'] != 'ok' for row in rows)} not ok), {total.total()} nests: {dict(total)}",
        f"{len(distinct)} distinct nests: {dict(states)}",
        *(f"  refused {count}: {reason}" for reason, count in reasons.most_common()),
        *(
            f"  {row['state']} in {row['task']}: {row['detail'][:160]}"
            for row in distinct
            if row["state"] in ("differs", "error")
        ),
        *(
            f"  {row['task']}: {row['status']}: {row.get('cause', '')[:160]}"
            for row in rows
            if row["status"] not in ("ok", "wrong")
        ),
    ]
    return "\n".join(lines)


def main() -> None:
    """Sweep and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument(
        "--tasks", default="main", help="main, zoo, op, or names such as main:bert, comma separated"
    )
    parser.add_argument("--limit", type=float, default=240.0, help="seconds per task")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    interpreter.start()
    wanted = given.tasks.split(",")
    zoo = zoo_sweep.load_zoo() if any(t.startswith("zoo") for t in wanted) else None
    operators = load_operators() if any(t.startswith("op") for t in wanted) else {}
    known = {
        "main": list(MAIN),
        "models": list(CASES),
        "zoo": (zoo_sweep.ZOO / "dev.txt").read_text().split() if zoo else [],
        "op": list(operators),
    }
    tasks = [
        task if ":" in task else f"{'main' if task == 'models' else task}:{name}"
        for task in wanted
        for name in ([""] if ":" in task else known[task])
    ]
    if given.fresh:
        for path in (FOLDER / "nests").glob("*.json"):
            path.unlink()
    sweep = Sweep(FOLDER / "tasks.jsonl", given.limit, given.jobs, given.fresh)
    rows = sweep.run(tasks, lambda task: examine(task, zoo, operators))
    print(summary(rows))


if __name__ == "__main__":
    main()
