"""benchmarks.language.training: forward, ``backward()``, step and ``zero_grad`` inside compiled functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn, optim

from benchmarks.language.optimizers import network, outcome
from benchmarks.language.program import Compile, program, scenario, square, two

STEPS = 3


def batch(number: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one step."""
    draw = torch.Generator().manual_seed(number)
    return torch.randn(6, 4, generator=draw), torch.randn(6, 2, generator=draw)


def train(compile_: Compile, optimizer: optim.Optimizer, model: nn.Module, step: Any) -> Any:
    """Compile a training step and run it a few times."""
    compiled = compile_(step)
    losses = [compiled(*batch(number)) for number in range(STEPS)]
    return (
        [loss.detach() for loss in losses],
        outcome(model, optimizer),
        [p.grad for p in model.parameters()],
    )


@scenario
def whole_step_sgd(compile_: Compile) -> Any:
    """Everything in one function."""
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return train(compile_, optimizer, model, step)


@scenario
def whole_step_adam(compile_: Compile) -> Any:
    """The same with state."""
    model = network()
    optimizer = optim.Adam(model.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train(compile_, optimizer, model, step)


@scenario
def whole_step_clipped(compile_: Compile) -> Any:
    """The same with clipped gradients."""
    model = network()
    optimizer = optim.AdamW(model.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return train(compile_, optimizer, model, step)


@scenario
def zero_grad_keeps_tensors(compile_: Compile) -> Any:
    """Gradients that are written over."""
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return train(compile_, optimizer, model, step)


@scenario
def accumulated_gradients(compile_: Compile) -> Any:
    """Two backwards before a step."""
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for part in range(2):
            loss = nn.functional.mse_loss(model(x[part::2]), y[part::2])
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    return train(compile_, optimizer, model, step)


@scenario
def forward_and_backward(compile_: Compile) -> Any:
    """No optimizer: gradients are what comes out."""
    model = network()

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss.detach()

    compiled = compile_(step)
    return [compiled(*batch(n)) for n in range(STEPS)], [p.grad for p in model.parameters()]


@program(square, train=True)
def grad_inside(x: Tensor) -> Tensor:
    """torch.autograd.grad of an argument."""
    (g,) = torch.autograd.grad((x.sin() ** 2).sum(), x)
    return g * 2


@program(square, train=True)
def grad_of_grad_inside(x: Tensor) -> Tensor:
    """A gradient penalty: create_graph."""
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return y + (g.norm() - 1) ** 2


@program(square)
def grad_of_local_leaf(x: Tensor) -> Tensor:
    """A leaf made inside."""
    w = x.detach().clone().requires_grad_()
    (w * x).sum().backward()
    return w.grad + 1


@program(square, train=True)
def backward_inside(x: Tensor) -> Tensor:
    """backward() of a loss over an argument."""
    loss = (x * x).sum()
    loss.backward()
    return loss.detach()


@program(square, train=True)
def backward_with_gradient(x: Tensor) -> Tensor:
    """backward() of something that is no number."""
    y = x.exp()
    y.backward(torch.ones_like(y))
    return y.detach()


@program(square, train=True)
def inner_loop(x: Tensor) -> Tensor:
    """Gradient descent inside of a function (MAML)."""
    w = torch.ones(4, requires_grad=True)
    for _ in range(3):
        loss = ((x @ w) ** 2).mean()
        (g,) = torch.autograd.grad(loss, w, create_graph=True)
        w = w - 0.1 * g
    return ((x @ w) ** 2).mean()


@scenario
def loss_function_only(compile_: Compile) -> Any:
    """Forward and loss compiled, backward outside."""
    model = network()
    loss_of = compile_(lambda x, y: nn.functional.mse_loss(model(x), y))
    for number in range(STEPS):
        loss_of(*batch(number)).backward()
    return [p.grad for p in model.parameters()]


@scenario(reason="hooks are Python's, called by torch's engine: the call is Python's")
def tensor_hooks(compile_: Compile) -> Any:
    """A hook on a gradient, registered inside."""
    seen: list[int] = []

    @compile_
    def run(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(lambda g: g * 3)
        return y.sin().sum()

    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        run(x).backward()
    return x.grad, seen


@scenario
def parameter_hooks(compile_: Compile) -> Any:
    """Hooks of parameters, registered before."""
    model = network()
    for parameter in model.parameters():
        parameter.register_hook(lambda g: g * 0.5)
    compiled = compile_(model)
    for number in range(2):
        compiled(batch(number)[0]).sum().backward()
    return [p.grad for p in model.parameters()]


@scenario
def post_accumulate_hooks(compile_: Compile) -> Any:
    """The optimizer runs in the backward."""
    model = network()
    optimizers = {p: optim.SGD([p], lr=0.1) for p in model.parameters()}

    def hook(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    compiled = compile_(model)
    for number in range(2):
        compiled(batch(number)[0]).sum().backward()
    return dict(model.state_dict())


@program(square, train=True)
def no_grad_part(x: Tensor) -> Tensor:
    """Part of a function without gradients."""
    with torch.no_grad():
        scale = x.abs().max()
    return (x / scale).tanh()


@program(square, train=True)
def detached(x: Tensor) -> Tensor:
    """A straight-through estimator."""
    return x + (x.round() - x).detach()


@program(square, train=True)
def checkpointed(x: Tensor) -> Tensor:
    """Activation checkpointing."""
    return torch.utils.checkpoint.checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False) * 2


@program(square, train=True)
def set_grad_enabled(x: Tensor) -> Tensor:
    """The mode is switched by a call."""
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y + x


@program(two, train=True)
def autocast_inside(x: Tensor, y: Tensor) -> Tensor:
    """Mixed precision. One use of each input: eager adds up gradients in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ y).float()


class Doubled(torch.autograd.Function):
    """A function with its own gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        """Twice."""
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Its own."""
        (x,) = ctx.saved_tensors
        return grad * ctx.factor + 0 * x, None


@program(square, train=True)
def autograd_function(x: Tensor) -> Tensor:
    """torch.autograd.Function."""
    return Doubled.apply(x.sin(), 3.0) + 1


@scenario(reason="a node takes tensors and numbers, no modules: in training the call is Python's")
def autograd_function_of_module(compile_: Compile) -> Any:
    """A module among the arguments of an autograd.Function."""

    class Apply(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, module: nn.Module) -> Tensor:
            ctx.save_for_backward(x)
            return module(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad * 2, None

    module = nn.Tanh()
    run = compile_(lambda x: Apply.apply(x, module) * 3)
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        run(x).sum().backward()
    return x.grad


@program(square, train=True)
def retain_grad(x: Tensor) -> Tensor:
    """The gradient of a value in the middle is kept."""
    y = x * 2
    y.retain_grad()
    (y**2).sum().backward()
    return y.grad.clone()


@scenario
def frozen_layers(compile_: Compile) -> Any:
    """Layers that do not learn, switched between calls."""
    model = network()
    compiled = compile_(model)
    results = []
    for frozen in (True, False, True):
        model[0].requires_grad_(not frozen)
        model.zero_grad()
        compiled(batch(0)[0]).sum().backward()
        results.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
    return results


@scenario
def train_and_eval(compile_: Compile) -> Any:
    """Batch norm in both modes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    compiled = compile_(model)
    x = torch.randn(8, 4)
    results = [compiled(x)]
    model.eval()
    results.append(compiled(x))
    model.train()
    return [r.detach() for r in [*results, compiled(x)]], dict(model.state_dict())
