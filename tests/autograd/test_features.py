"""What eager's autograd does, one behaviour per test, compiled with the graph run as it is."""

import copy
import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from programs import aot_eager, facts, graph_of

import argand
from argand.autograd.aot import compile_with_autograd
from argand.autograd.partition import default_partition, min_cut_partition
from argand.support import events
from argand.support.options import Options

pytestmark = pytest.mark.usefixtures("in_float64")
PARTITIONS = pytest.mark.parametrize("partition", [default_partition, min_cut_partition])


def clones(inputs):
    """Copies of the inputs: leaves stay leaves, the others get a history of their own."""
    leaves, values = [], []
    for x in inputs:
        if not isinstance(x, torch.Tensor):
            values.append(x)
            continue
        leaf = x.detach().clone()
        if x.requires_grad:
            leaf.requires_grad_()
            leaves.append(leaf)
        values.append(leaf if x.is_leaf else leaf * 1.0)
    return leaves, values


def compare(function, *inputs, backward=True, seed=3, check_facts=True, **keywords):
    """Run eager and compiled from the same state; compare outputs, inputs, facts, gradients."""
    results = []
    for compiled in (False, True):
        leaves, values = clones(inputs)
        run = aot_eager(function, values, **keywords) if compiled else function
        torch.manual_seed(seed)
        outputs = run(*values)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        tensors = [o for o in outputs if isinstance(o, torch.Tensor)]
        tracked = [o for o in tensors if o.requires_grad and o.grad_fn is not None]
        grads = []
        if backward and tracked:
            loss = sum(
                (o * torch.linspace(-1, 2, max(o.numel(), 1)).view(o.shape)).sum() for o in tracked
            )
            loss.backward()
            grads = [leaf.grad for leaf in leaves]
        given = [v for v in values if isinstance(v, torch.Tensor)]
        results.append((facts(given, tensors), [*given, *tensors], grads, outputs))
    (facts1, values1, grads1, _), (facts2, values2, grads2, outputs2) = results
    if check_facts:
        assert facts2 == facts1
    for a, b in zip(values2, values1, strict=True):
        torch.testing.assert_close(a, b)
    assert [g is None for g in grads2] == [g is None for g in grads1]
    for a, b in zip(grads2, grads1, strict=True):
        if b is not None:
            torch.testing.assert_close(a, b)
    return outputs2


def leaf(*shape):
    return torch.randn(*shape).requires_grad_()


def as_function(model, call):
    """call(model, ...) as a function of the model's tensors and the rest."""
    slots, tensors = [], []
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for name, value in table.items():
                if value is not None:
                    slots.append((table, name))
                    tensors.append(value)

    def function(*values):
        old = [table[name] for table, name in slots]
        for (table, name), value in zip(slots, values, strict=False):
            table[name] = value
        try:
            return call(model, *values[len(slots) :])
        finally:
            for (table, name), value in zip(slots, old, strict=True):
                table[name] = value

    return function, tensors


# -- functionalization -------------------------------------------------------------------------


def test_write_through_view_of_view():
    def f(x):
        y = x * 2
        y.view(-1)[2:6].view(2, 2).mul_(3).select(0, 1).add_(1)
        return y.t(), y

    compare(f, leaf(3, 4))


def test_inputs_written_in_order():
    def f(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)
        x.add_(y).mul_(2)
        return x + 1

    compare(f, torch.randn(3), torch.randn(3))


def test_non_leaf_input_written_with_gradient():
    def f(x, w):
        x.mul_(w).sin_()
        return x[0], x * 2

    compare(f, leaf(3, 4) * 1.0, leaf(4))


def test_out_argument():
    def f(x, y):
        out = torch.empty_like(x)
        torch.add(x, y, out=out)
        torch.mul(out, 2, out=y[:])
        torch.mm(out, y.t(), out=x[:, :3])
        values, indices = torch.empty(3), torch.empty(3, dtype=torch.int64)
        torch.max(out, 1, out=(values, indices))
        return out, values, indices

    compare(f, torch.randn(3, 4), torch.randn(3, 4))


