"""benchmarks.language.transforms: torch.func and forward-mode autograd, inside of compiled functions and around them."""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn import functional as F

from benchmarks.language.program import Compile, program, rows, scenario, two


def _loss(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


def _vector() -> tuple[Tensor]:
    return (torch.randn(5),)


def _cube() -> tuple[Tensor]:
    return (torch.randn(3, 4, 5),)


def _mlp() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


# -- vmap ------------------------------------------------------------------------------------------


@program(train=True)
def vmap_simple(x: Tensor) -> Tensor:
    return vmap(lambda row: row.sin() * 2 + row.sum())(x)


@program(*rows(3, 5, 7), dynamic=True, train=True)
def vmap_open_sizes(x: Tensor) -> Tensor:
    return vmap(lambda row: row.sin() * row.sum())(x)


@program(*rows(3, 5, 7))
def vmap_automatic_sizes(x: Tensor) -> Tensor:
    return vmap(torch.softmax, in_dims=(0, None))(x, 0)


@program(two, train=True)
def vmap_in_dims(x: Tensor, y: Tensor) -> Tensor:
    return vmap(torch.dot, in_dims=(0, 1))(x, y)


@program(two, train=True)
def vmap_none_dim(x: Tensor, y: Tensor) -> Tensor:
    return vmap(torch.mv, in_dims=(None, 0))(x, y)


@program(_cube)
def vmap_out_dims(x: Tensor) -> Any:
    return vmap(lambda a: (a.sum(0), a * 2), out_dims=(1, -1))(x)


@program(_cube, train=True)
def vmap_nested(x: Tensor) -> Tensor:
    return vmap(vmap(lambda v: v.exp() / v.exp().sum()))(x)


@program(two)
def vmap_nested_outer_product(x: Tensor, y: Tensor) -> Tensor:
    return vmap(vmap(torch.dot, in_dims=(None, 0)), in_dims=(0, None))(x, y)


@program(two)
def vmap_dict_arguments(x: Tensor, y: Tensor) -> Any:
    return vmap(
        lambda d: {"sum": d["a"] + d["b"], "product": d["a"] * d["b"]},
        in_dims=({"a": 0, "b": None},),
    )({"a": x, "b": y})


@program(two)
def vmap_keyword(x: Tensor, y: Tensor) -> Tensor:
    return vmap(lambda row, scale: row * scale)(x, scale=y)


@program(*rows(5, 6))
def vmap_chunks(x: Tensor) -> Tensor:
    return vmap(lambda row: row.sin().sum(), chunk_size=2)(x)


@program()
def vmap_randomness_different(x: Tensor) -> Tensor:
    return (vmap(lambda row: row * 0 + torch.rand(4), randomness="different")(x) < 2).float()


@program()
def vmap_randomness_same(x: Tensor) -> Tensor:
    drawn = vmap(lambda row: row * 0 + torch.rand(4), randomness="same")(x)
    return (drawn == drawn[:1]).float()


@program()
def vmap_randomness_error(x: Tensor) -> Tensor:
    return vmap(lambda row: row + torch.rand(4))(x)


@program(train=True)
def vmap_dropout(x: Tensor) -> Tensor:
    return vmap(lambda row: F.dropout(row, 0.0), randomness="different")(x)


@program()
def vmap_in_place(x: Tensor) -> Tensor:
    def double(row: Tensor) -> Tensor:
        y = row.clone()
        y.mul_(2)
        y[0] = 1.0
        return y

    return vmap(double)(x)


@program()
def vmap_in_place_on_input(x: Tensor) -> Tensor:
    return vmap(lambda row: row.add_(1).sum())(x)


@program()
def vmap_condition_on_shape(x: Tensor) -> Tensor:
    return vmap(lambda row: row * 2 if row.shape[0] > 3 else row)(x)


@program()
def vmap_wrong_dims(x: Tensor) -> Tensor:
    return vmap(torch.sin, in_dims=3)(x)


@program()
def vmap_not_a_tensor(x: Tensor) -> Any:
    return vmap(lambda row: 3)(x)


@program()
def vmap_data_dependent(x: Tensor) -> Tensor:
    return vmap(lambda row: row if row.sum() > 0 else -row)(x)


@program()
def vmap_side_effect(x: Tensor) -> Any:
    seen = []

    def note(row: Tensor) -> Tensor:
        seen.append(tuple(row.shape))
        return row + len(seen)

    return vmap(note)(x), seen


@program()
def vmap_closure(x: Tensor) -> Tensor:
    scale = x.mean()
    return vmap(lambda row: row * scale + x.sum())(x)


@program(two)
def vmap_linear(x: Tensor, y: Tensor) -> Tensor:
    return vmap(lambda row: F.linear(row, y).relu())(x)


@program(train=True)
def vmap_layer_norm(x: Tensor) -> Tensor:
    return vmap(lambda row: F.layer_norm(row, (4,)))(x)


@program(lambda: (torch.randn(2, 3, 8, 8), torch.randn(2, 4, 3, 3, 3)), train=True)
def vmap_convolution(x: Tensor, w: Tensor) -> Tensor:
    return vmap(lambda image, kernel: F.conv2d(image[None], kernel, padding=1)[0])(x, w)


@program(lambda: (torch.randn(5, 4), torch.randint(0, 4, (5,))), train=True)
def vmap_cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return vmap(F.cross_entropy)(x, target)


@program(lambda: (torch.randn(4, 6), torch.tensor([3, 1, 0, 2])))
def vmap_index(x: Tensor, index: Tensor) -> Tensor:
    return vmap(lambda row, i: row.index_select(0, i[None])[0])(x, index)


@scenario
def vmap_decorated(compile: Compile) -> Any:
    torch.manual_seed(0)

    @vmap
    def inner(row: Tensor) -> Tensor:
        return row.cos() + row.max()

    return compile(lambda x: inner(x) * 2)(torch.randn(3, 4))


@scenario
def vmap_of_module(compile: Compile) -> Any:
    model = _mlp()
    x = torch.randn(6, 4)
    return compile(lambda x: vmap(model)(x))(x)


# -- gradients ----------------------------------------------------------------------------------------


@program(_vector, train=True)
def grad_simple(x: Tensor) -> Tensor:
    return grad(_loss)(x)


@program(_vector)
def grad_without_autograd(x: Tensor) -> Tensor:
    with torch.no_grad():
        return grad(_loss)(x)


@program(_vector)
def grad_respects_no_grad_inside(x: Tensor) -> Tensor:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            c = x**2
        return (x - c).sum()

    return grad(f)(x)


@program(two, train=True)
def grad_argnums(x: Tensor, y: Tensor) -> Any:
    return grad(lambda a, b: (a * b.sin()).sum(), argnums=(0, 1))(x, y)


@program(two)
def grad_aux(x: Tensor, y: Tensor) -> Any:
    return grad(lambda a, b: ((a * b).sum(), (a + b, {"b": b})), has_aux=True)(x, y)


@program(two, train=True)
def grad_and_value_both(x: Tensor, y: Tensor) -> Any:
    return grad_and_value(lambda a, b: (a @ b).pow(2).mean())(x, y)


@program(lambda: (torch.randn(()),), train=True)
def grad_of_grad(x: Tensor) -> Tensor:
    return grad(grad(grad(lambda v: v.sin() * v**3)))(x)


@program(two)
def grad_of_dict(x: Tensor, y: Tensor) -> Any:
    return grad(lambda d: (d["a"] * d["b"]).tanh().sum())({"a": x, "b": y})


@program(_vector)
def grad_not_a_scalar(x: Tensor) -> Tensor:
    return grad(torch.sin)(x)


@program(*rows(3, 5, 9), dynamic=True)
def grad_open_sizes(x: Tensor) -> Tensor:
    return grad(lambda v: (v.softmax(-1) ** 2).sum() / v.shape[0])(x)


@program(two)
def grad_unused_argument(x: Tensor, y: Tensor) -> Any:
    return grad(lambda a, b: a.sum(), argnums=(0, 1))(x, y)


@program(_vector)
def grad_in_place_inside(x: Tensor) -> Tensor:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        y.mul_(x)
        return y.sum()

    return grad(f)(x)


@program(_vector)
def grad_custom_function(x: Tensor) -> Tensor:
    return grad(lambda v: _Cube.apply(v).sum())(x)


class _Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * 3 * x**2


@program(train=True)
def vmap_custom_function(x: Tensor) -> Tensor:
    return vmap(lambda row: _Cube.apply(row).sum())(x)


@program(two, train=True)
def vjp_simple(x: Tensor, y: Tensor) -> Any:
    out, back = vjp(lambda a: a.sin() @ a, x)
    return out, back(y)


@program(two)
def vjp_of_two(x: Tensor, y: Tensor) -> Any:
    out, back = vjp(lambda a, b: (a * b, a + b), x, y)
    return out, back(out)


@program(two)
def vjp_aux(x: Tensor, y: Tensor) -> Any:
    out, back, aux = vjp(lambda a: (a.exp(), a * 2), x, has_aux=True)
    return out, back(y), aux


@program(two)
def vjp_twice(x: Tensor, y: Tensor) -> Any:
    _, back = vjp(torch.sin, x)
    return back(y), back(y * 2)


@program()
def vjp_function_returned(x: Tensor) -> Any:
    out, _back = vjp(torch.sin, x)
    return out


@scenario(reason="the function that vjp gives back holds tensors of a level: it is made in Python")
def vjp_function_used_outside(compile: Compile) -> Any:
    torch.manual_seed(0)
    x, y = torch.randn(4), torch.randn(4)
    out, back = compile(lambda x: vjp(torch.sin, x))(x)
    return out, back(y)


@program(_vector, train=True)
def jacrev_simple(x: Tensor) -> Tensor:
    return jacrev(lambda v: v.sin() * v.sum())(x)


@program(two)
def jacrev_argnums(x: Tensor, y: Tensor) -> Any:
    return jacrev(lambda a, b: a @ b, argnums=(0, 1))(x, y)


@program(_vector)
def jacrev_aux(x: Tensor) -> Any:
    return jacrev(lambda v: (v**2, v + 1), has_aux=True)(x)


@program(_vector)
def jacrev_chunks(x: Tensor) -> Tensor:
    return jacrev(lambda v: v.cumsum(0) * v, chunk_size=2)(x)


@program(_vector)
def jacrev_two_outputs(x: Tensor) -> Any:
    return jacrev(lambda v: (v**2, {"s": v.sum()}))(x)


@program(train=True)
def vmap_of_jacrev(x: Tensor) -> Tensor:
    return vmap(jacrev(lambda v: v.tanh() * v.sum()))(x)


@program(_vector, train=True)
def hessian_simple(x: Tensor) -> Tensor:
    return hessian(_loss)(x)


@program()
def vmap_of_hessian(x: Tensor) -> Tensor:
    return vmap(hessian(_loss))(x)


@program(_vector)
def jacrev_of_jacrev(x: Tensor) -> Tensor:
    return jacrev(jacrev(_loss))(x)


@program(_vector)
def hessian_vector_product(x: Tensor) -> Tensor:
    return jvp(grad(_loss), (x,), (torch.ones_like(x),))[1]


# -- forward mode -------------------------------------------------------------------------------------


@program(two, train=True)
def jvp_simple(x: Tensor, y: Tensor) -> Any:
    return jvp(lambda a: a.sin() * a, (x,), (y,))


@program(two)
def jvp_aux(x: Tensor, y: Tensor) -> Any:
    return jvp(lambda a: (a.exp(), a + 1), (x,), (y,), has_aux=True)


@program(two)
def jvp_nested(x: Tensor, y: Tensor) -> Any:
    return jvp(lambda a: jvp(torch.sin, (a,), (y,))[1], (x,), (y,))


@program(two)
def jvp_of_product(x: Tensor, y: Tensor) -> Any:
    return jvp(lambda a, b: (a @ b).relu(), (x, y), (y, x))


@program(_vector, train=True)
def jacfwd_simple(x: Tensor) -> Tensor:
    return jacfwd(lambda v: v.sin() * v.sum())(x)


@program(two)
def jacfwd_argnums(x: Tensor, y: Tensor) -> Any:
    return jacfwd(lambda a, b: a * b.sum(), argnums=(0, 1))(x, y)


@program(two)
def vmap_of_jvp(x: Tensor, y: Tensor) -> Any:
    return vmap(lambda a, b: jvp(torch.cos, (a,), (b,)))(x, y)


@program(two, train=True)
def dual_level(x: Tensor, y: Tensor) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, y)
        out = forward_ad.unpack_dual(dual.sin() * dual)
        return out.primal * 1, out.tangent


