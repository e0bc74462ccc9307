"""benchmarks.language.user_training: what people write around training: steps, averages, hooks, schedules, adapters."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.language.program import Compile, scenario


def net(*sizes: int) -> nn.Sequential:
    """A small network with fixed weights."""
    torch.manual_seed(1)
    sizes = sizes or (4, 8, 3)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return nn.Sequential(*(item for layer in layers for item in (layer, nn.Tanh())))


def data(count: int = 3) -> list[tuple[Tensor, Tensor]]:
    """Batches."""
    torch.manual_seed(2)
    return [(torch.randn(5, 4), torch.randint(0, 3, (5,))) for _ in range(count)]


@scenario
def loop_over_batches(compile_: Compile) -> Any:
    """The model is compiled, the loop is Python's."""
    model = net()
    compiled, optimizer = compile_(model), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for x, y in data():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@scenario
def loss_in_the_step(compile_: Compile) -> Any:
    """Forward and loss in one function, label smoothing and weight decay by hand."""
    model = net()

    def run(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        return loss + 1e-2 * sum(p.pow(2).sum() for p in model.parameters())

    compiled = compile_(run)
    for x, y in data():
        compiled(x, y).backward()
    return [p.grad for p in model.parameters()]


@scenario
def accumulated_gradients(compile_: Compile) -> Any:
    """Two micro batches for each step."""
    model = net()
    compiled, optimizer = compile_(model), torch.optim.Adam(model.parameters())
    for index, (x, y) in enumerate(data(4)):
        (F.cross_entropy(compiled(x), y) / 2).backward()
        if index % 2:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return model


@scenario
def averaged_weights(compile_: Compile) -> Any:
    """An exponential average in place, compiled."""
    model = net()
    average = copy.deepcopy(model)

    @compile_
    @torch.no_grad()
    def update(decay: float) -> None:
        for a, p in zip(average.parameters(), model.parameters(), strict=True):
            a.mul_(decay).add_(p, alpha=1 - decay)

    for decay in (0.9, 0.99):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1)
        update(decay)
    return average


@scenario
def averaged_by_lerp(compile_: Compile) -> Any:
    """The same over state dicts with foreach."""
    model, average = net(), net()

    @compile_
    def update() -> None:
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.1)

    update()
    update()
    return average


