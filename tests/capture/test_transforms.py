"""torch.func and forward-mode autograd inside of compiled functions, against eager."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)

import argand
from argand.runtime import levels
from argand.support.errors import CaptureError


def loss(x):
    return (x.sin() * x).sum()


def per_sample(x):
    return vmap(grad(lambda w, row: (row @ w).tanh().sum()), in_dims=(None, 0))(x.T.contiguous(), x)


def dual(x):
    with forward_ad.dual_level():
        out = forward_ad.unpack_dual(forward_ad.make_dual(x, x.cos()).exp() * x)
        return out.primal + 1, out.tangent


def in_place(row):
    y = row.clone()
    y.mul_(2)
    y[0] = 1.0
    return y


def vjp_twice(x):
    out, back = vjp(lambda a: a.sin() * a.sum(), x)
    return out, back(x), back(x * 2)


PROGRAMS = {
    "vmap": lambda x: vmap(lambda row: row.sin() * row.sum())(x),
    "nested": lambda x: vmap(vmap(lambda v: v.exp()), in_dims=1, out_dims=1)(x),
    "none": lambda x: vmap(torch.dot, in_dims=(None, 0))(x[0], x),
    "chunks": lambda x: vmap(lambda row: row.softmax(0), chunk_size=3)(x),
    "in place": lambda x: vmap(in_place)(x),
    "grad": grad(loss),
    "grad without autograd": torch.no_grad()(grad(loss)),
    "value": lambda x: grad_and_value(lambda a, b: (a @ b).pow(2).mean(), argnums=(0, 1))(x, x.T),
    "aux": lambda x: grad(lambda a: (loss(a), {"twice": a * 2}), has_aux=True)(x),
    "third": lambda x: vmap(grad(grad(grad(lambda v: v.sin() * v**3))))(x.flatten()),
    "per sample": per_sample,
    "jacrev": lambda x: jacrev(lambda v: v.sin() * v.sum())(x),
    "jacfwd": lambda x: jacfwd(lambda v: v.sin() * v.sum())(x),
    "hessian": lambda x: hessian(loss)(x),
    "vjp": vjp_twice,
    "jvp": lambda x: jvp(lambda a: jvp(torch.sin, (a,), (x,))[1], (x,), (x * 2,)),
    "dual": dual,
    "custom": lambda x: vmap(grad(lambda v: Cube.apply(v).sum()))(x),
}


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0] ** 2


def leaves(value):
    return torch.utils._pytree.tree_leaves(value)


def check(function, *inputs, train=False, **options):
    """Compile as one graph and compare with eager, twice; return the compiled function."""
    compiled = argand.compile(function, fullgraph=True, **options)
    for _ in range(2):
        rows = []
        for run in (function, compiled):
            given = [x.detach().clone().requires_grad_(train) for x in inputs]
            out = leaves(run(*given))
            grads = []
            if train and any(o.requires_grad for o in out):
                torch.autograd.backward([o.pow(2).sum() for o in out if o.requires_grad])
                grads = [x.grad for x in given]
            rows.append([*out, *given, *grads])
        torch.testing.assert_close(rows[1], rows[0], rtol=1e-5, atol=1e-5)
        assert [x.requires_grad for x in rows[1]] == [x.requires_grad for x in rows[0]]
    assert levels.depth() == 0
    return compiled


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_transform_is_one_graph(name, train):
    check(PROGRAMS[name], torch.randn(4, 5), train=train)


@pytest.mark.parametrize("name", ["vmap", "grad", "per sample", "jvp", "dual"])
def test_sizes_stay_open(name):
    compiled = argand.compile(PROGRAMS[name], fullgraph=True, dynamic=True)
    for n in (3, 5, 8):
        x = torch.randn(n, n + 2)
        torch.testing.assert_close(leaves(compiled(x)), leaves(PROGRAMS[name](x)))


@pytest.mark.parametrize("name", ["vmap", "grad", "jvp", "vjp"])
def test_a_backend_gets_a_graph_that_runs(name):
    check(PROGRAMS[name], torch.randn(4, 5), backend="eager")


def test_per_sample_gradients_of_a_module():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    values = {name: value.detach() for name, value in model.named_parameters()}

    def run(values, x, y):
        one = lambda v, x, y: F.cross_entropy(functional_call(model, v, (x[None],)), y[None])
        return vmap(grad(one), in_dims=(None, 0, 0))(values, x, y)

    compiled = argand.compile(run, fullgraph=True)
    x, y = torch.randn(6, 4), torch.randint(0, 3, (6,))
    for _ in range(2):
        torch.testing.assert_close(compiled(values, x, y), run(values, x, y))
    assert model[0].weight.requires_grad  # the module has its own parameters again


def test_a_write_inside_reaches_the_input():
    def run(x):
        return vmap(lambda row: row.add_(1).sum())(x)

    x = torch.randn(3, 4)
    y = x.clone()
    torch.testing.assert_close(argand.compile(run, fullgraph=True)(x), run(y))
    torch.testing.assert_close(x, y)


def test_what_the_body_reads_is_guarded():
    scale = [2.0]
    compiled = argand.compile(lambda x: vmap(lambda row: row * scale[0])(x), fullgraph=True)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), x * 2)
    scale[0] = 3.0
    torch.testing.assert_close(compiled(x), x * 3)


def test_what_the_body_writes_happens_once():
    seen = []

    def run(x):
        def note(row):
            seen.append(row.shape[0])
            return row + len(seen)

        return vmap(note)(x)

    compiled = argand.compile(run, fullgraph=True)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), x + 1)
    assert seen == [4]


def test_a_break_inside_is_a_break_at_the_call():
    def run(x):
        y = x * 2
        z = grad(lambda v: (v.sin() * v.detach().mean().item()).sum())(y)
        return z + 1

    x = torch.randn(4)
    compiled = argand.compile(run)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), run(x))
        assert levels.depth() == 0
    with pytest.raises(CaptureError):
        argand.compile(run, fullgraph=True)(x)
    assert levels.depth() == 0


def test_errors_are_those_of_eager():
    x = torch.randn(4, 4)
    for run in (
        lambda x: vmap(torch.sin, in_dims=3)(x),
        lambda x: vmap(lambda row: row + torch.rand(4))(x),
        lambda x: grad(torch.sin)(x),
        lambda x: vmap(lambda row: 3)(x),
        lambda x: vmap(torch.mm)(x, x),
    ):
        with pytest.raises(Exception) as eager:
            run(x)
        for _ in range(2):
            with pytest.raises(type(eager.value)) as ours:
                argand.compile(run, fullgraph=True)(x)
            assert str(ours.value) == str(eager.value)
            assert levels.depth() == 0


def test_a_tensor_of_a_level_does_not_leave_a_graph():
    kept = []

    def run(x):
        def keep(row):
            kept.append(row)
            return row * 2

        return vmap(keep)(x)

    x = torch.randn(3, 4)
    torch.testing.assert_close(argand.compile(run)(x), run(x))
    assert len(kept) == 2
    out, back = argand.compile(lambda x: vjp(torch.sin, x))(x)
    torch.testing.assert_close((out, *back(x)), (x.sin(), x.cos() * x))


def test_a_graph_that_raises_leaves_no_level_open():
    def run(x, index):
        return vmap(lambda row: row.index_select(0, index))(x)

    x = torch.randn(3, 4)
    for backend in ("argand", "eager"):
        compiled = argand.compile(run, fullgraph=True, backend=backend)
        good = torch.tensor([0, 2])
        torch.testing.assert_close(compiled(x, good), run(x, good))
        with pytest.raises((IndexError, RuntimeError)):
            compiled(x, torch.tensor([0, 9]))
        assert levels.depth() == 0


def test_random_numbers_by_mode():
    def run(x, how):
        return vmap(lambda row: row * 0 + torch.rand(4), randomness=how)(x)

    x = torch.randn(64, 4)
    same = argand.compile(run, fullgraph=True)(x, "same")
    assert (same == same[:1]).all()
    different = argand.compile(run, fullgraph=True)(x, "different")
    assert different.unique().numel() > 200
    with pytest.raises(RuntimeError, match="randomness"):
        argand.compile(run, fullgraph=True)(x, "error")