def test_outputs_alias_inputs_and_each_other():
    def f(x, w):
        y = x * w
        return x, x.t(), x.detach(), y, y.view(-1), y[1:], y.detach(), y, x.view(-1)

    compare(f, leaf(3, 4), leaf(4))


def test_output_is_only_a_view_of_an_intermediate():
    outputs = compare(lambda x: (x * 2).t(), leaf(3, 4))
    assert outputs[0]._base is not None


def test_writes_after_the_call_follow_aliases():
    def f(x):
        y = x + 1
        return y, y[0], x.view(-1)

    x = torch.zeros(2, 2)
    y, first, flat = aot_eager(f, [x])(x)
    first.add_(5)
    flat.add_(7)
    assert y[0, 0] == 6 and x[0, 0] == 7
    assert y._version == first._version == 1 and x._version == flat._version == 1


def test_equal_expressions_are_different_tensors():
    compare(lambda x: (x + 1, x + 1, x.clone(), x.clone()), leaf(3))
    compare(lambda x: (x + 1, x + 1, x.clone(), x.clone()), torch.randn(3))


def test_same_tensor_given_twice():
    def f(x, y):
        x.add_(1)
        return y * 2

    x = torch.randn(3)
    run = aot_eager(f, [x, x])
    expected = (x + 1) * 2
    torch.testing.assert_close(run(x, x), expected)
    w = leaf(3)
    (grad,) = torch.autograd.grad(aot_eager(lambda a, b: a * b, [w, w])(w, w).sum(), w)
    torch.testing.assert_close(grad, 2 * w)


def test_overlapping_inputs_fall_back_when_written():
    def f(x, y):
        x.add_(1)
        return y * 2

    base = torch.zeros(4)
    with events.collect() as heard:
        run = aot_eager(f, [base[:3], base[1:]], strict=False)
    assert heard.total("autograd.fallback") == 1
    torch.testing.assert_close(run(base[:3], base[1:]), torch.tensor([2.0, 2.0, 0.0]))
    g = aot_eager(lambda x, y: x + y, [base[:3], base[1:]])
    torch.testing.assert_close(g(base[:3], base[1:]), base[:3] + base[1:])


def test_geometry_changed_in_place():
    def f(x):
        y = x * 2
        y.t_()
        y.unsqueeze_(0)
        y.add_(1)
        return y, y.squeeze(0) * 2

    compare(f, leaf(3, 4))


@pytest.mark.parametrize("kept", [True, False])
def test_inference_keeps_mutations_in_graph(kept):
    targets = []

    def compiler(gm, examples):
        targets.extend(n.target for n in gm.graph.nodes if n.op == "call_function")
        return gm

    def f(x):
        x.add_(1)
        x.mul_(2)
        return x.sum()

    x = torch.zeros(3)
    backend = argand.aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=kept)
    run = argand.compile(f, backend=backend)
    assert run(x.clone()) == 6
    assert (torch.ops.aten.copy_.default in targets) == kept
    assert run(x) == 6 and x[0] == 2 and x._version == 2


@pytest.mark.parametrize("train", [True, False])
def test_batch_norm_statistics(train):
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True)).train(train)
    function, tensors = as_function(model, lambda m, x: m(x))
    compare(function, *tensors, leaf(4, 2, 5, 5))
    assert model[1].num_batches_tracked == 0


