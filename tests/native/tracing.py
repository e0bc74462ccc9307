"""Make aten graphs for tests, with torch's own tracer (tests may)."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from argand.native.compile import compile_graph
from argand.native.lower.table import KEPT
from argand.ops.decompositions import decompositions
from argand.support.options import Options

# As the backend has it: composite ops are taken apart before lowering.
DECOMPOSITIONS = {op: rule for op, rule in decompositions().items() if str(op) not in KEPT}


def aten_graph(function, *inputs):
    return make_fx(function, decomposition_table=DECOMPOSITIONS, tracing_mode="real")(*inputs)


def run(function, *inputs, options=None):
    """(eager result, compiled result), flat."""
    flatten = torch.utils._pytree.tree_leaves
    gm = aten_graph(lambda *args: tuple(flatten(function(*args))), *inputs)
    for node in gm.graph.nodes:
        if node.op == "placeholder" and "val" not in node.meta:
            raise AssertionError("no val")
    compiled = compile_graph(gm, list(inputs), options or Options())
    return flatten(function(*inputs)), list(compiled(list(inputs)))


def check(function, *inputs, rtol=None, atol=None, options=None):
    expected, got = run(function, *inputs, options=options)
    assert len(expected) == len(got)
    for e, g in zip(expected, got):
        if isinstance(e, torch.Tensor):
            torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True)
            assert g.dtype == e.dtype
            if e.numel() > 1:
                assert g.stride() == e.stride(), (g.stride(), e.stride())
        else:
            assert e == g