@program(two)
def dual_level_of_module(x: Tensor, y: Tensor) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, y)
        return forward_ad.unpack_dual(F.layer_norm(dual, (4,)).softmax(-1)).tangent


@program(*rows(3, 5, 9), dynamic=True)
def jvp_open_sizes(x: Tensor) -> Any:
    return jvp(lambda a: a.softmax(-1), (x,), (torch.ones_like(x),))[1]


@program(two, reason="torch.func.linearize traces by torch.fx at run time: its call is Python's")
def linearize_simple(x: Tensor, y: Tensor) -> Any:
    out, forward = linearize(lambda a: a.sin() * 2, x)
    return out, forward(y)


@program(reason="functionalize is for tracers: its call is Python's")
def functionalize_simple(x: Tensor) -> Tensor:
    return functionalize(lambda a: a.clone().add_(1))(x)


# -- modules ------------------------------------------------------------------------------------------


@scenario
def functional_call_inside(compile: Compile) -> Any:
    model, x = _mlp(), torch.randn(6, 4)
    values = {name: value.detach() * 2 for name, value in model.named_parameters()}
    return compile(lambda v, x: functional_call(model, v, (x,)))(values, x)


@scenario
def functional_call_gradients(compile: Compile) -> Any:
    model, x = _mlp(), torch.randn(6, 4)
    values = dict(model.named_parameters())
    compiled = compile(
        lambda v, x: grad(lambda v: functional_call(model, v, (x,)).pow(2).mean())(v)
    )
    return [compiled(values, x) for _ in range(2)]