def test_foreach_and_fused_optimisers():
    def f(p, g, m, v, step):
        with torch.no_grad():
            torch._foreach_mul_([p, m], 0.9)
            torch._foreach_add_([m], [g], alpha=0.1)
            torch._foreach_addcdiv_([p], [m], [v], value=-0.1)
            torch._fused_adam_(
                [p],
                [g],
                [m],
                [v],
                [],
                [step],
                lr=0.1,
                beta1=0.9,
                beta2=0.99,
                weight_decay=0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
        return p.sum()

    given = [
        torch.randn(4),
        torch.randn(4),
        torch.rand(4),
        torch.rand(4),
        torch.ones((), dtype=torch.float32),
    ]
    compare(f, *given)


def test_custom_op_that_writes():
    def scale(x, by):
        x.mul_(by)

    with torch.library._scoped_library("argandtest", "DEF") as library:
        library.define("scale_(Tensor(a!) x, float by) -> ()")
        library.impl("scale_", scale, "CompositeExplicitAutograd")
        op = torch.ops.argandtest.scale_.default

        def f(x):
            y = x.clone()
            op(y[0], 3.0)
            op(x, 2.0)
            return y

        compare(f, torch.randn(2))


# -- autograd inside the graph ------------------------------------------------------------------


def test_no_grad_region_and_detach():
    def f(x, w):
        with torch.no_grad():
            scale = x.norm()
        return x / scale * w, (x * w).detach(), (x.detach() * w)

    compare(f, leaf(4), leaf(4))


def test_requires_grad_on_an_intermediate():
    def f(x):
        h = (x * 2).detach().requires_grad_()
        y = (h**3).sum()
        (g,) = torch.autograd.grad(y, h)
        return g * x

    compare(f, leaf(4))


def test_hook_on_an_intermediate():
    def f(x, w):
        h = x * w
        h.register_hook(lambda g: g * 10)
        return h.sin()

    compare(f, leaf(4), leaf(4))


def test_hooks_on_inputs_and_outputs():
    x, seen = leaf(3), []
    x.register_hook(lambda g: seen.append(("x", g.clone())))
    y = aot_eager(lambda x: x * 3, [x])(x)
    y.register_hook(lambda g: seen.append(("y", g.clone())))
    y.retain_grad()
    y.sum().backward()
    assert [name for name, _ in seen] == ["y", "x"]
    torch.testing.assert_close(y.grad, torch.ones(3))
    torch.testing.assert_close(x.grad, torch.full((3,), 3.0))


def test_autograd_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x**3 * k

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 3 * x * x * ctx.k + 0.5, None

    compare(lambda x: Cube.apply(x, 2.0).sin(), leaf(4))


@PARTITIONS
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(partition, reentrant):
    def block(x, w):
        return F.dropout(torch.tanh(x @ w), 0.3, training=True).sin()

    def f(x, w1, w2):
        x = checkpoint(block, x, w1, use_reentrant=reentrant)
        return checkpoint(block, x, w2, use_reentrant=reentrant)

    compare(f, leaf(3, 4), leaf(4, 4), leaf(4, 4), partition_fn=partition)


def test_checkpoint_recomputes():
    graphs = {}

    def compiler(gm, examples):
        return graphs.setdefault(len(graphs), gm)

    def f(x, w):
        return checkpoint(lambda x: torch.tanh(x @ w).exp(), x, use_reentrant=False)

    x, w = leaf(3, 4), leaf(4, 4)
    run = compile_with_autograd(
        graph_of(f, 2),
        [x, w],
        fw_compiler=compiler,
        partition_fn=min_cut_partition,
        options=Options(strict=True),
    )
    run(x, w).sum().backward()
    names = [n.target._opname for n in graphs[1].graph.nodes if n.op == "call_function"]
    assert names.count("tanh") == 1 and names.count("exp") == 1
    saved = graphs[0].graph.output_node().args[0][1:]
    assert all(node.op == "placeholder" for node in saved)


@PARTITIONS
def test_regions_marked_by_capture_are_recomputed(partition):
    """Capture inlines checkpoints and marks their nodes."""

    def block(x, w):
        return F.dropout(torch.tanh(x @ w).exp() @ w, 0.5)

    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    h = graph.call_function(block, (x, w))
    h.meta["checkpoint"] = 0
    k = graph.call_function(block, (h, w))
    k.meta["checkpoint"] = 1
    graph.output((graph.call_function(torch.sin, (k,)),))
    module = torch.fx.GraphModule({}, graph)
    inputs, graphs = [leaf(3, 4), leaf(4, 4)], []

    def compiler(gm, examples):
        graphs.append(gm)
        return gm

    run = compile_with_autograd(
        module, inputs, fw_compiler=compiler, partition_fn=partition, options=Options(strict=True)
    )
    results = []
    for function in (lambda *v: (block(block(*v), v[1]).sin(),), run):
        torch.manual_seed(5)
        results.append(torch.autograd.grad(function(*inputs)[0].sum(), inputs))
    torch.testing.assert_close(results[1], results[0])
    names = [n.target._opname for n in graphs[1].graph.nodes if n.op == "call_function"]
    assert names.count("tanh") == 2 and names.count("exp") == 2 and "bernoulli" not in names
    saved = {
        n.target._opname for n in graphs[0].graph.output_node().args[0][1:] if n.op != "placeholder"
    }
    assert not saved & {"tanh", "exp", "mm"}


@PARTITIONS
def test_autocast_inside_and_around(partition):
    torch.set_default_dtype(torch.float32)

    def inside(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w).relu().sum(-1), x @ w

    x, w = leaf(3, 4), leaf(4, 5)
    compare(inside, x, w, partition_fn=partition)

    def plain(x, w):
        return torch.softmax(x @ w, -1).exp() @ w.t()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = plain(x, w)
        actual = aot_eager(plain, [x, w], partition_fn=partition)(x, w)
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected)
    for a, b in zip(
        torch.autograd.grad(actual.sum(), [x, w]), torch.autograd.grad(expected.sum(), [x, w])
    ):
        torch.testing.assert_close(a, b)


