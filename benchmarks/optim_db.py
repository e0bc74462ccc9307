"""benchmarks.optim_db: every configuration of every optimizer that torch tests (``python -m benchmarks.optim_db``).

Each is stepped three times in eager and compiled, with the same gradients; parameters and state are compared. The first
attempt is with ``fullgraph=True``; where that is an error, with graph breaks.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

# a restored frame counts no graphs
os.environ["ARGAND_OPTIONS"] = os.environ.get("ARGAND_OPTIONS", "cache=0")

import torch
from torch.testing._internal import common_optimizers

from benchmarks.language.judge import Ours, Rival, differs
from benchmarks.language.program import eager
from benchmarks.sweep import Row, Sweep, one_line

ROOT = Path(__file__).resolve().parent.parent
STEPS = 3
INFOS = {info.optim_cls.__name__: info for info in common_optimizers.optim_db}


def configurations(name: str) -> list[tuple[str, dict[str, Any]]]:
    """The keyword arguments of each test of an optimizer, with its forms: foreach, fused, differentiable."""
    info, found = INFOS[name], []
    inputs = common_optimizers._get_optim_inputs_including_global_cliquey_kwargs(
        "cpu", torch.float32, info
    )
    for given in inputs:
        text = ", ".join(f"{key}={value}" for key, value in given.kwargs.items())
        found.append((text, given.kwargs))
    return found


def stepped(name: str, kwargs: dict[str, Any], compile_: Any) -> Any:
    """Parameters and state after a few steps."""
    info = INFOS[name]
    torch.manual_seed(0)
    leaves = [torch.randn(shape, requires_grad=True) for shape in ((5, 3), (3,), (2, 3, 2))]
    if name == "Muon":
        leaves = [torch.randn(4, 3, requires_grad=True), torch.randn(2, 5, requires_grad=True)]
    params = [leaf.clone() for leaf in leaves] if kwargs.get("differentiable") else leaves
    optimizer = info.optim_cls(params, **copy.deepcopy(kwargs))
    draw = torch.Generator().manual_seed(1)
    step = compile_(optimizer.step)
    for _ in range(STEPS):
        for param in params:
            grad = torch.randn(param.shape, generator=draw)
            sparse = info.only_supports_sparse_grads
            param.grad = grad.to_sparse() if sparse else grad
        if info.step_requires_closure:
            step(lambda: torch.tensor(1.0))
        else:
            step()
    state = (
        copy.deepcopy(optimizer.state_dict()["state"]) if not kwargs.get("differentiable") else {}
    )
    return [p.detach().clone() for p in params], state


def attempt(
    name: str, kwargs: dict[str, Any], expected: Any, engine: Ours | Rival, fullgraph: bool
) -> tuple[str, str]:
    """(outcome, cause) of one configuration."""
    with engine.counted(fullgraph) as (compile_, graphs), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            actual = stepped(name, kwargs, compile_)
        except Exception as error:
            return "error", one_line(error, 200)
    wrong = differs(actual, expected)
    if wrong:
        return "wrong", wrong
    number = "one graph" if fullgraph else f"{len(graphs)} graphs"
    return (number if graphs else "eager"), ""


def work(name: str, engine: Ours | Rival) -> Row:
    """All configurations of an optimizer."""
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    causes: dict[str, str] = {}
    for text, kwargs in configurations(name):
        try:
            expected = stepped(name, kwargs, eager)
        except Exception as error:  # eager refuses it
            counts["refused by eager"] += 1
            causes.setdefault("refused", one_line(error, 120))
            continue
        outcome, cause = attempt(name, kwargs, expected, engine, True)
        if outcome in ("error", "eager"):
            outcome, later = attempt(name, kwargs, expected, engine, False)
            cause = cause or later
        counts[outcome] += 1
        if cause:
            causes[text] = f"{outcome}: {cause}"
    bad = counts["error"] + counts["wrong"]
    return {
        "status": "bad" if bad else "ok",
        "counts": dict(counts),
        "causes": causes,
        "cause": str(dict(counts)),
    }


def main() -> int:
    """Run the sweep and print the counts; 1 when one is wrong or an error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optim_db", description=__doc__)
    parser.add_argument("--rival", action="store_true", help="torch.compile instead")
    parser.add_argument("--only", default="", help="optimizers with this in their name")
    parser.add_argument("--limit", type=float, default=900.0)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    engine: Ours | Rival = Rival("aot_eager") if given.rival else Ours()
    names = [name for name in INFOS if given.only in name]
    sweep = Sweep(ROOT / "results" / f"optim_db-{engine.name}.jsonl", given.limit)
    if given.fresh:
        sweep.forget(names)
    rows = sweep.run(names, lambda name: work(name, engine))
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.get("counts", {row["status"]: 1}))
        for text, cause in row.get("causes", {}).items():
            print(f"{row['task']}({text}): {cause[:160]}")
    print(f"{engine.name}: {sum(total.values())} configurations: {dict(total.most_common())}")
    return int(any(row["status"] != "ok" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