def _per_sample(model: nn.Module) -> Any:
    def loss(values: Any, x: Tensor, y: Tensor) -> Tensor:
        out = functional_call(model, values, (x[None],))
        return F.cross_entropy(out, y[None])

    return lambda values, x, y: vmap(grad(loss), in_dims=(None, 0, 0))(values, x, y)


@scenario
def per_sample_gradients(compile: Compile) -> Any:
    model = _mlp()
    compiled = compile(_per_sample(model))
    values = {name: value.detach() for name, value in model.named_parameters()}
    return [compiled(values, torch.randn(n, 4), torch.randint(0, 3, (n,))) for n in (6, 6, 6)]


@scenario
def per_sample_gradients_open_batch(compile: Compile) -> Any:
    model = _mlp()
    compiled = compile(_per_sample(model), dynamic=True)
    values = {name: value.detach() for name, value in model.named_parameters()}
    return [compiled(values, torch.randn(n, 4), torch.randint(0, 3, (n,))) for n in (6, 7, 11)]


@scenario
def per_sample_gradients_of_convolutions(compile: Compile) -> Any:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 3))
    compiled = compile(_per_sample(model))
    values = {name: value.detach() for name, value in model.named_parameters()}
    return [compiled(values, torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4,))) for _ in range(2)]