@PARTITIONS
def test_random_draws_equal_eager_and_between_runs(partition):
    def f(x):
        y = F.dropout(x, 0.5) + torch.rand_like(x)
        torch.randn(3)  # eager draws it, so do we
        return F.dropout(y.sin(), 0.2), torch.randn(2), x.bernoulli()

    compare(f, torch.rand(5).requires_grad_(), partition_fn=partition)
    x = torch.rand(50).requires_grad_()
    run = aot_eager(f, [x], partition_fn=partition)
    torch.manual_seed(1)
    first = run(x)
    torch.manual_seed(1)
    torch.testing.assert_close(run(x), first)
    assert not torch.equal(run(x)[0], first[0])


# -- run-time glue -------------------------------------------------------------------------------


def test_gradients_of_unused_outputs_are_none():
    def f(x, w):
        return x.sin(), w.cos()

    x, w = leaf(3), leaf(3)
    a, b = aot_eager(f, [x, w])(x, w)
    gx, gw = torch.autograd.grad(a.sum(), [x, w], allow_unused=True)
    assert gw is None
    torch.testing.assert_close(gx, x.cos())


@PARTITIONS
def test_unused_outputs_cost_nothing(partition):
    graphs = []

    def compiler(gm, examples):
        graphs.append([n.target._opname for n in gm.graph.nodes if n.op == "call_function"])
        return gm

    def f(x, w):
        h = torch.tanh(x @ w)
        return h.sin(), (h @ w).exp(), w.cos()

    inputs = [leaf(3, 3), leaf(3, 3)]
    run = compile_with_autograd(
        graph_of(f, 2),
        inputs,
        fw_compiler=compiler,
        partition_fn=partition,
        options=Options(strict=True),
    )
    for used in ([0], [1], [0, 2], [0, 1, 2], [2]):
        results = []
        for function in (f, run):
            outputs = function(*inputs)
            chosen = [outputs[k].sum() for k in used]
            results.append(torch.autograd.grad(chosen, inputs, allow_unused=True))
        expected, actual = results
        assert [a is None for a in actual] == [b is None for b in expected]
        for a, b in zip(actual, expected, strict=True):
            if b is not None:
                torch.testing.assert_close(a, b)
    assert graphs[1].count("mm") < graphs[4].count("mm")