@scenario
def autocast_step(compile_: Compile) -> Any:
    """bfloat16 forward, float loss."""
    model = net()

    def run(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        return F.cross_entropy(out.float(), y)

    x, y = data()[0]
    return compile_(run)(x, y).item() > 0, compile_(run)(x, y).dtype


@scenario
def frozen_backbone(compile_: Compile) -> Any:
    """Half of the parameters get no gradient, and are detached."""
    body, head = net(4, 6), nn.Linear(6, 3)
    torch.nn.init.ones_(head.weight)
    torch.nn.init.zeros_(head.bias)
    for p in body.parameters():
        p.requires_grad_(False)

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            features = body(x)
        return head(features.detach()).sum()

    compile_(run)(data()[0][0]).backward()
    return head.weight.grad, [p.grad for p in body.parameters()]


@scenario
def low_rank_adapter(compile_: Compile) -> Any:
    """An adapter around a layer that is frozen, scaled by a property."""

    class Adapter(nn.Module):
        def __init__(self, base: nn.Linear, rank: int) -> None:
            super().__init__()
            self.base, self.alpha, self.rank = base.requires_grad_(False), 4.0, rank
            self.a = nn.Parameter(torch.ones(rank, base.in_features))
            self.b = nn.Parameter(torch.full((base.out_features, rank), 0.5))
            self.merged = False

        @property
        def scale(self) -> float:
            return self.alpha / self.rank

        def forward(self, x: Tensor) -> Tensor:
            out = self.base(x)
            return out if self.merged else out + (x @ self.a.T @ self.b.T) * self.scale

    torch.manual_seed(0)
    adapter = Adapter(nn.Linear(4, 3), 2)
    compiled = compile_(adapter)
    compiled(data()[0][0]).sum().backward()
    return adapter.a.grad, adapter.b.grad, adapter.base.weight.grad


@scenario
def parameter_lists(compile_: Compile) -> Any:
    """ParameterList, ParameterDict and ModuleDict, by index, name and iteration."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scales = nn.ParameterList(
                [nn.Parameter(torch.full((4,), i + 1.0)) for i in range(2)]
            )
            self.named = nn.ParameterDict({"bias": nn.Parameter(torch.ones(4))})
            self.heads = nn.ModuleDict({"a": nn.Tanh(), "b": nn.ReLU()})

        def forward(self, x: Tensor, head: str) -> Tensor:
            for scale in self.scales:
                x = x * scale
            return self.heads[head](x + self.named["bias"]) * len(self.scales)

    model = Mixed()
    compiled = compile_(model)
    x = data()[0][0]
    return [compiled(x, head) for head in ("a", "b", "a")]


@scenario
def forward_hooks(compile_: Compile) -> Any:
    """Features taken by hooks."""
    model, features = net(), OrderedDict()

    def taking(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            features[name] = output.detach()

        return hook

    handles = [layer.register_forward_hook(taking(name)) for name, layer in model.named_children()]
    out = compile_(model)(data()[0][0])
    for handle in handles:
        handle.remove()
    return out, dict(features)


@scenario
def pre_hooks_that_change(compile_: Compile) -> Any:
    """Hooks that change arguments and results, with keywords."""
    model = net()
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model.register_forward_hook(lambda module, args, out: out + 1)
    compiled = compile_(model)
    return [compiled(x) for x, _ in data()]


@scenario
def gradient_hooks(compile_: Compile) -> Any:
    """Gradients scaled by hooks of parameters."""
    model = net()
    for p in model.parameters():
        p.register_hook(lambda grad: grad * 0.5)
    compile_(model)(data()[0][0]).sum().backward()
    return [p.grad for p in model.parameters()]


@scenario
def scheduled_by_hand(compile_: Compile) -> Any:
    """A cosine schedule with warmup gives the learning rate of a compiled step."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))

    def rate(step: int) -> float:
        return step / 2 if step < 2 else 0.5 * (1 + math.cos(math.pi * (step - 2) / 4))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    step = compile_(optimizer.step)
    for x, y in data(4):
        F.cross_entropy(model(x), y).backward()
        step()
        schedule.step()
    return model


@scenario
def straight_through(compile_: Compile) -> Any:
    """Rounding with the gradient of the identity, and a custom function that clips it."""

    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, bound: float) -> Tensor:
            ctx.bound = bound
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad.clamp(-ctx.bound, ctx.bound), None

    def run(x: Tensor) -> Tensor:
        rounded = x + (x.round() - x).detach()
        return Clipped.apply(rounded * 3, 0.5).pow(2).sum()

    x = torch.linspace(-2, 2, 5).requires_grad_()
    compile_(run)(x).backward()
    return x.grad


@scenario
def reparameterized(compile_: Compile) -> Any:
    """A variational autoencoder's loss."""
    encoder, decoder = net(4, 4), net(2, 4)

    def run(x: Tensor) -> Tensor:
        mean, log_variance = encoder(x).chunk(2, -1)
        z = mean + torch.exp(0.5 * log_variance) * torch.ones_like(mean)
        divergence = -0.5 * torch.sum(1 + log_variance - mean**2 - log_variance.exp())
        return F.mse_loss(decoder(z), x) + divergence

    compile_(run)(data()[0][0]).backward()
    return [p.grad for p in encoder.parameters()]


@scenario
def contrastive(compile_: Compile) -> Any:
    """The loss of pairs, with a temperature that is learned."""
    scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def run(a: Tensor, b: Tensor) -> Tensor:
        a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
        logits = scale.exp().clamp(max=100) * a @ b.T
        wanted = torch.arange(len(a), device=a.device)
        return (F.cross_entropy(logits, wanted) + F.cross_entropy(logits.T, wanted)) / 2

    torch.manual_seed(0)
    compile_(run)(torch.randn(4, 3), torch.randn(4, 3)).backward()
    return scale.grad


