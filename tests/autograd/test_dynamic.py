"""Programs with open sizes through autograd and the native compiler, against eager over many sizes."""

import pytest
import torch
import torch.nn.functional as F

import argand as argand_api
from argand.autograd.aot import compile_with_autograd
from argand.backends.argand_backend import argand, compile_graph
from argand.ops.fakes import fake_of
from argand.protocol import CompiledGraph, GraphContext, with_context
from argand.sizes.refusals import FixSizes, Stop
from argand.sizes.table import SizeTable
from argand.sizes.view import GraphSizes
from argand.support.options import make_options


def open_graph(function, names, specs, reals, requires=()):
    """A captured-like graph: ``function(*sizes, *tensors)``, specs of tensors like "a,7" or a tensor."""
    table = SizeTable([16, 32, 64])
    symbols = {name: table.symbol(name, reals[name]) for name in names}
    gm = torch.fx.symbolic_trace(function)
    sizes = GraphSizes(table)
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, value in zip(nodes, symbols.values()):
        node.meta["example_value"] = value
    tensors = []
    for k, (node, spec) in enumerate(zip(nodes[len(names) :], specs, strict=True)):
        if isinstance(spec, torch.Tensor):
            real, fake = spec, fake_of(spec)
        else:
            primes = {name: int(value) for name, value in symbols.items()}
            fake = make(spec, primes, k)
            real = make(spec, reals, k)
        real.requires_grad_(k in requires)
        node.meta["example_value"] = fake
        tensors.append(real)
    return gm, [*reals.values(), *tensors], GraphContext(sizes)


def make(spec, values, seed=0):
    sizes, _, kind = spec.partition(":")
    shape = [values[s] if s in values else int(s) for s in sizes.split(",") if s]
    generator = torch.Generator().manual_seed(seed)
    if kind:
        return torch.randint(0, int(kind), shape, generator=generator)
    return torch.randn(shape, generator=generator) * 0.4


def check(function, names, specs, sizes, requires=(), backend=argand, tolerance=1e-4):
    names = names.split()
    gm, example, context = open_graph(function, names, specs, dict(zip(names, sizes[0])), requires)
    compiled = backend(with_context(gm, context), example)
    for given in sizes:
        values = dict(zip(names, given, strict=True))
        results = []
        for run in (function, compiled):
            tensors = [
                spec.detach().clone() if isinstance(spec, torch.Tensor) else make(spec, values, k)
                for k, spec in enumerate(specs)
            ]
            for k in requires:
                tensors[k].requires_grad_()
            out = run(*given, *tensors)
            out = list(out) if isinstance(out, tuple | list) else [out]
            if requires:
                sum(
                    (o.tanh().sum() for o in out if getattr(o, "requires_grad", False)),
                    torch.zeros(()),
                ).backward()
            results.append([*out, *(tensors[k].grad for k in requires)])
        for e, g in zip(*results, strict=True):
            if isinstance(e, torch.Tensor):
                assert e.stride() == g.stride() or e.numel() < 2
            torch.testing.assert_close(g, e, rtol=tolerance, atol=tolerance)


BATCHES = [(5,), (2,), (3,), (8,), (9,), (31,), (64,), (130,)]
BOTH = [(3, 5), (2, 2), (2, 3), (5, 2), (4, 16), (7, 33), (8, 64), (2, 130)]


def mlp(n, x, w, b, v):
    return (F.relu(F.linear(x, w, b)) @ v,)


def test_mlp_inference_and_training():
    specs = ["n,16", "32,16", "32", "32,5"]
    check(mlp, "n", specs, BATCHES)
    check(mlp, "n", specs, BATCHES, requires=(1, 2, 3))
    check(mlp, "n", specs, BATCHES, requires=(0, 1))


