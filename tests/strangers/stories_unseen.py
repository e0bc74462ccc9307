"""Sessions of users who lean on Python's rules for classes, and on tensors that live longer than a call."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import io
import pickle
import typing

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.strangers.sessions import session, tried


def ones(*shape):
    return torch.arange(1.0, 1.0 + int(torch.tensor(shape).prod())).reshape(shape)


class Scaled:
    """A descriptor that counts how often it is read."""

    def __init__(self, factor):
        self.factor, self.reads = factor, 0

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        self.reads += 1
        return getattr(instance, self.name) * self.factor

    def __set__(self, instance, value):
        setattr(instance, self.name, value / self.factor)


@session
def descriptors_beside_tensors(wrap):
    class Body:
        mass = Scaled(2.0)
        place = Scaled(10)

        def __init__(self, mass, place):
            self.mass, self.place, self.log = mass, place, []

        @property
        def energy(self):
            self.log.append("energy")
            return (self.mass * self.place**2).sum()

        @energy.setter
        def energy(self, value):
            self.mass = self.mass * (value / self.energy)

        @energy.deleter
        def energy(self):
            self.mass = torch.zeros_like(self.mass)

    def step(body, x):
        body.place = body.place + x
        first = body.energy
        body.energy = first * 2
        if x.shape[0] == 3:
            del body.energy
        return first, body.energy, Body.__dict__["mass"].reads

    f, body = wrap(step), Body(ones(2), ones(2))
    for n in (2, 2, 2):
        yield f(body, ones(n)), vars(body), Body.mass.reads
    Body.__dict__["place"].factor = 3
    yield f(body, ones(2)), vars(body)
    Body.mass.factor = 5
    yield f(body, ones(2)), vars(body)
    three = Body(ones(3), ones(3))
    yield f(three, ones(3)), vars(three)


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    values: torch.Tensor
    weight: float = 0.5
    names: tuple = ("a", "b")

    def moved(self, by):
        return dataclasses.replace(self, values=self.values + by, weight=self.weight * 2)

    def __post_init__(self):
        object.__setattr__(self, "weight", float(self.weight))


@dataclasses.dataclass(order=True)
class Ranked:
    rank: int
    values: torch.Tensor = dataclasses.field(compare=False, default_factory=lambda: ones(2))
    tags: list = dataclasses.field(default_factory=list, compare=False, repr=False)


@session
def frozen_and_ranked_dataclasses(wrap):
    def step(cell, x, others):
        moved = cell.moved(x)
        best = max(others)
        best.tags.append(len(best.tags))
        made = Ranked(best.rank + 1)
        others.append(made)
        others.sort(reverse=True)
        told = tried(setattr, moved, "weight", 3.0)[1:]
        return (
            moved,
            moved.values * moved.weight + best.values,
            told,
            repr(made)[:20],
            moved == cell,
        )

    def guarded(cell, x, others):
        moved = cell.moved(x)
        best = max(others)
        best.tags.append(len(best.tags))
        others.append(Ranked(best.rank + 1))
        others.sort(reverse=True)
        return moved, moved.values * moved.weight + best.values, dataclasses.asdict(moved)

    for body in (guarded, step):
        f, others = wrap(body), [Ranked(1), Ranked(3, ones(2) * 3)]
        cell = Cell(ones(2))
        for k in range(4):
            out = tried(f, cell, ones(2) * k, others)
            yield out, others
            if isinstance(out[0], Cell):
                cell = out[0] if k % 2 else Cell(ones(2), k, ("c",))


class Reading(typing.NamedTuple):
    value: torch.Tensor
    unit: str = "m"
    scale: float = 1.0

    @property
    def scaled(self):
        return self.value * self.scale

    def __add__(self, other):
        return Reading(self.value + other.value, self.unit + other.unit, self.scale)


@session
def named_tuples_with_defaults(wrap):
    def step(x, *readings, **named):
        total = functools.reduce(lambda a, b: a + b, readings, Reading(x))
        again = total._replace(scale=total.scale * 2, **named)
        value, unit, _ = again
        return again, again.scaled, unit * 2, value.sum(), total == total, again._asdict()

    f = wrap(step)
    yield f(ones(2))
    yield f(ones(2), Reading(ones(2)), Reading(ones(2) * 2, "s", 3.0))
    yield f(ones(2), Reading(ones(2)), Reading(ones(2) * 2, "t", 3.0), unit="kg")
    yield f(ones(3), Reading(ones(3), scale=0.0))


@session
def match_over_shapes(wrap):
    @dataclasses.dataclass
    class Point:
        x: torch.Tensor
        y: float = 0.0

    def step(value):
        match value:
            case torch.Tensor(shape=(n,)) if n > 2:
                return value.sum() * n
            case torch.Tensor(shape=(1, m) | (m, 1)):
                return value.flatten() + m
            case torch.Tensor(ndim=2, shape=(n, m)):
                return value.t() * (n - m)
            case [torch.Tensor() as first, *rest]:
                return first + len(rest)
            case {"x": torch.Tensor() as x, **others}:
                return x * 2, sorted(others)
            case Point(x=torch.Tensor(dtype=torch.float64) as x, y=0.0):
                return x - 1
            case Point(x, y):
                return x * y
            case (1 | 2) as number:
                return torch.full((2,), float(number))
            case str() | None:
                return torch.zeros(1)
            case _:
                return value

    f = wrap(step)
    for value in (ones(3), ones(2), ones(1, 4), ones(4, 1), ones(2, 3), ones(2, 2, 2)):
        yield f(value)
    yield f([ones(2), 1, 2]), f((ones(2),)), f({"x": ones(2), "b": 1, "a": 2}), f({"y": 1})
    yield f(Point(ones(2).double())), f(Point(ones(2), 3.0)), f(2), f("a"), f(None), f(2.5)


@session
def closures_over_loop_variables_too(wrap):
    def step(x):
        late = [lambda t: t * k for k in range(3)]  # noqa: B023
        early = [lambda t, k=k: t * k for k in range(3)]
        total = 0
        for k, (a, b) in enumerate(zip(late, early, strict=True)):

            def inner(t, a=a):
                nonlocal total
                total += k  # noqa: B023
                return a(t) + k  # noqa: B023

            x = inner(x) + b(x)
        return x, total, [g.__defaults__ for g in early]

    yield wrap(step)(ones(2))

    made = []
    for k in range(3):

        def scaled(x, seen=[]):  # noqa: B006
            seen.append(k)  # noqa: B023
            return x * k * len(seen)  # noqa: B023

        made.append(wrap(scaled))
    for f in (*made, *made):
        yield f(ones(2))
    k = 10
    yield made[0](ones(2))


@session
def default_arguments_that_are_changed(wrap):
    def step(x, memory={}, count=[0], scale=torch.ones(2)):  # noqa: B006, B008
        count[0] += 1
        memory[count[0]] = x * count[0]
        scale += 1
        return x * scale, len(memory), sum(memory.values())

    f = wrap(step)
    for n in range(3):
        yield f(ones(2) + n), step.__defaults__
    yield f(ones(2), {}), step.__defaults__
    step.__defaults__[1][0] = 10
    yield f(ones(2)), step.__defaults__


@session
def generators_with_send_too(wrap):
    def averager():
        total, count, answer = torch.zeros(2), 0, None
        try:
            while True:
                value = yield answer
                if value is None:
                    return total, count
                total, count = total + value, count + 1
                answer = total / count
        finally:
            log.append("closed")

    def outer(result):
        got = yield from averager()
        result.append(got)
        yield got[0] * 2

    log = []

    def step(x):
        result = []
        g = outer(result)
        next(g)
        first = g.send(x)
        second = g.send(x * 3)
        last = g.send(None)
        h = averager()
        next(h)
        h.send(x)
        told = None
        try:
            h.throw(ValueError("stop"))
        except ValueError as error:
            told = str(error)
        return first, second, last, result, told

    f = wrap(step)
    yield f(ones(2)), log
    yield f(ones(2) * 2), log
    g = averager()
    next(g)
    sends = wrap(lambda x: g.send(x * 2))
    yield sends(ones(2)), sends(ones(2) * 5)
    yield tried(g.send, None), log


@session
def context_managers_around_breaks(wrap):
    log = []

    @contextlib.contextmanager
    def scaled(by):
        log.append(("in", by))
        old = state["scale"]
        state["scale"] = old * by
        try:
            yield state["scale"]
        except KeyError as error:
            log.append(("swallowed", str(error)))
        finally:
            state["scale"] = old
            log.append(("out", by))

    state = {"scale": 1.0}

    def step(x, fail=False):
        with scaled(2) as a, scaled(3.0) as b:
            x = x * a
            print("inside", a, b)
            x = x + b
            if fail:
                raise KeyError("asked")
            x = x * 2
        return x * state["scale"], a

    f = wrap(step)
    for fail in (False, False, True, False):
        yield f(ones(2), fail), list(log), dict(state)
    state["scale"] = 5.0
    yield f(ones(3)), dict(state)

    def loops(x):
        for k in range(3):
            with contextlib.suppress(ZeroDivisionError), scaled(k + 1) as a:
                x = x + a
                if k == 1:
                    print(k)
                    x = x + 1 / 0
                if k == 2:
                    break
                x = x * 10
        else:
            x = x * 0
        return x

    yield wrap(loops)(ones(2)), log


@session
def nonlocal_counters_too(wrap):
    def counter(start=0):
        count, history = start, []

        def step(x):
            nonlocal count
            count += 1
            history.append(x.sum())
            if count % 3 == 0:
                print("third", count)
                count += 10
            return x * count, len(history)

        def look():
            return count, history

        def reset(to):
            nonlocal count
            count = to
            history.clear()

        return step, look, reset

    step, look, reset = counter()
    f = wrap(step)
    for _ in range(4):
        yield f(ones(2)), look()
    reset(-1)
    yield f(ones(2)), look()
    other, look_other, _ = counter(5)
    g = wrap(other)
    yield g(ones(2)), look_other(), look()


@session
def class_attributes_that_change(wrap):
    class Base:
        scale, table = 2.0, {"a": 1}

        def __call__(self, x):
            return x * self.scale + self.table["a"] + self.bias()

        def bias(self):
            return 0

    class Child(Base):
        pass

    child = Child()
    f = wrap(lambda x: child(x))
    yield f(ones(2))
    Base.scale = 3.0
    yield f(ones(2))
    Child.scale = 4.0
    yield f(ones(2))
    child.scale = torch.tensor(5.0)
    yield f(ones(2))
    del child.scale
    del Child.scale
    yield f(ones(2))
    Child.bias = lambda self: 7
    yield f(ones(2))
    child.bias = lambda: 8
    yield f(ones(2))
    Base.table = {"a": 100}
    yield f(ones(2))
    Child.table = {"a": torch.ones(2)}
    yield f(ones(2))

    class Other(Base):
        scale = property(lambda self: 9.0)

    child.__class__ = Other
    yield f(ones(2))
    Child.__bases__ = (Other,)
    child.__class__ = Child
    yield f(ones(2))

    def counts(x):
        Base.calls = getattr(Base, "calls", 0) + 1
        return x * Base.calls

    g = wrap(counts)
    yield g(ones(2)), g(ones(2)), Base.calls
    Base.calls = 10
    yield g(ones(2)), Base.calls
    del Base.calls
    yield g(ones(2)), Base.calls


@session
def hooks_that_come_and_go(wrap):
    model, log = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)), []
    for p in model.parameters():
        nn.init.constant_(p, 0.25)
    f = wrap(model)

    def run():
        model.zero_grad()
        out = f(ones(2, 2))
        out.sum().backward()
        return out, [p.grad for p in model.parameters()], [str(entry) for entry in log]

    yield run()
    first = model[0].register_forward_hook(lambda m, i, o: log.append("forward") or o * 2)
    yield run()
    second = model[2].register_forward_pre_hook(lambda m, i: (log.append("pre") or i[0] + 1,))
    yield run()
    first.remove()
    yield run()
    third = model[0].register_full_backward_hook(
        lambda m, gi, go: log.append(("backward", tuple(go[0].shape)))
    )
    yield run()
    fourth = model.register_forward_hook(
        lambda m, a, kw, o: o * kw.get("by", 3), with_kwargs=True, always_call=True
    )
    yield run()
    for handle in (second, third, fourth):
        handle.remove()
    yield run()
    everywhere = nn.modules.module.register_module_forward_hook(lambda m, i, o: o + 1)
    try:
        yield run()
    finally:
        everywhere.remove()
    yield run()
    handle = model[0].weight.register_hook(lambda g: g * 10)
    yield run()
    handle.remove()
    handle = model[0].weight.register_post_accumulate_grad_hook(
        lambda p: log.append(float(p.grad.sum()))
    )
    yield run()
    handle.remove()
    yield run()


@session
def buffers_and_parameters_at_run_time(wrap):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(ones(2))
            self.extra = None

        def forward(self, x):
            if not hasattr(self, "seen"):
                self.register_buffer("seen", torch.zeros(2))
            self.seen += x
            self.last = x * 2
            y = x * self.w + self.seen
            return y if self.extra is None else y + self.extra

    model = Model()
    f = wrap(model)
    yield f(ones(2)), model, sorted(model.state_dict())
    yield f(ones(2)), model
    model.w = nn.Parameter(ones(2) * 3)
    yield f(ones(2)), model
    model.w.data = ones(2) * 4
    yield f(ones(2)), model
    model.extra = nn.Parameter(ones(2))
    out = f(ones(2))
    out.sum().backward()
    yield out, model, [p.grad for p in model.parameters()], [n for n, _ in model.named_parameters()]
    del model.extra
    model.extra = torch.ones(1)
    yield f(ones(2)), model, sorted(model.state_dict())
    model.load_state_dict({"w": ones(2) * 9, "seen": ones(2)}, strict=False)
    yield f(ones(2)), model
    model.seen = None
    yield tried(f, ones(2))[1:]
    model.seen = torch.zeros(2, dtype=torch.float64)
    yield f(ones(2)), model
    model.double()
    yield f(ones(2)), model
    model.to(torch.bfloat16)
    yield f(ones(2)), model
    model.requires_grad_(False)
    yield f(ones(2)), model


@session
def grad_modes_of_callers(wrap):
    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, 0.5)
    nn.init.zeros_(layer.bias)

    def step(x, flag):
        a = layer(x)
        with torch.set_grad_enabled(flag):
            b = layer(a)
        torch.set_grad_enabled(not flag)
        c = layer(b)
        torch.set_grad_enabled(True)
        return a, b, c, torch.is_grad_enabled()

    f = wrap(step)
    for outer in (torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad):
        for flag in (True, False):
            with outer():
                out = f(ones(1, 2), flag)
                yield out, torch.is_grad_enabled()
                torch.set_grad_enabled(True)
            layer.zero_grad()
            if out[2].requires_grad:
                out[2].sum().backward()
            yield layer.weight.grad

    g = wrap(torch.no_grad()(lambda x: layer(x)))
    yield g(ones(1, 2)), torch.is_grad_enabled()
    h = torch.no_grad()(wrap(lambda x: layer(x)))
    yield h(ones(1, 2)), torch.is_grad_enabled()


@session
def autocast_around_and_inside(wrap):
    layer, norm = nn.Linear(4, 4), nn.LayerNorm(4)
    nn.init.constant_(layer.weight, 0.5)
    nn.init.zeros_(layer.bias)

    def step(x):
        a = layer(x)
        with torch.autocast("cpu", enabled=False):
            b = layer(x.float())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            c = layer(x) @ x.t()
        d = functional.softmax(a, -1)
        return a, b, c, d, norm(a), torch.cat([a, b]), a + b, (a - b).sum()

    f = wrap(step)

    def run():
        layer.zero_grad()
        norm.zero_grad()
        out = f(ones(2, 4) / 8)
        sum(t.float().sum() for t in out).backward()
        grads = [p.grad for p in (*layer.parameters(), *norm.parameters())]
        return [t.dtype for t in out], [t.shape for t in out], [g.dtype for g in grads], out[1]

    yield run()
    for kind in (torch.bfloat16, torch.bfloat16):
        with torch.autocast("cpu", dtype=kind):
            yield run()
        with torch.autocast("cpu", dtype=kind, cache_enabled=False):
            yield run()
    yield run()


@session
def default_types_that_change(wrap):
    def step(x):
        made = torch.zeros(2) + 1.5
        return x * made, torch.tensor(2.5).dtype, torch.arange(0, 1, 0.5), torch.get_default_dtype()

    f = wrap(step)
    yield f(ones(2))
    try:
        torch.set_default_dtype(torch.float64)
        yield f(ones(2)), f(ones(2).float())
        torch.set_default_dtype(torch.bfloat16)
        yield f(ones(2))
    finally:
        torch.set_default_dtype(torch.float32)
    yield f(ones(2))
    torch.use_deterministic_algorithms(True)
    try:
        put = wrap(
            lambda x: x.index_put((torch.tensor([0, 0, 1]),), torch.ones(3), accumulate=True)
        )
        yield put(ones(2))
    finally:
        torch.use_deterministic_algorithms(False)


@session
def arguments_that_overlap(wrap):
    def step(a, b):
        a.mul_(2)
        c = b + 1
        b.add_(a[: b.shape[0]])
        return c, a.sum(), b

    f = wrap(step)
    x, y = ones(4), ones(4) * 10
    yield f(x, y), x, y
    yield f(x, x), x
    yield f(x, x[:]), x
    yield f(x, x[1:]), x
    yield f(x[::2], x[1::2]), x
    yield f(x[:2], x[2:]), x
    yield f(x.view(2, 2)[0], x.view(2, 2)[1]), x
    z = ones(4)
    yield f(z, z.detach()), z, z._version
    yield tried(f, z.expand(2, 4)[0], z), z

    def swaps(a, b):
        a[:], b[:] = b.clone(), a.clone()
        return a, b

    g = wrap(swaps)
    x, y = ones(3), ones(3) * 5
    yield g(x, y), x, y
    yield g(x, x), x
    w = ones(4)
    yield g(w[:3], w[1:]), w


@session
def what_is_returned_is_an_argument(wrap):
    def step(x, y, flag):
        if flag == 0:
            return x, y
        if flag == 1:
            return x.view(-1), x[0], x.t()
        if flag == 2:
            x += 1
            return x, x.data, x.detach(), x[:1]
        if flag == 3:
            z = x * y
            return z, z[0], z.view(-1), z.t(), x
        if flag == 4:
            return [x, x], {"a": x, "b": (x, y)}
        z = x.expand(2, *x.shape)
        return z, z.contiguous(), x.contiguous(), x.to(x.dtype), x.reshape(x.shape)

    f = wrap(step)
    for flag in range(6):
        for grad in (False, True):
            x, y = ones(2, 2).requires_grad_(grad), ones(2, 2)
            out = tried(f, x * 1 if grad else x, y, flag)
            yield out, x, y
            for t in out if isinstance(out, tuple) and not grad else ():
                if isinstance(t, torch.Tensor):
                    t.mul_(2) if flag != 5 else None
            yield out, x, y


@session
def results_that_callers_change(wrap):
    table = {"scale": ones(2)}

    def step(x):
        constant = torch.arange(3)
        made = table["scale"] * 2
        return x + made, constant, torch.zeros(2), [1, 2], {"k": made}, made

    f = wrap(step)
    for _ in range(3):
        out = f(ones(2))
        yield out
        out[0].zero_()
        out[1].fill_(7)
        out[2].add_(3)
        out[3].append(3)
        out[4]["k"].mul_(100)
        out[4]["other"] = 1
    weight = nn.Parameter(ones(2))
    g = wrap(lambda x: (x * weight, weight.detach(), weight))
    for _ in range(2):
        out = g(ones(2))
        out[1].mul_(2)
        yield out, weight, out[2] is weight
    h = wrap(lambda: torch.tensor([1.0, 2.0]))
    first = h()
    first.add_(1)
    yield first, h()


@session
def backward_more_than_once(wrap):
    def step(x, w):
        a = (x * w).exp()
        b = a.sin() * w
        return a, b, b.sum()

    f = wrap(step)
    for _ in range(2):
        x, w = ones(2).requires_grad_(), ones(2).requires_grad_()
        a, b, total = f(x, w)
        total.backward(retain_graph=True)
        yield x.grad, w.grad
        total.backward(retain_graph=True)
        a.sum().backward(retain_graph=True)
        yield x.grad, w.grad
        b.sum().backward()
        yield x.grad, w.grad
        yield tried(total.backward)[:2]
        yield tried(lambda: a.sum().backward())[:2]
    for _ in range(3):
        x, w = ones(2).requires_grad_(), ones(2).requires_grad_()
        a, b, total = f(x, w)
        (g,) = torch.autograd.grad(total, x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), w, create_graph=True)
        (k,) = torch.autograd.grad(h.sum(), x, retain_graph=True)
        (g.sum() + a.sum()).backward()
        yield g, h, k, x.grad, w.grad
    x, w = ones(2).requires_grad_(), ones(2).requires_grad_()
    yield torch.autograd.functional.hessian(lambda t: f(t, w)[2], x)
    yield torch.autograd.functional.jacobian(lambda t: f(t, w)[1], x)
    yield torch.autograd.gradcheck(
        lambda t, u: f(t, u)[1],
        (ones(2).double().requires_grad_(), ones(2).double().requires_grad_()),
    )


@session
def hooks_on_tensors_and_gradients(wrap):
    log = []

    def step(x, w):
        h = x * w
        h.register_hook(lambda g: log.append(("h", g.sum().item())) or g * 2)
        y = h.sin() + h
        y.register_hook(lambda g: log.append("y"))
        return y.sum(), h

    f = wrap(step)
    for _ in range(3):
        x, w = ones(2).requires_grad_(), ones(2).requires_grad_()
        x.register_hook(lambda g: g + 1)
        out, h = f(x, w)
        h.retain_grad()
        out.backward()
        yield out, x, w, h.grad, [str(entry)[:10] for entry in log]
    g = wrap(lambda x: (x * 2).sum())
    for _ in range(2):
        x = ones(2).requires_grad_()
        handle = x.register_hook(lambda g: log.append("outside"))
        g(x).backward()
        handle.remove()
        g(x).backward()
        yield x, len(log)
    z = ones(2).requires_grad_()
    y = z * 3
    y.register_hook(lambda g: g * 5)
    g(y).backward()
    yield z.grad


@session
def checkpoints_too(wrap):
    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, 0.5)
    nn.init.constant_(layer.bias, 0.1)

    def block(x, by=1):
        return functional.dropout(torch.tanh(layer(x)) * by, 0.5)

    def step(x):
        y = checkpoint(block, x, use_reentrant=False, by=2)
        y = checkpoint(block, y, use_reentrant=True)
        return y.sum(), y

    f = wrap(step)
    for _ in range(2):
        torch.manual_seed(3)
        layer.zero_grad()
        x = ones(2, 2).requires_grad_()
        out, y = f(x)
        out.backward()
        yield out, y, x.grad, layer.weight.grad, torch.rand(1)
    g = wrap(block)
    torch.manual_seed(3)
    x = ones(2, 2).requires_grad_()
    checkpoint(g, x, use_reentrant=False).sum().backward()
    yield x.grad


@session
def functions_of_autograd_with_other_results(wrap):
    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k, names):
            ctx.k, ctx.names = k, names
            ctx.save_for_backward(x)
            index = x.argmax()
            ctx.mark_non_differentiable(index)
            return x * k, "name" + names[0], index, (x * 2, None), k + 1

        @staticmethod
        def backward(ctx, *grads):
            (x,) = ctx.saved_tensors
            return grads[0] * ctx.k + x * 0, None, None

    class Stays(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.set_materialize_grads(False)
            ctx.mark_dirty(x)
            x.add_(y)
            return x, y.view_as(y)

        @staticmethod
        def backward(ctx, a, b):
            return a, (0 if a is None else a) + (0 if b is None else b)

    def step(x, k):
        a, name, index, pair, more = Split.apply(x, k, ("p", "q"))
        b, c = Stays.apply(a * 1, x)
        return a, name, index, pair, more, b, c

    f = wrap(step)
    for k in (2, 2, 3):
        x = ones(3).requires_grad_()
        out = f(x, k)
        (out[0].sum() + out[5].sum() * 2).backward()
        yield out, x.grad


@session
def complex_numbers(wrap):
    def step(x, w):
        z = torch.complex(x, w)
        c = z.conj()
        s = torch.fft.rfft(x)
        p = torch.polar(x.abs(), w)
        return (
            c * z,
            c,
            z.real,
            c.imag,
            s.abs(),
            torch.view_as_real(p),
            z @ c,
            (z / p).angle(),
            z.mean(),
        )

    f = wrap(step)
    for kind in (torch.float32, torch.float64, torch.float32):
        x, w = ones(4).to(kind).requires_grad_(), (ones(4) / 3).to(kind).requires_grad_()
        out = f(x, w)
        sum((t.abs() if t.is_complex() else t).sum() for t in out).backward()
        yield out, x.grad, w.grad
    z = torch.complex(ones(2), ones(2))
    g = wrap(lambda t: (t.conj(), t.conj().imag, t.mul_(1j), t.H if t.dim() == 2 else t))
    yield g(z), z
    yield g(z.conj()), g(z.view(1, 2))


@session
def sparse_and_quantized(wrap):
    def step(s, x):
        y = torch.sparse.mm(s, x) if s.layout is torch.sparse_coo else s @ x
        return y, s.to_dense() + 1, (s * 2).to_dense()

    f = wrap(step)
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    yield f(dense.to_sparse(), ones(2, 2))
    yield f(dense.to_sparse_csr(), ones(2, 2))
    yield f(dense, ones(2, 2))
    g = wrap(lambda x: (x.to_sparse().to_dense() * 2, x.to_sparse().coalesce().values()))
    yield g(dense), g(dense * 2)
    h = wrap(lambda x: torch.quantize_per_tensor(x, 0.1, 2, torch.quint8).dequantize() + x)
    yield h(ones(3)), h(ones(3) * 2)
    q = torch.quantize_per_tensor(ones(3), 0.5, 0, torch.qint8)
    yield wrap(lambda t: t.dequantize() * 2)(q), wrap(lambda t: t.int_repr())(q)
    x = dense.to_sparse().requires_grad_()
    out = f(x, ones(2, 2))
    out[0].sum().backward()
    yield out[0], x.grad.to_dense()


@session
def copies_and_pickles(wrap):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(ones(2))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.w * self.calls

    model = Model()
    f = wrap(model)
    yield f(ones(2)), model.calls
    twin = copy.deepcopy(f)
    yield twin(ones(2)), f(ones(2)), twin.calls, model.calls
    with torch.no_grad():
        twin.w.mul_(10)
    yield twin(ones(2)), f(ones(2)), [type(m).__name__ for m in twin.modules()][-1]
    shallow = copy.copy(f)
    yield shallow(ones(2)), sorted(shallow.state_dict())
    buffer = io.BytesIO()
    torch.save(f.state_dict(), buffer)
    buffer.seek(0)
    twin.load_state_dict(torch.load(buffer))
    yield twin(ones(2)), twin.w
    linear = nn.Linear(2, 1)
    nn.init.constant_(linear.weight, 0.5)
    nn.init.zeros_(linear.bias)
    g = wrap(linear)
    yield g(ones(1, 2))
    again = pickle.loads(pickle.dumps(g))
    yield again(ones(1, 2)), again.weight, again.training


@session
def train_and_eval_flips(wrap):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    for p in model.parameters():
        nn.init.constant_(p, 0.25)
    f = wrap(model)
    for mode in (True, False, True, True, False):
        model.train(mode)
        torch.manual_seed(5)
        x = ones(3, 4).requires_grad_()
        model.zero_grad()
        out = f(x)
        out.square().sum().backward()
        yield out, x.grad, [p.grad for p in model.parameters()], dict(model.named_buffers())
    model[2].p = 0.0
    model.train()
    yield f(ones(3, 4)), f(ones(5, 4)), dict(model.named_buffers())
    model[1].momentum = None
    yield f(ones(3, 4)), dict(model.named_buffers())
    model[1].track_running_stats = False
    yield f(ones(3, 4)), dict(model.named_buffers())
    model[1].eval()
    yield f(ones(3, 4)), dict(model.named_buffers())
    yield tried(f, ones(1, 4))[:2]
    model[1].train()
    yield tried(f, ones(1, 4))


@session
def random_numbers_of_seeds(wrap):
    drop = nn.Dropout(0.3)

    def step(x):
        a = drop(x)
        b = torch.rand_like(x) + torch.randn(2, x.shape[0])
        c = torch.randint(0, 10, (3,))
        d = torch.nn.functional.dropout(x, 0.5, training=drop.training)
        return a, b, c, d, torch.bernoulli(torch.full((4,), 0.5)), torch.randperm(4)

    f = wrap(step)
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        yield f(ones(4)), torch.rand(1)
        yield f(ones(4)), f(ones(5)), torch.rand(1)
    drop.eval()
    yield f(ones(4)), torch.rand(1)
    g = torch.Generator().manual_seed(3)
    h = wrap(lambda x: (torch.rand(2, generator=g) + x, torch.normal(x, 1.0, generator=g)))
    yield h(ones(2)), h(ones(2)), torch.rand(1, generator=g)
    state = torch.get_rng_state()
    one = f(ones(4))
    torch.set_rng_state(state)
    yield [torch.equal(a, b) for a, b in zip(one, f(ones(4)), strict=True)]
    with torch.random.fork_rng():
        yield f(ones(4))
    yield torch.rand(1)
