"""benchmarks.hop_db: every higher-order operator that torch tests (``python -m benchmarks.hop_db``).

Each sample runs in eager and compiled with ``fullgraph=True``, results and gradients are compared; where that is an error,
once more with graph breaks. Operators for GPUs alone are listed as such.
"""

from __future__ import annotations

import copy
import os
import sys
import warnings
from collections import Counter
from typing import Any

os.environ["ARGAND_OPTIONS"] = os.environ.get("ARGAND_OPTIONS", "cache=0")

import torch
from torch.testing._internal.hop_db import hop_db
from torch.utils import _pytree as pytree

import argand
from benchmarks.sweep import one_line


def _run(function: Any, sample: Any, grad: bool) -> list[Any]:
    """Results, and the gradients of what the sample has."""
    given = copy.deepcopy((sample.input, sample.args, sample.kwargs))
    tensors = [
        x for x in pytree.tree_leaves(given) if isinstance(x, torch.Tensor) and x.requires_grad
    ]
    value, args, kwargs = given
    results = [
        x
        for x in pytree.tree_leaves(function(value, *args, **kwargs))
        if isinstance(x, torch.Tensor)
    ]
    tracked = [x for x in results if x.requires_grad]
    if grad and tracked:
        torch.stack([x.double().square().sum() for x in tracked]).sum().backward()
    return [*(x.detach() for x in results), *(x.grad for x in tensors)]


def outcome(info: Any, sample: Any, grad: bool) -> str:
    """What became of one sample."""
    try:
        expected = _run(info.op, sample, grad)
    except Exception as error:
        return f"refused by eager: {one_line(error, 80)}"
    text = ""
    for fullgraph in (True, False):
        argand.reset()
        try:
            found = _run(argand.compile(info.op, fullgraph=fullgraph), sample, grad)
        except Exception as error:
            text = text or f"error: {one_line(error, 100)}"
            continue
        try:
            for one, two in zip(found, expected, strict=True):
                # fused operators on halves round once, eager's after each
                loose = (
                    {"rtol": 1e-2, "atol": 1e-2}
                    if one is not None and one.dtype is torch.float16
                    else {}
                )
                torch.testing.assert_close(one, two, **loose)
        except AssertionError as error:
            return f"wrong: {one_line(error, 100)}"
        return "one graph" if fullgraph else f"breaks ({text})"
    return text


def main() -> int:
    """Print a row for each operator; 1 if any is wrong or an error."""
    counts: Counter[str] = Counter()
    for info in hop_db:
        dtypes = [d for d in (torch.float32, torch.float64, torch.float16) if d in info.dtypes]
        name = f"{info.name} {info.variant_test_name}"
        if not dtypes:
            print(f"{name:45s} not for CPUs")
            continue
        for dtype in dtypes:
            for grad in (False, True) if info.supports_autograd else (False,):
                for sample in info.sample_inputs("cpu", dtype, requires_grad=grad):
                    found = outcome(info, sample, grad)
                    counts[found.partition(":")[0].partition(" (")[0]] += 1
                    print(
                        f"{name:45s} {str(dtype)[6:]:8s} {'grad' if grad else '':5s} {found}",
                        flush=True,
                    )
    print(dict(counts))
    return int(any(key in counts for key in ("wrong", "error")))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
