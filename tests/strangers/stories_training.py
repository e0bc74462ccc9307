"""Sessions about training: gradients, steps, modes, functions of autograd, meta-learning."""

import contextlib

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.strangers.sessions import session, tried


def ones(*shape):
    return torch.arange(1.0, 1.0 + int(torch.tensor(shape).prod())).reshape(shape)


def linear(n=2, m=2):
    made = nn.Linear(n, m)
    with torch.no_grad():
        made.weight.copy_(ones(m, n) / 10)
        made.bias.copy_(ones(m))
    return made


@session
def no_grad_in_all_forms(wrap):
    @torch.no_grad()
    def frozen(x):
        return x * 2

    @torch.inference_mode()
    def inferred(x):
        return x * 3

    @torch.no_grad()
    def numbers(x):
        yield x * 2, torch.is_grad_enabled()
        yield x * 3, torch.is_grad_enabled()

    def step(x):
        a = frozen(x)
        with torch.no_grad():
            b = x * 4
            with torch.enable_grad():
                c = x * 5
        with torch.set_grad_enabled(x.shape[0] > 2):
            d = x * 6
        return (
            a,
            b,
            c,
            d,
            [*numbers(x)],
            torch.is_grad_enabled(),
            inferred(x).is_inference(),
            x.detach().requires_grad_(),
        )

    f = wrap(step)
    for n in (2, 3):
        yield f(ones(n).requires_grad_())
    with torch.no_grad():
        yield f(ones(2).requires_grad_()), torch.is_grad_enabled()
    with torch.inference_mode():
        yield wrap(lambda x: x * 2)(ones(2)).is_inference()

    def leaves_it_off(x):
        torch.set_grad_enabled(False)
        return x * 2

    try:
        yield wrap(leaves_it_off)(ones(2).requires_grad_()), torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


