"""One compile for every size: graphs with symbolic sizes against eager, over many sizes."""

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import argand
from argand.native.compile import compile_graph
from argand.protocol import GraphContext
from argand.sizes.table import SizeTable
from argand.sizes.view import GraphSizes
from argand.support import events
from argand.support.options import Options

DTYPES = {"i": torch.int64}


def table_of(names, avoid=()):
    table = SizeTable(avoid)
    return table, {name: table.symbol(name, 5) for name in names}


def sample(spec, values, seed=0):
    """A tensor for a spec like "a,7,b" or "a,4:i" (indices below 4)."""
    sizes, _, kind = spec.partition(":")
    shape = [values[s] if s in values else int(s) for s in sizes.split(",") if s]
    generator = torch.Generator().manual_seed(seed)
    if kind:
        return torch.randint(0, int(kind), shape, generator=generator)
    return torch.randn(shape, generator=generator)


def compile_open(function, specs, table, symbols):
    primes = {name: int(value) for name, value in symbols.items()}
    inputs = [sample(spec, primes) for spec in specs]
    gm = make_fx(function, tracing_mode="real")(*inputs)
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.args = table.expressed(node.args)
            node.kwargs = {k: table.expressed(v) for k, v in node.kwargs.items()}
    return compile_graph(gm, inputs, Options(verify="forms"), GraphContext(GraphSizes(table)))


def flat(value):
    return torch.utils._pytree.tree_leaves(value)


def check_open(function, *specs, sizes, learned=(), rtol=None, atol=None):
    names = sorted({s for spec in specs for s in spec.split(":")[0].split(",") if s.isalpha()})
    table, symbols = table_of(names)
    for build in learned:
        table.learn(build(symbols))
    compiled = compile_open(lambda *args: tuple(flat(function(*args))), specs, table, symbols)
    for given in sizes:
        values = dict(zip(names, given, strict=True))
        inputs = [sample(spec, values, seed=k) for k, spec in enumerate(specs)]
        expected = flat(function(*inputs))
        got = compiled(list(inputs))
        for e, g in zip(expected, got, strict=True):
            torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True)
            assert g.dtype == e.dtype
            if e.numel() > 1:
                assert [s for n, s in zip(e.shape, e.stride()) if n > 1] == [
                    s for n, s in zip(g.shape, g.stride()) if n > 1
                ]


ONE = [(n,) for n in (2, 3, 5, 7, 8, 9, 16, 31, 33, 64, 127, 130, 1000)]
TWO = [(2, 2), (2, 3), (3, 2), (5, 9), (8, 8), (9, 31), (17, 16), (4, 128), (33, 65)]


def test_pointwise():
    check_open(lambda x, y: torch.tanh(x) * y + 1, "a,7", "7", sizes=ONE)
    check_open(lambda x: x.exp() - x, "a", sizes=[*ONE, (5000,)])


def test_mlp():
    def mlp(x, w, b, v):
        return F.relu(F.linear(x, w, b)) @ v

    check_open(mlp, "a,16", "32,16", "32", "32,5", sizes=ONE, rtol=1e-4, atol=1e-4)


def test_rows_of_unknown_length_wait_in_the_result():
    def rows(x):
        y = torch.softmax(x, 1)
        return y, torch.log_softmax(x * 2, 1), torch.exp(x - x.amax(1, True)).sum(1)

    check_open(rows, "a,b", sizes=TWO, rtol=1e-4, atol=1e-5)


def test_transposes_in_strips():
    check_open(lambda x: x.t().contiguous() + 1, "a,b", sizes=TWO)
    check_open(lambda x: x.transpose(1, 2).contiguous().flatten(1), "3,a,b", sizes=TWO)


def test_ends_of_rows():
    def rows(x):
        return x.sum(1), x.argmax(1), torch.exp(x) * 2

    lengths = (2, 3, 4, 7, 15, 16, 19, 37, 60, 64, 69, 128, 250)
    check_open(rows, "a,b", sizes=[(5, n) for n in lengths], rtol=1e-5, atol=1e-5)
    for n in (7, 37, 60, 120):
        torch.testing.assert_close(
            argand.compile(rows)(x := torch.randn(5, n)), rows(x), rtol=1e-5, atol=1e-5
        )


def test_rows_split_over_threads():
    def program(x):
        return x.transpose(1, 2).contiguous() * 2

    x, before = torch.randn(5, 301, 203), torch.get_num_threads()
    run = argand.compile(program, dynamic=True)
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(run(x), program(x))
    finally:
        torch.set_num_threads(before)


def test_same_text_at_other_samples():
    """Nothing of a sample may reach the machine code."""

    def program(x, y):
        z = torch.softmax(x @ y.t(), -1)
        return (
            z.mean(),
            torch.cat([z, z], 1).flatten(),
            x[1:] * x.shape[0],
            (z.t() @ x).contiguous(),
        )

    texts = []
    for avoid in ((), (101, 113, 137)):
        table, symbols = table_of(["a", "b"], avoid)
        table.learn(symbols["a"] - 1)
        with events.collect() as seen:
            compile_open(lambda *args: tuple(flat(program(*args))), ["a,8", "b,8"], table, symbols)
        texts.append(seen.texts("output_code"))
    assert texts[0] and texts[0] == texts[1]


def test_nothing_in_it():
    def programs(x):
        return x + 1, x.repeat(2, 2, 2) * 2, x[:, None].expand(-1, 3, -1, -1).flatten(0, 1) * 2

    run = argand.compile(programs, dynamic=True, options={"strict": True})
    with events.collect() as seen:
        for x in torch.randn(4, 0, 3), torch.randn(6, 0, 5):
            for made, wanted in zip(run(x), programs(x), strict=True):
                assert made.shape == wanted.shape and made.stride() == wanted.stride()
    assert seen.total("compiles") == 1


def test_a_result_lends_its_memory_to_one_row_at_a_time():
    def weighted(x):
        share = x.exp() / x.exp().sum(-1, keepdim=True)
        product = share * share * 0.5
        return product - share * product.sum(-1, keepdim=True)

    check_open(weighted, "a,b", sizes=[(3, 4), (5, 17), (2, 300)])
