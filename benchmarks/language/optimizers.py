"""benchmarks.language.optimizers: a compiled ``step`` of every optimizer, its state compared with eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn, optim

from benchmarks.language.program import Compile, eager, scenario

STEPS = 3


def network() -> nn.Sequential:
    """A model with parameters of several shapes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))


def gradients(parameters: list[nn.Parameter], number: int) -> None:
    """The same gradients in every run."""
    draw = torch.Generator().manual_seed(number)
    for parameter in parameters:
        parameter.grad = (torch.randn(parameter.shape, generator=draw) * 0.1).to(parameter.dtype)


def outcome(model: nn.Module, optimizer: optim.Optimizer) -> Any:
    """What a step changes."""
    return copy.deepcopy([dict(model.state_dict()), optimizer.state_dict()])


def steps(
    compile_: Compile, optimizer_of: Callable[[Any], optim.Optimizer], count: int = STEPS
) -> Any:
    """Several compiled steps with new gradients each."""
    model = network()
    optimizer = optimizer_of(model.parameters())
    step = compile_(optimizer.step)
    for number in range(count):
        gradients(list(model.parameters()), number)
        step()
    return outcome(model, optimizer)


def add(name: str, optimizer: type[optim.Optimizer], **options: Any) -> None:
    """Register the program that steps an optimizer with these options."""

    def run(compile_: Compile) -> Any:
        return steps(compile_, lambda parameters: optimizer(parameters, **options))

    run.__name__ = name
    scenario(run)


for _form, _foreach in (("loop", False), ("foreach", True), ("default", None)):
    add(f"sgd_{_form}", optim.SGD, lr=0.1, foreach=_foreach)
    add(f"sgd_momentum_{_form}", optim.SGD, lr=0.1, momentum=0.9, foreach=_foreach)
    add(f"adam_{_form}", optim.Adam, foreach=_foreach)
    add(f"adamw_{_form}", optim.AdamW, foreach=_foreach)
    add(f"adamax_{_form}", optim.Adamax, foreach=_foreach)
    add(f"adagrad_{_form}", optim.Adagrad, foreach=_foreach)
    add(f"adadelta_{_form}", optim.Adadelta, foreach=_foreach)
    add(f"rmsprop_{_form}", optim.RMSprop, foreach=_foreach)
    add(f"nadam_{_form}", optim.NAdam, foreach=_foreach)
    add(f"radam_{_form}", optim.RAdam, foreach=_foreach)
    add(f"asgd_{_form}", optim.ASGD, foreach=_foreach)
    add(f"rprop_{_form}", optim.Rprop, foreach=_foreach)