def test_backward_is_compiled_at_first_use():
    compiled = []

    def compiler(gm, examples):
        compiled.append(gm)
        return gm

    x = leaf(3)
    run = compile_with_autograd(graph_of(torch.sin, 1), [x], fw_compiler=compiler)
    y = run(x).sum()
    assert len(compiled) == 1
    y.backward(retain_graph=True)
    assert len(compiled) == 2
    y.backward()
    run(x).sum().backward()
    assert len(compiled) == 2
    torch.testing.assert_close(x.grad, 3 * x.cos())
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_saved_tensor_modified_is_an_error():
    x = leaf(3)
    y = x * 1.0
    z = aot_eager(lambda y: y.sin(), [y])(y)
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_inputs_and_results_may_be_written_where_eager_saves_others():
    def f(x, w):
        h = x + 1
        return h, torch.tanh(h * w)

    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        leaf_x, w = leaf(3), leaf(3)
        x = leaf_x * 1.0
        run = aot_eager(f, [x, w], partition_fn=min_cut_partition) if compiled else f
        h, z = run(x, w)
        with torch.no_grad():
            x.add_(5)
        z.sum().backward()
        results.append((leaf_x.grad, w.grad))
    torch.testing.assert_close(results[1], results[0])

    def g(x):
        h = x * 2
        return h, torch.exp(h)

    x = leaf(3)
    h, z = aot_eager(g, [x], partition_fn=min_cut_partition)(x)
    h.detach().add_(1)
    z.sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.exp(2 * x))


def test_saved_tensor_hooks_see_what_is_saved():
    x, packed = leaf(3), []
    run = aot_eager(lambda x: x.sin().exp(), [x])
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = run(x)
    y.sum().backward()
    assert packed
    torch.testing.assert_close(x.grad, x.sin().exp() * x.cos())


def test_nothing_stays_alive():
    def f(x, w):
        h = (x + w).sin() * 3
        h.mul_(2)
        x.add_(h)
        return h.t(), h

    w = leaf(3, 3)
    x = leaf(3, 3) * 1.0
    run = aot_eager(f, [x, w])
    a, b = run(x, w)
    references = [weakref.ref(t) for t in (a, b, x)]
    del a, b, x
    gc.collect()
    assert [r() for r in references] == [None] * 3


def test_backward_releases_the_inputs():
    w = leaf(3)
    x = w * 2
    y = aot_eager(lambda x: x.sin(), [x])(x)
    held = weakref.ref(x)
    del x
    y.sum().backward(retain_graph=True)
    assert held() is not None
    torch.autograd.grad(y.sum(), w, create_graph=True)
    y.sum().backward()
    gc.collect()
    assert held() is None
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y.sum(), w, create_graph=True)


def test_boxed_compilers_get_a_list():
    lists = []

    def compiler(gm, examples):
        def run(values):
            lists.append(values)
            arguments = tuple(values)
            values.clear()
            return gm(*arguments)

        run._boxed_call = True
        return run

    x = leaf(3)
    run = compile_with_autograd(graph_of(torch.sin, 1), [x], fw_compiler=compiler)
    run(x).sum().backward()
    assert len(lists) == 2 and all(not values for values in lists)
    torch.testing.assert_close(x.grad, x.cos())


def test_training_loop_with_optimizer_and_accumulation():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    losses = []
    for compiled in (False, True):
        net = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        function, tensors = as_function(net, lambda m, x: m(x))
        data = torch.linspace(-1, 1, 12).view(3, 4)
        run = (
            aot_eager(function, [*tensors, data], partition_fn=min_cut_partition)
            if compiled
            else function
        )
        for _ in range(5):
            optimizer.zero_grad()
            for _ in range(2):
                run(*tensors, data).square().sum().backward()
            optimizer.step()
        losses.append(run(*tensors, data))
    torch.testing.assert_close(losses[1], losses[0])