@session
def autocast_nested(wrap):
    layer = linear(4, 4)

    def step(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = layer(x)
            with torch.autocast("cpu", enabled=False):
                b = layer(x)
            c = a.float() @ x.t()
        return a, b, c, torch.is_autocast_enabled("cpu")

    f = wrap(step)
    yield f(ones(2, 4) / 8)
    g = wrap(lambda x: layer(x))
    for _ in range(2):
        yield g(ones(2, 4) / 8)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            yield g(ones(2, 4) / 8).dtype
        with torch.autocast("cpu", dtype=torch.float16):
            yield g(ones(2, 4) / 8).dtype


@session
def detach_and_requires_grad(wrap):
    def step(x, w):
        y = x.detach().clone().requires_grad_()
        z = (y * w).sum()
        (g,) = torch.autograd.grad(z, y, create_graph=True)
        return g.sum() * 2 + x.sum(), y.is_leaf, g.requires_grad

    f = wrap(step)
    for grad in (True, False):
        x, w = ones(2).requires_grad_(), ones(2).requires_grad_(grad)
        out = f(x, w)
        out[0].backward()
        yield out[1:], x, w

    def sets(x):
        x.requires_grad_()
        return (x * x).sum()

    x = ones(2)
    wrap(sets)(x).backward()
    yield x

    def takes_data(x):
        x.data.mul_(2)
        y = x * 3
        x.data = torch.zeros(2)
        return y

    x = ones(2).requires_grad_()
    y = tried(wrap(takes_data), x)
    yield y, x


@session
def moving_averages(wrap):
    state = {"mean": None, "n": 0}

    def step(x, decay=0.9):
        with torch.no_grad():
            if state["mean"] is None:
                state["mean"] = x.clone()
            else:
                state["mean"].lerp_(x, 1 - decay)
            state["n"] += 1
        return x - state["mean"] / (1 - decay ** state["n"])

    f = wrap(step)
    for k in range(1, 5):
        yield f(ones(2) * k), state
    yield f(ones(2), decay=0.5), state


@session
def accumulation_and_clipping(wrap):
    model = nn.Sequential(linear(), nn.Tanh(), linear())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def loss(x, y):
        return functional.mse_loss(model(x), y) / 2

    f = wrap(loss)
    for k in range(4):
        value = f(ones(3, 2) + k, ones(3, 2))
        value.backward()
        if k % 2:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            yield (
                value.detach(),
                norm,
                [p.grad.clone() for p in model.parameters()],
                list(model.parameters()),
            )
            optimizer.zero_grad(set_to_none=k == 1)

    def whole(x, y):
        optimizer.zero_grad()
        value = functional.mse_loss(model(x), y)
        value.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        return value.detach()

    g = wrap(whole)
    for k in range(3):
        yield g(ones(3, 2) + k, ones(3, 2)), [p.detach().clone() for p in model.parameters()]


@session
def adversarial_steps(wrap):
    generator, critic = linear(), nn.Sequential(linear(), nn.Tanh(), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        critic[2].weight.copy_(ones(1, 2))
    g_opt, c_opt = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (generator, critic))

    def critic_loss(real, noise):
        fake = generator(noise).detach()
        return critic(fake).mean() - critic(real).mean()

    def generator_loss(noise):
        return -critic(generator(noise)).mean()

    f, g = wrap(critic_loss), wrap(generator_loss)
    for k in range(2):
        c_opt.zero_grad()
        f(ones(2, 2), ones(2, 2) + k).backward()
        c_opt.step()
        g_opt.zero_grad()
        for p in critic.parameters():
            p.requires_grad_(False)
        g(ones(2, 2) + k).backward()
        for p in critic.parameters():
            p.requires_grad_(True)
        g_opt.step()
        yield list(generator.parameters()), list(critic.parameters())

    def penalty(real, fake):
        mixed = (real + fake).requires_grad_()
        (grad,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        return ((grad.norm(dim=1) - 1) ** 2).mean()

    h = wrap(penalty)
    for k in range(2):
        critic.zero_grad()
        h(ones(2, 2), ones(2, 2) * k).backward()
        yield list(critic.parameters())


@session
def checkpoints(wrap):
    block, log = nn.Sequential(linear(), nn.Tanh(), nn.Dropout(0.5)), []

    def noted(x):
        log.append(1)
        return block(x)

    def step(x, reentrant):
        y = checkpoint(noted, x, use_reentrant=reentrant)
        return checkpoint(lambda a, b: a * b, y, x, use_reentrant=False).sum()

    f = wrap(step)
    for reentrant in (False, False, True):
        torch.manual_seed(3)
        block.zero_grad()
        x = ones(2, 2).requires_grad_()
        y = f(x, reentrant)
        before = len(log)
        y.backward()
        yield y.detach(), x, [p.grad for p in block.parameters()], before >= 1, torch.rand(1)
        log.clear()


@session
def higher_derivatives(wrap):
    def step(x):
        y = (x**3).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
        return y, g, h

    f = wrap(step)
    for n in (2, 3):
        x = ones(n).requires_grad_()
        y, g, h = f(x)
        h.sum().backward()
        yield y, g, h, x
    inner = wrap(lambda x: (x.sin() * x).sum())
    x = ones(2).requires_grad_()
    (g,) = torch.autograd.grad(inner(x), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    yield g, h
    yield torch.autograd.functional.jacobian(wrap(lambda x: x**2), ones(2))
    yield tried(lambda: torch.autograd.grad(inner(ones(2)), ones(2)))


@session
def functions_of_autograd(wrap):
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k, name=None):
            ctx.save_for_backward(x)
            ctx.k, ctx.name = k, name
            out, mask = x * k, x > 1
            ctx.mark_non_differentiable(mask)
            return out, mask

        @staticmethod
        def backward(ctx, g, _):
            (x,) = ctx.saved_tensors
            return (
                (g * ctx.k * (2 if ctx.name else 1) + x * 0 if ctx.needs_input_grad[0] else None),
                None,
                None,
            )

    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *rest):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g, None, None

    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise RuntimeError("no way back")

    def step(x, k, name):
        y, mask = Scale.apply(x, k, name)
        return (Straight.apply(y, 1, "a") * mask).sum(), mask

    f = wrap(step)
    for k, name in ((2.0, None), (3.0, "n"), (2.0, "n"), (2.0, None)):
        x = ones(3).requires_grad_()
        y, mask = f(x, k, name)
        y.backward()
        yield y.detach(), mask, x
    Scale.backward = staticmethod(lambda ctx, g, _: (g * 100, None, None))
    x = ones(3).requires_grad_()
    f(x, 2.0, None)[0].backward()
    yield x
    yield tried(
        lambda: wrap(lambda x: Raises.apply(x * 2).sum())(ones(2).requires_grad_()).backward()
    )


@session
def inner_loops(wrap):
    model = linear()

    def adapt(x, y, steps):
        weights = {k: v for k, v in model.named_parameters()}
        for _ in range(steps):
            loss = functional.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
            grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {k: v - 0.1 * g for (k, v), g in zip(weights.items(), grads, strict=True)}
        return functional.mse_loss(torch.func.functional_call(model, weights, (x,)), y)

    f = wrap(adapt)
    for steps in (0, 1, 2):
        model.zero_grad()
        value = f(ones(2, 2) / 4, ones(2, 2), steps)
        value.backward()
        yield value.detach(), list(model.parameters())


@session
def default_types(wrap):
    def step(n):
        return (
            torch.ones(n) * 0.5,
            torch.tensor(1.5),
            torch.arange(n),
            torch.tensor([1, 2]) / 2,
            torch.zeros(n).dtype,
        )

    f = wrap(step)
    yield f(2)
    torch.set_default_dtype(torch.float64)
    try:
        yield f(2)
    finally:
        torch.set_default_dtype(torch.float32)
    yield f(2), f(3)
    g = wrap(lambda x: x.to(torch.get_default_dtype()) + torch.ones(2))
    yield g(ones(2).half())
    with torch.device("meta"):
        yield f(2)[0].device
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield wrap(lambda x: x * torch.get_num_threads())(ones(2))
    torch.set_num_threads(threads)


@session
def in_place_chains(wrap):
    def step(x, mask):
        y = x.clone()
        v = y[1:]
        v.add_(10)
        y[mask] = -1
        y[0], y[-1] = y[-1].clone(), y[0].clone()
        w = y.view(-1)
        w.clamp_(max=8)
        x.copy_(y.flip(0))
        x[..., 0] += 5
        return y, v, w, v._base is y

    f = wrap(step)
    for n in (3, 4):
        x = ones(n)
        yield f(x, ones(n) > 2), x
    x = ones(3).requires_grad_()
    yield tried(f, x, ones(3) > 2)
    x = (ones(3).requires_grad_()) * 1
    yield f(x, ones(3) > 2)[0], x


@session
def data_dependent_control(wrap):
    def step(x):
        total = x.sum()
        if total > 5:
            x = x * 2
        n = int(total) % 3
        while n > 0:
            x = x + n
            n -= 1
        picked = x[x > 3]
        for v in x.tolist():
            total = total + v
        return x, picked, picked.numel(), total, len(x), bool((x > 100).any()), x.max().item()

    f = wrap(step)
    for x in (ones(2), ones(3), ones(2) * 0, ones(3) - 10, ones(4)):
        yield f(x)


@session
def gradients_of_many_results(wrap):
    def step(x, y):
        a, b = x * y, x + y
        return {"a": a, "list": [b, a.detach()], "same": a, "in": x, "view": x[:1]}

    f = wrap(step)
    x, y = ones(2).requires_grad_(), ones(2).requires_grad_()
    out = f(x, y)
    yield out["a"] is out["same"], out["in"] is x, [out["list"][1].requires_grad]
    (out["a"].sum() + out["view"].sum()).backward()
    yield x, y
    out = f(x, ones(2))
    out["list"][0].sum().backward()
    yield x, y
    out = f(x, y)
    out["a"].sum().backward(retain_graph=True)
    out["a"].sum().backward()
    yield x, y, tried(lambda: out["a"].sum().backward())


@session
def saved_tensors_and_anomalies(wrap):
    log = []
    f = wrap(lambda x: (x.exp() * x).sum())
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (log.append(t.shape), t * 2)[1], lambda t: t
    ):
        x = ones(2).requires_grad_()
        y = f(x)
    y.backward()
    yield len(log) > 0
    x = ones(2).requires_grad_()
    with (
        torch.autograd.set_detect_anomaly(True, check_nan=False),
        contextlib.suppress(RuntimeError),
    ):
        f(x).backward()
    yield x
    w = ones(2).requires_grad_()
    y = wrap(lambda w: (w * w).sum())(w)
    with torch.no_grad():
        w.add_(1)
    yield tried(y.backward)


@session
def schedules_and_parameter_groups(wrap):
    model = linear()
    optimizer = torch.optim.Adam(
        [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.5}], lr=0.1
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    step = wrap(lambda: optimizer.step())
    for _ in range(3):
        model.zero_grad()
        model(ones(1, 2)).sum().backward()
        step()
        schedule.step()
        yield list(model.parameters()), [g["lr"] for g in optimizer.param_groups]
    optimizer.param_groups[0]["weight_decay"] = 0.3
    optimizer.add_param_group({"params": [nn.Parameter(ones(1))]})
    model(ones(1, 2)).sum().backward()
    step()
    yield list(model.parameters()), len(optimizer.state)
