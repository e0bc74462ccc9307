"""Modules and objects whose state changes from call to call."""

import collections
import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.strangers.harness import made, rand


def _seeded(make):
    torch.manual_seed(1)
    module = make()
    return module, module


class RunningNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("count", torch.tensor(0))
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.count += len(x)
                self.mean += (x.mean(0) - self.mean) * (len(x) / self.count)
        return (x - self.mean) * self.scale


@made(lambda: (rand(4, 3),), lambda: (rand(2, 3, seed=1),), lambda: (rand(6, 3, seed=2),))
def running_norm():
    return _seeded(RunningNorm)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.calls, self.history, self.last = 0, collections.deque(maxlen=2), None

    def forward(self, x):
        self.calls += 1
        y = self.layer(x)
        self.history.append(y.detach().mean())
        self.last = y
        return y * self.calls if self.calls % 2 else y


@made(*[lambda: (rand(2, 3),)] * 3)
def counter():
    return _seeded(Counter)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return F.cross_entropy(self.head(self.embed(ids)), ids)


@made(lambda: (torch.tensor([1, 2, 6]),), lambda: (torch.tensor([0]),))
def tied_weights():
    return _seeded(Tied)


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = nn.Linear(4, 4)
        self.cache = None

    def forward(self, x):
        k = self.k(x)
        self.cache = k if self.cache is None else torch.cat([self.cache, k], 1)
        return torch.softmax(x @ self.cache.mT, -1) @ self.cache


@made(lambda: (rand(1, 3, 4),), lambda: (rand(1, 1, 4),), lambda: (rand(1, 1, 4, seed=4),))
def key_cache():
    return _seeded(Cached)


class Moving(nn.Module):
    """A teacher that follows its student."""

    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.teacher = copy.deepcopy(self.student)
        for p in self.teacher.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for mine, its in zip(self.teacher.parameters(), self.student.parameters()):
                mine.mul_(0.9).add_(its, alpha=0.1)
            target = self.teacher(x)
        return F.mse_loss(self.student(x), target)


@made(lambda: (rand(5, 3),), lambda: (rand(5, 3, seed=1),))
def moving_average():
    return _seeded(Moving)


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict()

    def forward(self, x, name):
        if name not in self.parts:
            torch.manual_seed(len(name))
            self.parts[name] = nn.Linear(x.shape[-1], 2)
        return {key: part(x) for key, part in self.parts.items()}


@made(lambda: (rand(2, 3), "a"), lambda: (rand(2, 3), "bb"), lambda: (rand(2, 3), "a"))
def parts_made_on_demand():
    return _seeded(Lazy)


@made(*[lambda: (rand(3, 2), rand(3, 1))] * 3)
def training_by_hand():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))

    def step(x, y):
        loss = F.mse_loss(model(x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p.sub_(0.1 * g)
        return loss.detach()

    return step, model


@made(*[lambda: (rand(3, 2), rand(3, 1))] * 3)
def training_with_an_optimizer():
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step, model


@made(lambda: (rand(2, 3), True), lambda: (rand(2, 3), False), lambda: (rand(2, 3), True))
def train_and_eval():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.0))

    def run(x, training):
        model.train(training)
        return model(x), model.training

    return run, model


@made(*[lambda: (rand(2, 3),)] * 3)
def hooks():
    torch.manual_seed(0)
    seen = []
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_forward_hook(lambda m, args, out: seen.append(out.detach().sum()) or out * 2)
    model[1].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    return model, seen


@made(*[lambda: (rand(2, 3),)] * 2)
def norms_of_weights():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)),
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2)),
    )
    return model, model


@made(lambda: (rand(2, 3),), lambda: (rand(2, 3),))
def frozen_and_thawed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    flags = {"frozen": False}

    def run(x):
        flags["frozen"] = not flags["frozen"]
        for p in model[0].parameters():
            p.requires_grad = not flags["frozen"]
        return model(x).sum(), [p.requires_grad for p in model.parameters()]

    return run, model