def test_threads_compile_and_run_at_once():
    inputs = [leaf(3, 4), leaf(4, 4)]

    def f(x, w):
        return F.dropout(torch.tanh(x @ w), 0.0).sum()

    expected = torch.autograd.grad(f(*inputs), inputs)

    def work(_):
        run = aot_eager(f, inputs, partition_fn=min_cut_partition)
        return [torch.autograd.grad(run(*inputs), inputs) for _ in range(3)]

    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(work, range(8)):
            for result in results:
                torch.testing.assert_close(result, expected)


def test_gradient_scaler_and_no_grad_evaluation():
    model = nn.Linear(4, 2)
    function, tensors = as_function(model, lambda m, x: m(x))
    x = torch.randn(3, 4)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = aot_eager(function, [*tensors, x])
    before = model.weight.detach().clone()
    scaler.scale(run(*tensors, x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(model.weight.detach(), before - 0.1 * x.sum(0).expand(2, 4))
    with torch.no_grad():
        evaluated = run(*tensors, x)
    assert not evaluated.requires_grad
    torch.testing.assert_close(evaluated, model(x).detach())


def test_ints_and_nones_in_outputs():
    compare(lambda x, n: (x * n, n, None, x.shape[0]), leaf(3), 2)


def test_inference_mode():
    def f(x, w):
        y = F.linear(x, w).relu_()
        x.add_(1).mul_(2)
        return y.view(-1), x.t(), F.scaled_dot_product_attention(y[None], y[None], y[None])

    w = leaf(4, 4)
    with torch.inference_mode():
        for x in (torch.randn(3, 4), torch.randn(3, 4)):
            other = x.clone()
            expected = f(other, w)
            actual = aot_eager(f, [x, w])(x, w)
            torch.testing.assert_close(actual, expected)
            torch.testing.assert_close(x, other)
            assert all(t.is_inference() for t in actual)


def test_backward_that_reads_data_falls_back():
    class Grouped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, sizes):
            ctx.sizes = sizes
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            first, second = ctx.sizes.tolist()
            return torch.cat([grad[:first] * 3, grad[first : first + second] * 5]), None

    sizes = torch.tensor([1, 2])
    with events.collect() as heard:
        compare(lambda x, s: Grouped.apply(x, s), leaf(3), sizes, strict=False)
    assert heard.total("autograd.fallback") == 1


def test_custom_op_whose_backward_reads_data_is_one_node():
    def forward(x, sizes):
        return torch.cat([x[: sizes[0]] * 3, x[sizes[0] :] * 5])

    def setup(ctx, inputs, output):
        ctx.sizes = inputs[1]

    def backward(ctx, grad):
        first = ctx.sizes.tolist()[0]
        return torch.cat([grad[:first] * 3, grad[first:] * 5]), None

    op = torch.library.custom_op(
        "argandtest::pieces", forward, mutates_args=(), schema="(Tensor x, Tensor sizes) -> Tensor"
    )
    op.register_fake(lambda x, sizes: torch.empty_like(x))
    op.register_autograd(backward, setup_context=setup)

    def f(x, sizes):
        return torch.ops.argandtest.pieces(x.sin(), sizes=sizes).exp()

    compare(f, leaf(3), torch.tensor([1, 2]), partition_fn=min_cut_partition)
    x, sizes = leaf(3), torch.tensor([1, 2])
    results = []
    for run in (f, aot_eager(f, [x, sizes], strict=False)):
        (g,) = torch.autograd.grad(run(x, sizes).sum(), x, create_graph=True)
        results.append((g, *torch.autograd.grad(g.sum(), x)))
    torch.testing.assert_close(results[1], results[0])


def test_index_by_tensors_is_recorded():
    index = torch.tensor([0, 2, 1])
    compare(lambda x, i: (x[i], x[:, i] * 2), leaf(3, 4), index)
    with events.collect() as heard:
        compare(lambda x: x[x > 0] * 2, leaf(3))
    assert heard.total("autograd.fallback") == 1


def test_backward_that_eager_refuses_fails_only_when_asked_for():
    def f(y, w, b):
        out = torch.maximum(b, y) * w
        b.add_(1.0)
        return out

    y, w, b = torch.randn(3), leaf(3), torch.randn(3)
    expected, b2 = torch.maximum(b, y) * w, b.clone()
    out = aot_eager(f, [y, w, b2])(y, w, b2)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(b2, b + 1)


def test_nested_outputs():
    x = leaf(3)
    result = aot_eager(lambda x: {"a": x + 1, "b": [x * 2, (x, None)]}, [x])(x)
    torch.testing.assert_close(result["b"][0], x * 2)
    assert result["b"][1][0] is x


def test_partitioners_save_less():
    def f(x, w):
        for _ in range(4):
            x = F.gelu(F.layer_norm(x @ w, (16,))) * torch.sigmoid(x) + x
        return x

    inputs = [leaf(32, 16), leaf(16, 16)]
    saved = {}
    for name, partition, budget in [
        ("default", default_partition, 1.0),
        ("cut", min_cut_partition, 1.0),
        ("half", min_cut_partition, 0.5),
        ("none", min_cut_partition, 0.0),
    ]:
        sizes = []

        def compiler(gm, examples, sizes=sizes):
            outputs = gm.graph.output_node().args[0][1:]
            sizes.append(sum(n.meta["val"].nbytes for n in outputs if n.op != "placeholder"))
            return gm

        run = compile_with_autograd(
            graph_of(f, 2),
            inputs,
            fw_compiler=compiler,
            bw_compiler=lambda gm, ex: gm,
            partition_fn=partition,
            options=Options(strict=True, memory_budget=budget),
        )
        expected = torch.autograd.grad(f(*inputs).sum(), inputs)
        actual = torch.autograd.grad(run(*inputs).sum(), inputs)
        torch.testing.assert_close(actual, expected)
        saved[name] = sizes[0]
    assert saved["default"] > saved["cut"] > saved["half"] >= saved["none"] == 0


def test_graphs_print_as_runnable_python():
    with events.collect() as heard:
        x = leaf(3)
        aot_eager(lambda x: (x.sin() * torch.inf).clamp(max=2.0), [x])
    joint, forward, backward = [*heard.texts("aot_joint_graph"), *heard.texts("aot_graphs")]
    scope = {}
    exec(forward, scope)
    assert "sin" in joint and "cos" in backward
    torch.testing.assert_close(scope["forward"](None, x)[0], (x.sin() * torch.inf).clamp(max=2.0))
    assert {"autograd.trace", "autograd.partition"} <= heard.seconds().keys()


@pytest.mark.parametrize("create_graph", [False, True])
def test_zeros_are_gradients_where_other_results_give_more(create_graph):
    def program(x):
        wave = torch.sin(x)
        return torch.round(wave), wave, x.detach() * 2

    compiled = argand.compile(program)
    for run in (program, compiled, compiled):
        x = torch.rand(4).requires_grad_()
        (gradient,) = torch.autograd.grad(
            run(x)[0].sum(), x, allow_unused=True, create_graph=create_graph
        )
        assert gradient is not None and gradient.tolist() == [0.0] * 4


def test_a_rounded_argument_gets_no_gradient_from_a_result_made_without_it():
    def program(x, y):
        return torch.round(x), torch.sin(y)

    compiled = argand.compile(program)
    for run in (program, compiled, compiled):
        x, y = (torch.rand(4).requires_grad_() for _ in range(2))
        gradients = torch.autograd.grad(run(x, y)[1].sum(), (x, y), allow_unused=True)
        assert [g is None for g in gradients] == [True, False]
