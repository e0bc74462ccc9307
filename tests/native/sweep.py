"""Sweep torch's op database through the code generator: ``python -m tests.native.sweep [dtype] [substr]``.

Prints what differs from eager, and which aten ops went to torch's kernels.
"""

import collections
import sys
import traceback
import warnings

import torch

from argand.native.compile import compile_graph
from argand.support import events
from argand.support.options import Options
from benchmarks.op_database import op_db
from tests.native.tracing import aten_graph

RANDOM = (
    "rand",
    "dropout",
    "bernoulli",
    "multinomial",
    "normal",
    "empty",
    "uniform",
    "geometric",
    "exponential",
    "cauchy",
    "log_normal",
    "rrelu",
    "svd_lowrank",
    "pca_lowrank",
    "poisson",
)
TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 3e-2}


def samples_of(op, dtype, limit):
    for number, sample in enumerate(op.sample_inputs("cpu", dtype)):
        if number >= limit:
            return
        yield sample


def tensors_of(value):
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def check_sample(op, sample):
    """None when equal, the reason otherwise; 'skip' where no aten graph can be made."""
    leaves, spec = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    inputs = [leaves[k].detach() for k in places]

    def function(*tensors):
        given = list(leaves)
        for k, t in zip(places, tensors):
            given[k] = t
        x, args, kwargs = torch.utils._pytree.tree_unflatten(given, spec)
        return tuple(tensors_of(op(x, *args, **kwargs)))

    try:
        expected = function(*[t.clone() for t in inputs])
        gm = aten_graph(function, *[t.clone() for t in inputs])
    except Exception:
        return "skip"
    if any("item" in str(n.target) or "_local_scalar" in str(n.target) for n in gm.graph.nodes):
        return "skip"
    try:
        got = compile_graph(gm, inputs, Options())([t.clone() for t in inputs])
    except Exception:
        return traceback.format_exc(limit=-3)
    for e, g in zip(expected, got):
        tolerance = TOLERANCE.get(e.dtype)
        try:
            torch.testing.assert_close(g, e, equal_nan=True, rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            return "differs: " + str(error).replace("\n", " ")[:200]
        if e.layout is torch.strided and e.numel() > 1 and g.stride() != e.stride():
            return f"strides {g.stride()} instead of {e.stride()}"
    return None


def main():
    warnings.simplefilter("ignore")
    dtype = getattr(torch, sys.argv[1]) if len(sys.argv) > 1 else torch.float32
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    limit = int(sys.argv[3]) if len(sys.argv) > 3 else 6
    totals = collections.Counter()
    with events.collect() as collector:
        for op in op_db:
            if dtype not in op.dtypes or wanted not in op.name:
                continue
            if any(word in op.name for word in RANDOM):
                continue
            for sample in samples_of(op, dtype, limit):
                if sample.kwargs.get("dropout_p"):
                    continue  # eager itself is random
                reason = check_sample(op, sample)
                kind = "ok" if reason is None else "skip" if reason == "skip" else "bad"
                totals[kind] += 1
                if kind == "bad":
                    print(f"--- {op.name} {op.variant_test_name}: {reason.strip()}", flush=True)
                    break
    externs = collections.Counter(
        e.detail
        for e in collector.events
        if isinstance(e, events.Count) and e.counter == "native.extern"
    )
    lowered = collector.total("native.lowered")
    print(f"lowered: {lowered} of {lowered + externs.total()} aten calls")
    print("extern:", ", ".join(f"{k[5:]} {v}" for k, v in externs.most_common(400)))
    print(dict(totals))


if __name__ == "__main__":
    main()