def attention(n, t, x, qkv, out):
    q, k, v = F.linear(x, qkv).view(n, t, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return (F.linear(y.transpose(1, 2).reshape(n, t, 32), out),)


def by_hand(n, t, x, qkv, out):
    q, k, v = F.linear(x, qkv).split(32, dim=2)
    q, k, v = (p.view(n, t, 4, 8).transpose(1, 2) for p in (q, k, v))
    scores = (q @ k.transpose(-2, -1)) / 8**0.5
    mask = torch.tril(x.new_ones((t, t))).view(1, 1, t, t)
    weights = F.softmax(scores.masked_fill(mask == 0, float("-inf")), dim=-1)
    return (F.linear((weights @ v).transpose(1, 2).contiguous().view(n, t, 32), out),)


@pytest.mark.parametrize("function", [attention, by_hand])
@pytest.mark.parametrize("requires", [(), (0, 1, 2)])
def test_attention(function, requires):
    check(function, "n t", ["n,t,32", "96,32", "32,32"], BOTH, requires)


def embed(n, t, tokens, table, place, w, b):
    x = F.embedding(tokens, table) + F.embedding(torch.arange(t), place)
    x = F.layer_norm(x, (32,), w, b)
    return (F.gelu(x).mean(1), x[:, t - 1], x.sum((0, 1)), x.flatten(0, 1))


@pytest.mark.parametrize("requires", [(), (1, 2, 3, 4)])
def test_embedding_and_norm(requires):
    check(embed, "n t", ["n,t:50", "50,32", "200,32", "32", "32"], BOTH, requires)


def cached(n, t, past, keys, values, k, v, q):
    keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
    scores = q @ keys.transpose(2, 3)
    mask = q.new_zeros((t, t + past)).expand(n, 1, t, t + past)
    return (torch.softmax(scores + mask, -1) @ values, keys, values)


def test_cache_of_keys():
    specs = ["n,4,past,8", "n,4,past,8", *(["n,4,t,8"] * 3)]
    check(cached, "n t past", specs, [(2, 3, 5), (3, 2, 9), (5, 4, 16), (2, 7, 33)])


def loss(n, x, w, target):
    return (F.cross_entropy(x @ w, target), F.mse_loss(x, x * 2))


def test_losses():
    check(loss, "n", ["n,16", "16,10", "n:10"], BATCHES, (0, 1))


def convolutions(n, h, x, first, scale, shift, mean, variance, second, out):
    x = F.conv2d(x, first, stride=2, padding=1)
    x = F.relu(F.batch_norm(x, mean, variance, scale, shift, training=x.requires_grad))
    x = F.max_pool2d(x, 3, 2, 1) + F.avg_pool2d(F.conv2d(x, second, padding=1), 3, 2, 1)
    x = F.interpolate(x, scale_factor=2.0, mode="nearest")
    return (F.adaptive_avg_pool2d(x, 1).flatten(1) @ out,)


IMAGES = [(2, 16), (3, 17), (2, 20), (5, 33), (4, 64)]


@pytest.mark.parametrize("requires", [(), (0, 1, 2, 3, 6, 7)])
def test_convolutions(requires):
    specs = ["n,3,h,h", "16,3,3,3", "16", "16", "16", torch.ones(16), "16,16,3,3", "16,5"]
    check(convolutions, "n h", specs, IMAGES, requires)


def spread(n, x):
    return (x.var(0), x.std(1, correction=0), F.normalize(x, dim=0), x.mean())


def test_variance_and_its_gradient():
    check(spread, "n", ["n,9"], BATCHES, (0,))


def written(n, x, w):
    x.mul_(2).add_(n)
    return (x.view(n * 4), x[1:], (x @ w).t(), n * 3 + 1)


def test_writes_views_and_numbers():
    check(written, "n", ["n,4", "4,6"], BATCHES)
    check(written, "n", ["n,4", "4,6"], BATCHES, (1,))


def test_some_tangents_and_second_order():
    def two(n, x, w):
        return (torch.tanh(x @ w).sum(0), (x * x).view(n * 16))

    gm, example, context = open_graph(two, ["n"], ["n,16", "16,4"], {"n": 5}, (0, 1))
    compiled = argand(with_context(gm, context), example)
    for n in (5, 2, 3, 17):
        grads = []
        for run in (two, compiled):
            x, w = (make(s, {"n": n}, k).requires_grad_() for k, s in enumerate(["n,16", "16,4"]))
            first, second = run(n, x, w)
            grads.append([*torch.autograd.grad(second.sin().sum(), [x], retain_graph=True)])
            (g,) = torch.autograd.grad(first.sin().sum(), [w], create_graph=True)
            grads[-1] += [g, *torch.autograd.grad(g.square().sum(), [x, w])]
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-4)


def test_sizes_that_shrink_to_the_same_numbers_are_told_apart():
    """After five strides two open image sizes had samples of 11 each, in both traces."""
    weight = torch.randn(4, 4, 3, 3)

    def shrink(x):
        for _ in range(5):
            x = F.conv2d(x, weight, stride=2, padding=1) * 0.5
        return x, x.flatten(1).sum(1)

    compiled = argand_api.compile(shrink, dynamic=True)
    for shape in ((2, 4, 40, 70), (3, 4, 64, 33), (2, 4, 96, 50)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), shrink(x), rtol=1e-4, atol=1e-4)


def test_facts_come_back_and_the_graphs_sizes_stay_as_they_were():
    gm, example, context = open_graph(lambda n, x: x[:5] * n, ["a"], ["a,7"], {"a": 8})
    made = compile_graph(gm, example, context, make_options())
    assert isinstance(made, CompiledGraph) and made.facts
    assert all(fact.holds(dict.fromkeys(fact.symbols, 9)) for fact in made.facts)
    assert not all(fact.holds(dict.fromkeys(fact.symbols, 3)) for fact in made.facts)
    assert context.sizes.relied == ()
    with pytest.raises(Stop, match="a call needs"):  # a callable could not tell of them
        compile_with_autograd(gm, example, context, fw_compiler=lambda gm, _: gm.forward)


def test_a_refusal_comes_back_in_place_of_code():
    gm, example, context = open_graph(
        lambda n, x: torch.full_like(x, x.shape[0] ** 0.5), ["a"], ["a,7"], {"a": 8}
    )
    refused = compile_graph(gm, example, context, make_options())
    assert isinstance(refused, FixSizes) and refused.symbols, refused


@pytest.mark.parametrize("shift", [1, -1, 2])
def test_sizes_of_values_that_only_arguments_tell(shift):
    """A roll cuts its input at ``size - shift``: small samples of that size are no constants."""
    f = argand_api.compile(lambda x: x.roll(shift, 0), dynamic=True)
    for shape in ((6, 8), (9, 6), (5, 7), (12, 3), (2, 2), (40, 4)):
        x = torch.randn(shape)
        assert torch.equal(f(x), x.roll(shift, 0)), shape