add("sgd_nesterov", optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
add("sgd_dampening", optim.SGD, lr=0.1, momentum=0.9, dampening=0.5)
add("sgd_maximize", optim.SGD, lr=0.1, maximize=True)
add("adam_amsgrad", optim.Adam, amsgrad=True)
add("adam_maximize", optim.Adam, maximize=True, weight_decay=0.1)
add("adam_not_fused", optim.Adam, fused=False)
add("adam_fused", optim.Adam, fused=True)
add("sgd_fused", optim.SGD, lr=0.1, fused=True)
add("adam_tensor_lr", optim.Adam, lr=torch.tensor(0.01))
add("adam_decoupled", optim.Adam, weight_decay=0.1, decoupled_weight_decay=True)
add("nadam_decoupled", optim.NAdam, weight_decay=0.1, decoupled_weight_decay=True)
add("radam_weight_decay", optim.RAdam, weight_decay=0.1)
add("rmsprop_centered", optim.RMSprop, centered=True, momentum=0.9)
add("adagrad_decay", optim.Adagrad, lr_decay=0.1, weight_decay=0.1)


@scenario
def adam_capturable(compile_: Compile) -> Any:
    """The form for CUDA graphs, which eager refuses on a CPU."""
    return steps(
        compile_, lambda parameters: optim.Adam(parameters, capturable=compile_ is not eager)
    )[0]


@scenario
def adam_capturable_foreach(compile_: Compile) -> Any:
    """The same over lists."""
    return steps(
        compile_,
        lambda parameters: optim.Adam(parameters, capturable=compile_ is not eager, foreach=True),
    )[0]


@scenario
def adam_differentiable(compile_: Compile) -> Any:
    """A step that has a gradient itself."""
    start = torch.ones(3, requires_grad=True)
    parameter = start * 2
    optimizer = optim.Adam([parameter], differentiable=True)
    parameter.grad = torch.ones(3)
    compile_(optimizer.step)()
    parameter.sum().backward()
    return parameter.detach(), start.grad


@scenario
def adafactor(compile_: Compile) -> Any:
    """An optimizer with factored state."""
    return steps(compile_, lambda parameters: optim.Adafactor(parameters))


@scenario
def muon(compile_: Compile) -> Any:
    """Products inside of a step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 4, bias=False))
    optimizer = optim.Muon(model.parameters())
    step = compile_(optimizer.step)
    for number in range(STEPS):
        gradients(list(model.parameters()), number)
        step()
    return dict(model.state_dict())


@scenario
def sparse_adam(compile_: Compile) -> Any:
    """Sparse gradients."""
    torch.manual_seed(0)
    table = nn.Embedding(6, 4, sparse=True)
    optimizer = optim.SparseAdam(table.parameters())
    step = compile_(optimizer.step)
    for _ in range(STEPS):
        optimizer.zero_grad()
        table(torch.tensor([1, 3])).sum().backward()
        step()
    return dict(table.state_dict())


@scenario
def lbfgs_closure(compile_: Compile) -> Any:
    """An optimizer that needs a closure."""
    model = network()
    optimizer = optim.LBFGS(model.parameters(), max_iter=3)
    x = torch.randn(6, 4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss

    step = compile_(optimizer.step)
    losses = [step(closure).detach() for _ in range(2)]
    return losses, dict(model.state_dict())


@scenario
def sgd_closure(compile_: Compile) -> Any:
    """A closure, where none is needed."""
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(6, 4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss

    step = compile_(optimizer.step)
    losses = [step(closure).detach() for _ in range(STEPS)]
    return losses, outcome(model, optimizer)


@scenario
def function_that_steps(compile_: Compile) -> Any:
    """``step`` and ``zero_grad`` in a function of the user's."""
    model = network()
    optimizer = optim.AdamW(model.parameters())

    @compile_
    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    for number in range(STEPS):
        gradients(list(model.parameters()), number)
        update()
    return outcome(model, optimizer), [p.grad for p in model.parameters()]


@scenario
def learning_rate_changes(compile_: Compile) -> Any:
    """A scheduler writes another float before every step."""
    model = network()
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    step = compile_(optimizer.step)
    for number in range(12):
        gradients(list(model.parameters()), number)
        step()
        scheduler.step()
    return outcome(model, optimizer)


@scenario
def tensor_learning_rate_changes(compile_: Compile) -> Any:
    """A scheduler writes into the tensor that is the learning rate."""
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)

    @compile_
    def update() -> None:
        optimizer.step()

    for number in range(8):
        gradients(list(model.parameters()), number)
        update()
        scheduler.step()
    return outcome(model, optimizer)


@scenario
def scheduler_inside(compile_: Compile) -> Any:
    """The scheduler's own step is compiled too."""
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=torch.tensor(0.1))
    scheduler = optim.lr_scheduler.LinearLR(optimizer, total_iters=5)

    @compile_
    def update() -> None:
        optimizer.step()
        scheduler.step()

    for number in range(4):
        gradients(list(model.parameters()), number)
        update()
    return outcome(model, optimizer)


@scenario
def parameter_groups(compile_: Compile) -> Any:
    """Groups with options of their own."""
    model = network()
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() == 1], "lr": 0.5},
    ]
    optimizer = optim.SGD(groups, lr=0.1, momentum=0.9)
    step = compile_(optimizer.step)
    for number in range(STEPS):
        gradients(list(model.parameters()), number)
        step()
    return outcome(model, optimizer)


@scenario
def some_without_gradients(compile_: Compile) -> Any:
    """Parameters that have no gradient are left alone."""
    model = network()
    optimizer = optim.Adam(model.parameters())
    step = compile_(optimizer.step)
    for number in range(STEPS):
        gradients(list(model.parameters())[::2], number)
        step()
    return outcome(model, optimizer)