@scenario
def ensemble(compile: Compile) -> Any:
    models = [_mlp() for _ in range(3)]
    for k, model in enumerate(models):
        nn.init.constant_(model[0].bias, float(k))  # type: ignore[index, arg-type]
    values, buffers = stack_module_state(models)
    base = models[0]
    compiled = compile(
        lambda v, b, x: vmap(
            lambda v, b, x: functional_call(base, (v, b), (x,)), in_dims=(0, 0, None)
        )(v, b, x)
    )
    return compiled(values, buffers, torch.randn(6, 4)).detach()


@scenario
def ensemble_stacked_inside(compile: Compile) -> Any:
    models = [_mlp() for _ in range(3)]

    def run(x: Tensor) -> Tensor:
        values, buffers = stack_module_state(models)
        return vmap(lambda v, b: functional_call(models[0], (v, b), (x,)))(values, buffers)

    return compile(run)(torch.randn(6, 4)).detach()


@scenario
def batch_norm_per_sample(compile: Compile) -> Any:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    values = {name: value.detach() for name, value in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def loss(v: Any, x: Tensor) -> Tensor:
        return functional_call(model, (v, buffers), (x[None],)).sum()

    return compile(lambda v, x: vmap(grad(loss), in_dims=(None, 0))(v, x))(
        values, torch.randn(5, 4)
    )


# -- autograd inside ----------------------------------------------------------------------------------


@program(_vector, train=True)
def autograd_grad_inside(x: Tensor) -> Tensor:
    y = (x.sin() * x).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return g * 2


@program(_vector, train=True)
def autograd_gradient_penalty(x: Tensor) -> Tensor:
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return y + (g.norm() - 1) ** 2


@program(_vector)
def autograd_functional_jacobian(x: Tensor) -> Any:
    return torch.autograd.functional.jacobian(lambda v: v.sin() * v.sum(), x)


@program(_vector)
def autograd_functional_hessian(x: Tensor) -> Any:
    return torch.autograd.functional.hessian(_loss, x)


# -- compiled functions under transforms ---------------------------------------------------------------


@scenario
def grad_over_compiled(compile: Compile) -> Any:
    torch.manual_seed(0)
    compiled = compile(_loss)
    return [grad(compiled)(torch.randn(5)) for _ in range(2)]


@scenario
def vmap_over_compiled(compile: Compile) -> Any:
    torch.manual_seed(0)
    compiled = compile(lambda row: row.sin() * row.sum())
    return [vmap(compiled)(torch.randn(3, 5)) for _ in range(2)]


@scenario
def jacrev_over_compiled(compile: Compile) -> Any:
    torch.manual_seed(0)
    compiled = compile(lambda v: v.sin() * v.sum())
    return [jacrev(compiled)(torch.randn(5)) for _ in range(2)]


@scenario
def hessian_over_compiled(compile: Compile) -> Any:
    torch.manual_seed(0)
    return hessian(compile(_loss))(torch.randn(5))


@scenario
def jvp_over_compiled(compile: Compile) -> Any:
    torch.manual_seed(0)
    compiled = compile(lambda v: v.sin() * v.sum())
    return jvp(compiled, (torch.randn(5),), (torch.ones(5),))


@scenario
def per_sample_over_compiled(compile: Compile) -> Any:
    model = _mlp()
    values = {name: value.detach() for name, value in model.named_parameters()}
    loss = compile(lambda v, x: functional_call(model, v, (x,)).pow(2).sum())
    return vmap(grad(loss), in_dims=(None, 0))(values, torch.randn(6, 4))


@scenario
def compiled_inside_compiled_under_grad(compile: Compile) -> Any:
    torch.manual_seed(0)
    inner = compile(_loss)
    return compile(lambda x: grad(inner)(x) + 1)(torch.randn(5))


@scenario
def dual_through_compiled(compile: Compile) -> Any:
    torch.manual_seed(0)
    compiled = compile(lambda x: x.sin() * 2)
    with forward_ad.dual_level():
        out = compiled(forward_ad.make_dual(torch.randn(4), torch.ones(4)))
        return tuple(part.clone() for part in forward_ad.unpack_dual(out))


@scenario
def called_with_and_without_a_transform(compile: Compile) -> Any:
    torch.manual_seed(0)
    compiled = compile(lambda x: (x.sin() * 2).sum())
    x = torch.randn(3, 5)
    return (
        compiled(x),
        vmap(compiled)(x),
        compiled(x),
        grad(compiled)(x),
        vmap(grad(compiled))(x),
        compiled(x),
    )