@scenario
def gradient_penalty(compile_: Compile) -> Any:
    """A gradient of the input in the loss."""
    model = net(4, 8, 1)

    def run(x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        out = model(x).sum()
        (grad,) = torch.autograd.grad(out, x, create_graph=True)
        return ((grad.norm(dim=1) - 1) ** 2).mean()

    compile_(run)(data()[0][0]).backward()
    return [p.grad for p in model.parameters()]


@scenario
def per_sample_norms(compile_: Compile) -> Any:
    """Gradients of each sample by vmap over grad."""
    model = net()
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        out = torch.func.functional_call(model, params, (x[None],))
        return F.cross_entropy(out, y[None])

    run = compile_(torch.func.vmap(torch.func.grad(loss), (None, 0, 0)))
    grads = run(params, *data()[0])
    return {name: grad.flatten(1).norm(dim=1) for name, grad in grads.items()}


@scenario
def switched_modes(compile_: Compile) -> Any:
    """train, eval and back, with batch norm and dropout."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.0))
    compiled = compile_(model)
    x, outs = data()[0][0], []
    for train in (True, False, True):
        compiled.train(train)
        with torch.set_grad_enabled(train):
            outs.append(compiled(x).detach())
    return outs, model


@scenario
def temporary_state(compile_: Compile) -> Any:
    """A context manager of the user's that changes a module and puts it back."""
    model = net()

    @contextlib.contextmanager
    def scaled(layer: nn.Module, factor: float) -> Iterator[None]:
        before = getattr(layer, "factor", 1.0)
        layer.factor = factor  # type: ignore[assignment]
        try:
            yield
        finally:
            layer.factor = before  # type: ignore[assignment]

    def run(x: Tensor) -> Tensor:
        with scaled(model, 3.0):
            return model(x) * model.factor

    compiled = compile_(run)
    return compiled(data()[0][0]), model.factor


@scenario
def cached_keys(compile_: Compile) -> Any:
    """A cache that grows by one row each call."""

    class Cache:
        def __init__(self) -> None:
            self.keys: list[Tensor] = []

        def update(self, key: Tensor) -> Tensor:
            self.keys.append(key)
            return torch.cat(self.keys, 0)

    cache = Cache()

    def run(x: Tensor) -> Tensor:
        keys = cache.update(x)
        return (x @ keys.T).softmax(-1) @ keys

    compiled = compile_(run)
    return [compiled(torch.full((1, 4), float(i))) for i in range(4)]


@scenario
def buffers_counted(compile_: Compile) -> Any:
    """Buffers changed in a forward: a count and a running mean, and one registered at the first call."""

    class Tracked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.long))
            self.register_buffer("mean", torch.zeros(4))
            self.table: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.table is None:
                self.table = torch.arange(4.0)
            self.count += 1
            self.mean.lerp_(x.mean(0), 0.1)
            return x - self.mean + self.table

    model = Tracked()
    compiled = compile_(model)
    return [compiled(x) for x, _ in data()], model


@scenario
def early_layers_dropped(compile_: Compile) -> Any:
    """Layers left out by a number, as stochastic depth does outside of training."""
    layers = nn.ModuleList(net(4, 4) for _ in range(3))

    def run(x: Tensor, depth: int) -> Tensor:
        for layer in layers[:depth]:
            x = x + layer(x)
        return x

    compiled = compile_(run)
    return [compiled(data()[0][0], depth) for depth in (3, 2, 3)]


@scenario
def weight_norms(compile_: Compile) -> Any:
    """Parametrizations and spectral norms."""
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    compiled = compile_(layer)
    compiled(data()[0][0]).sum().backward()
    return [p.grad for p in layer.parameters()]


@scenario
def tied_weights(compile_: Compile) -> Any:
    """An embedding whose table is the head's."""
    torch.manual_seed(0)
    table = nn.Embedding(6, 4)
    head = nn.Linear(4, 6, bias=False)
    head.weight = table.weight
    model = nn.Sequential(table, nn.Tanh(), head)
    ids = torch.tensor([[1, 2, 3]])
    F.cross_entropy(compile_(model)(ids)[0], ids[0]).backward()
    return table.weight.grad


@scenario
def checkpointed(compile_: Compile) -> Any:
    """Activation checkpoints in a loop."""
    layers = nn.ModuleList(net(4, 4) for _ in range(2))

    def run(x: Tensor) -> Tensor:
        for layer in layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        return x.sum()

    compile_(run)(data()[0][0]).backward()
    return [p.grad for p in layers.parameters()]


@scenario
def nan_guard(compile_: Compile) -> Any:
    """A step that is left out when the loss is not finite: without a branch."""
    weight = nn.Parameter(torch.ones(4))

    def run(x: Tensor) -> Tensor:
        loss = (x * weight).log().sum()
        return torch.where(torch.isfinite(loss), loss, torch.zeros_like(loss))

    compiled = compile_(run)
    return [compiled(x) for x in (torch.ones(4), torch.zeros(4))]


@scenario
def scaled_gradients(compile_: Compile) -> Any:
    """GradScaler on a CPU, the model compiled."""
    model = net()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    compiled, optimizer = compile_(model), torch.optim.SGD(model.parameters(), 0.1)
    for x, y in data():
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(compiled(x), y)).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    return model, scaler.get_scale()
