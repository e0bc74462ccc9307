"""benchmarks.modules: sweep the compiler over torch's own modules with sample inputs (``python -m benchmarks.modules``).

For each module of ``module_db``, in a forked child: all its samples, in train and eval mode, with and without gradients
of its inputs, called twice. Compared with eager: results and all that is seen of them, inputs, gradients of inputs and
parameters, buffers. A sample that eager itself refuses is left out.
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree

import argand
from benchmarks.sweep import Row, Sweep
from tools.answers import Answer, differences, observe, tensors_in

ROOT = Path(__file__).resolve().parent.parent
STATES = {"equal": "equal", "differs": "wrong", "left out": "eager refuses them"}


@dataclass(frozen=True)
class Case:
    """One call of a module: how to make it and its arguments."""

    name: str
    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def cases(info: Any, dtype: torch.dtype) -> Iterator[Case]:
    """All samples of a module."""
    for training in (True, False):
        for grad in (True, False):
            torch.manual_seed(0)
            samples = info.module_inputs_func(
                info, "cpu", dtype, requires_grad=grad, training=training
            )
            for number, sample in enumerate(samples):
                if sample.forward_input is None:
                    continue
                torch.manual_seed(number)
                made = sample.constructor_input
                try:
                    module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
                except (RuntimeError, TypeError, ValueError):
                    continue
                name = f"{'train' if training else 'eval'} {'grad' if grad else 'plain'} {number}"
                yield Case(name, module, sample.forward_input.args, sample.forward_input.kwargs)


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    twin = value.detach().clone()
    return twin.requires_grad_() if value.requires_grad else twin


def run(module: torch.nn.Module, function: Any, case: Case) -> tuple[Answer, Answer, Answer]:
    """Result, gradients, and what is left in the module."""
    args, kwargs = _pytree.tree_map(_copied, (case.args, case.kwargs))
    torch.manual_seed(3)
    answer = observe(lambda *_: function(*args, **kwargs), args, kwargs)
    leaves = [t for t in tensors_in((args, kwargs, *module.parameters())) if t.requires_grad]
    gradients = observe(lambda: _gradients(answer.result, leaves))
    return answer, gradients, observe(lambda: list(module.buffers()))


def _gradients(result: Any, leaves: list[torch.Tensor]) -> list[Any]:
    ends = [t for t in tensors_in(result) if t.grad_fn is not None]
    if not ends or not leaves:
        return []
    total = sum(
        (t.abs() if t.is_complex() else t).double().sum() * (k + 1) for k, t in enumerate(ends)
    )
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [None if gradient is None else gradient.detach() for gradient in found]


def compare(case: Case, backend: str) -> str | None:
    """What differs from eager in two calls; "left out" if eager refuses the sample."""
    ours = copy.deepcopy(case.module)
    compiled = argand.compile(ours, backend=backend, options={"fallback_random": True})
    for call in range(2):
        wanted = run(case.module, case.module, case)
        if wanted[0].error is not None:
            return "left out"
        found = run(ours, compiled, case)
        told = differences(wanted[0], found[0])
        told += (f"gradients: {text}" for text in differences(wanted[1], found[1], strides=False))
        told += (f"buffers: {text}" for text in differences(wanted[2], found[2]))
        if told:
            return f"call {call}: " + "; ".join(told)
    return None


def sweep_one(name: str, backend: str, dtypes: tuple[str, ...]) -> Row:
    """All samples of one module."""
    info = next(info for info in module_db if info.formatted_name == name)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for dtype in dtypes:
        for case in cases(info, getattr(torch, dtype)):
            try:
                found = compare(case, backend)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            counts[
                "equal" if found is None else "left out" if found == "left out" else "differs"
            ] += 1
            if found not in (None, "left out"):
                failures.append(f"{dtype} {case.name}: {found}"[:300])
    status = "wrong" if counts["differs"] else "ok"
    return {
        "status": status,
        "counts": dict(counts),
        "failures": failures[:20],
        "cause": failures[0] if failures else "",
    }


def main() -> int:
    """Sweep and print the summary."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.modules", description=__doc__)
    parser.add_argument("--backend", default="argand")
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--modules", default="", help="substrings of names, comma-separated")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds per module")
    parser.add_argument("--fresh", action="store_true", help="forget the rows of earlier runs")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "modules.jsonl")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parts = [part for part in given.modules.split(",") if part]
    names = [
        info.formatted_name
        for info in module_db
        if not parts or any(part in info.formatted_name for part in parts)
    ]
    dtypes = tuple(given.dtypes.split(","))
    rows = Sweep(given.out, given.limit, fresh=given.fresh).run(
        names, lambda name: sweep_one(name, given.backend, dtypes)
    )
    totals: Counter[str] = Counter()
    for row in rows:
        totals.update(row.get("counts", {}))
    states = Counter(row["status"] for row in rows)
    print(
        f"modules: backend {given.backend}: {states['ok']} of {len(rows)} equal in all samples {dict(states)}"
    )
    for state, words in STATES.items():
        print(f"  {totals[state]:6}  {words}")
    return states["ok"] != len(rows)


if __name__ == "__main__":
    sys.exit(main())