@scenario
def clip_grad_norm(compile_: Compile) -> Any:
    """Gradients clipped by their norm, then a step."""
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile_
    def update() -> Tensor:
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return norm

    norms = []
    for number in range(STEPS):
        gradients(list(model.parameters()), number)
        norms.append(update())
    return norms, outcome(model, optimizer)


@scenario
def clip_grad_value(compile_: Compile) -> Any:
    """Gradients clipped by their values."""
    model = network()
    clip = compile_(lambda: nn.utils.clip_grad_value_(model.parameters(), 0.05))
    for number in range(STEPS):
        gradients(list(model.parameters()), number)
        clip()
    return [p.grad for p in model.parameters()]


@scenario
def total_norm(compile_: Compile) -> Any:
    """The norm of all gradients."""
    model = network()
    gradients(list(model.parameters()), 0)
    norm = compile_(lambda: nn.utils.get_total_norm([p.grad for p in model.parameters()]))
    return [norm() for _ in range(2)]


@scenario
def grad_scaler(compile_: Compile) -> Any:
    """A GradScaler on the CPU."""
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    @compile_
    def update() -> None:
        scaler.step(optimizer)
        scaler.update()

    for number in range(STEPS):
        scaler.scale(torch.ones(()))
        gradients(list(model.parameters()), number)
        update()
    return outcome(model, optimizer), scaler.get_scale()


@scenario
def moving_average(compile_: Compile) -> Any:
    """An average of parameters, written by hand."""
    model, average = network(), network()

    @compile_
    def update() -> None:
        with torch.no_grad():
            for own, new in zip(average.parameters(), model.parameters(), strict=True):
                own.lerp_(new, 0.1)

    for number in range(STEPS):
        gradients(list(model.parameters()), number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad)
        update()
    return dict(average.state_dict())


@scenario
def averaged_model(compile_: Compile) -> Any:
    """The AveragedModel of torch.optim.swa_utils."""
    model = network()
    average = optim.swa_utils.AveragedModel(
        model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    update = compile_(average.update_parameters)
    for _ in range(STEPS):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        update(model)
    return dict(average.state_dict())


@scenario
def averaged_model_swa(compile_: Compile) -> Any:
    """The plain average of torch.optim.swa_utils."""
    model = network()
    average = optim.swa_utils.AveragedModel(model)
    update = compile_(average.update_parameters)
    for _ in range(STEPS):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        update(model)
    return dict(average.state_dict())


@scenario
def step_hooks(compile_: Compile) -> Any:
    """Hooks before and after a step."""
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    step = compile_(optimizer.step)
    for number in range(STEPS):
        gradients(list(model.parameters()), number)
        step()
    return seen, outcome(model, optimizer)


class SignDescent(optim.Optimizer):
    """An optimizer of the user's own."""

    def __init__(self, parameters: Any, rate: float) -> None:
        super().__init__(parameters, {"rate": rate})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Go against the sign of the gradients, which are averaged."""
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["mean"], state["count"] = torch.zeros_like(parameter), 0
                state["count"] += 1
                state["mean"].mul_(0.9).add_(parameter.grad, alpha=0.1)
                parameter.add_(state["mean"].sign(), alpha=-group["rate"])


@scenario
def own_optimizer(compile_: Compile) -> Any:
    """A subclass of Optimizer."""
    return steps(compile_, lambda parameters: SignDescent(parameters, 0.01))


@scenario
def state_restored(compile_: Compile) -> Any:
    """A state_dict that is loaded between steps."""
    model = network()
    optimizer = optim.Adam(model.parameters())
    step = compile_(optimizer.step)
    gradients(list(model.parameters()), 0)
    step()
    saved = copy.deepcopy(optimizer.state_dict())
    for number in range(2):
        gradients(list(model.parameters()), number)
        step()
    optimizer.load_state_dict(saved)
    for number in range(2):
        gradients(list(model.parameters()), number)
        step()
    return outcome(model, optimizer)


@scenario
def half_parameters(compile_: Compile) -> Any:
    """Parameters of bfloat16."""
    model = network().bfloat16()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = compile_(optimizer.step)
    for number in range(STEPS):
        gradients(list(model.parameters()), number)
        step()
    return outcome(model, optimizer)