@made(*[lambda: (rand(4, 2, 3),)] * 2)
def recurrent():
    torch.manual_seed(0)
    cell = nn.GRUCell(3, 5)

    def run(steps):
        h = torch.zeros(2, 5)
        seen = []
        for x in steps:
            h = cell(x, h)
            seen.append(h)
        return torch.stack(seen), h

    return run, cell


@made(*[lambda: (rand(2, 6, 8),)] * 2)
def encoder_layer():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return layer, layer


class Selected(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.gate = nn.Linear(3, 3)

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == k)
            if rows.numel():
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot, None])
        return out


@made(lambda: (rand(4, 3),), lambda: (rand(1, 3, seed=5),))
def mixture_of_experts():
    return _seeded(Selected)


@made(lambda: (rand(3),), lambda: (rand(3, seed=1),))
def class_attributes():
    class Model:
        scale = 2.0
        seen = []

        @classmethod
        def grow(cls):
            cls.scale += 1

        @staticmethod
        def shift(x):
            return x + 1

        def __call__(self, x):
            self.grow()
            Model.seen.append(len(Model.seen))
            return self.shift(x) * self.scale

    return Model(), Model.seen


@made(lambda: (3,), lambda: (5,), lambda: (0,))
def generator_state():
    source = iter(range(100))
    taken = []

    def run(n):
        for _, value in zip(range(n), source):
            taken.append(value)
        return torch.tensor(taken).float().sum() if taken else torch.zeros(())

    return run, taken


@made(*[lambda: (rand(4),)] * 3)
def random_numbers():
    state = {"generator": torch.Generator().manual_seed(3)}

    def run(x):
        noise = torch.rand(4, generator=state["generator"])
        return (
            x + noise,
            torch.rand(2),
            F.dropout(x, 0.5),
            torch.randperm(4),
            torch.randint(0, 9, (2,)),
        )

    return run, ()


@made(lambda: (rand(2, 3),), lambda: (rand(2, 3),))
def attributes_by_name():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            for k in range(3):
                setattr(self, f"layer{k}", nn.Linear(3, 3))

        def forward(self, x):
            for k in range(3):
                x = getattr(self, f"layer{k}")(x).relu()
            self.total = sum(p.numel() for p in self.parameters())
            return x / self.total

    net = Net()
    return net, net


@made(lambda: (rand(2, 4),), lambda: (rand(3, 4),))
def parameter_lists():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.randn(4, 4)) for _ in range(2)])
            self.table = nn.ParameterDict({"bias": nn.Parameter(torch.zeros(4))})

        def forward(self, x):
            for w in self.weights:
                x = x @ w + self.table["bias"]
            return x

    net = Net()
    return net, net


class _Shared:
    scale, steps = 2.0, 0


@made(*[lambda: (rand(3),)] * 2)
def classes_written_while_they_are_read():
    class Base(_Shared):
        def grow(self):
            return 1

    class Model(Base):
        @classmethod
        def more(cls):
            cls.scale += 1

        def __call__(self, x):
            Base.steps += 1
            self.more()
            self.extra = 5
            before = self.extra + self.grow()
            del self.extra
            Base.grow, kept = lambda self: 7, Base.grow
            after = self.grow() + Model().grow() + super().grow()
            Base.grow = kept
            del Model.scale
            return x * self.scale + self.steps, before, after, hasattr(self, "extra"), self.grow()

    model = Model()
    return model, model


@made(*[lambda: (rand(3),)] * 2)
def names_made_and_deleted():
    space = {}
    exec(
        "def run(x):\n    global made\n    made = x + 1\n    y = made * 2\n    del made\n    return y, 'made' in globals()\n",
        space,
    )
    return space["run"], ()


@made(*[lambda: (rand(3),)] * 2)
def classes_made_inside():
    def run(x):
        class Local:
            factor = 2

            def __call__(self, t):
                return t * self.factor

        local = Local()
        first = local(x)
        Local.factor = 3
        second = local(x)
        Local.__call__ = lambda self, t: t - 1
        return first, second, local(x)

    return run, ()
