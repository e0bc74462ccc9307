"""Sessions about modules: hooks, buffers, containers, parametrizations, switches between calls."""

import copy

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from tests.strangers.sessions import session, tried


def ones(*shape):
    return torch.arange(1.0, 1.0 + int(torch.tensor(shape).prod())).reshape(shape)


def linear(n=2, m=2):
    made = nn.Linear(n, m)
    with torch.no_grad():
        made.weight.copy_(ones(m, n) / 10)
        made.bias.copy_(ones(m))
    return made


def backward(model, x, wrapped=None):
    model.zero_grad(set_to_none=True)
    y = (wrapped or model)(x)
    y.sum().backward()
    return y.detach(), [p.grad for p in model.parameters()]


@session
def forward_hooks_come_and_go(wrap):
    model, log = nn.Sequential(linear(), nn.ReLU(), linear()), []
    f = wrap(model)
    yield f(ones(1, 2))

    def hook(module, args, output):
        log.append(tuple(output.shape))
        return output * 2

    handle = model[0].register_forward_hook(hook)
    yield f(ones(1, 2)), log
    pre = model[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    yield f(ones(1, 2)), log
    named = model[2].register_forward_hook(lambda m, a, k, out: out - len(k), with_kwargs=True)
    first = model[0].register_forward_hook(lambda m, a, out: out + 5, prepend=True)
    yield f(ones(1, 2)), log
    handle.remove()
    yield f(ones(3, 2)), log
    for other in (pre, named, first):
        other.remove()
    yield f(ones(1, 2)), log


@session
def hooks_keep_activations(wrap):
    model, kept = nn.Sequential(linear(), nn.Tanh(), linear()), {}
    for name, child in model.named_children():
        child.register_forward_hook(
            lambda m, a, out, name=name: kept.__setitem__(name, out.detach())
        )
    f = wrap(model)
    for n in (1, 2):
        yield f(ones(n, 2)), kept


@session
def backward_hooks(wrap):
    model, log = nn.Sequential(linear(), nn.Tanh(), linear()), []
    f = wrap(model)
    handle = model[0].register_full_backward_hook(
        lambda m, gi, go: log.append([None if g is None else g.sum() for g in (*gi, *go)])
    )
    yield backward(model, ones(1, 2), f), log
    scale = model[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    yield backward(model, ones(1, 2).requires_grad_(), f), log
    handle.remove()
    scale.remove()
    yield backward(model, ones(1, 2), f), log
    first = model[0].weight.register_hook(lambda g: g * 3)
    yield backward(model, ones(1, 2), f)
    first.remove()
    yield backward(model, ones(1, 2), f)
    post = model[0].weight.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum()))
    yield backward(model, ones(1, 2), f), log
    post.remove()


@session
def tensor_hooks_inside(wrap):
    def step(x, k):
        y = x * 2
        y.register_hook(lambda g: g * k)
        return (y * y).sum()

    f = wrap(step)
    for k in (1, 3, 1):
        x = ones(2).requires_grad_()
        f(x, k).backward()
        yield x

    def retains(x):
        y = x * 2
        y.retain_grad()
        return y, (y * 3).sum()

    x = ones(2).requires_grad_()
    y, z = wrap(retains)(x)
    z.backward()
    yield x, y.grad


@session
def buffers_that_grow(wrap):
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("bank", torch.zeros(0, 2))
            self.register_buffer("count", torch.tensor(0))
            self.register_buffer("temp", None, persistent=False)

        def forward(self, x):
            self.count += 1
            self.bank = torch.cat([self.bank, x])
            if self.temp is None:
                self.temp = x.mean(0)
            else:
                self.temp = self.temp * 0.5 + x.mean(0) * 0.5
            return self.bank.sum(0) + self.temp

    model = Memory()
    f = wrap(model)
    for n in (1, 2, 1, 3):
        yield f(ones(n, 2)), model.state_dict(), model.temp
    model.load_state_dict(
        {"bank": torch.ones(2, 2), "count": torch.tensor(5)}, strict=False
    ) if False else None
    model.bank = torch.ones(4, 2)
    yield f(ones(1, 2)), dict(model.named_buffers())


@session
def batch_norm_and_switches(wrap):
    model = nn.Sequential(linear(), nn.BatchNorm1d(2), nn.Dropout(0.5))
    f = wrap(model)
    for mode in (True, True, False, True, False):
        model.train(mode)
        torch.manual_seed(1)
        yield f(ones(4, 2)), model.state_dict()
    model[1].momentum = 0.9
    model[2].p = 0.0
    model.train()
    yield f(ones(4, 2)), model.state_dict()
    model[1].eval()
    yield f(ones(4, 2)), model.state_dict(), model.training, f.training
    for p in model.parameters():
        p.requires_grad_(False)
    yield f(ones(4, 2))
    model.double()
    yield f(ones(4, 2).double()), model.state_dict()


@session
def parameter_lists_and_dicts(wrap):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scales = nn.ParameterList([torch.ones(2) * k for k in range(1, 3)])
            self.named = nn.ParameterDict({"a": nn.Parameter(ones(2))})
            self.layers = nn.ModuleList([linear()])
            self.table = nn.ModuleDict({"relu": nn.ReLU()})

        def forward(self, x, key="relu"):
            for scale in self.scales:
                x = x * scale
            for name, layer in self.named.items():
                x = x + layer * len(name)
            for k, layer in enumerate(self.layers):
                x = layer(x) + k
            return self.table[key](x), len(self.scales), list(self.table)

    model = Model()
    f = wrap(model)
    yield f(ones(1, 2))
    model.layers.append(linear())
    yield f(ones(1, 2))
    model.scales.append(nn.Parameter(ones(2)))
    model.table["tanh"] = nn.Tanh()
    yield f(ones(1, 2)), f(ones(1, 2), "tanh")
    del model.layers[0]
    model.named["bb"] = nn.Parameter(ones(2))
    yield f(ones(1, 2))
    model.layers.insert(0, nn.Identity())
    model.scales[0] = nn.Parameter(torch.zeros(2))
    yield f(ones(1, 2)), tried(f, ones(1, 2), "none")


@session
def parametrized_weights(wrap):
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).transpose(-1, -2)

        def right_inverse(self, w):
            return w.triu()

    model = linear()
    f = wrap(model)
    yield backward(model, ones(1, 2), f)
    parametrize.register_parametrization(model, "weight", Symmetric())
    yield backward(model, ones(1, 2), f), model.weight
    with parametrize.cached():
        yield f(ones(1, 2))
    model.weight = ones(2, 2)
    yield f(ones(1, 2)), model.weight
    parametrize.remove_parametrizations(model, "weight")
    yield backward(model, ones(1, 2), f)


@session
def weight_and_spectral_norm(wrap):
    model = nn.Sequential(
        parametrizations.weight_norm(linear()), parametrizations.spectral_norm(linear())
    )
    f = wrap(model)
    for mode in (True, True, False, True):
        model.train(mode)
        yield backward(model, ones(2, 2), f), model.state_dict()
    old = nn.utils.weight_norm(linear())
    g = wrap(old)
    yield backward(old, ones(2, 2), g), backward(old, ones(2, 2), g)
    nn.utils.remove_weight_norm(old)
    yield backward(old, ones(2, 2), g)
    orthogonal = parametrizations.orthogonal(linear())
    yield wrap(orthogonal)(ones(1, 2))


@session
def weights_are_tied(wrap):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(4, 2)
            self.out = nn.Linear(2, 4, bias=False)
            with torch.no_grad():
                self.embed.weight.copy_(ones(4, 2))
                self.out.weight.copy_(ones(4, 2) * 2)

        def forward(self, i):
            return self.out(self.embed(i))

    model, i = Model(), torch.tensor([0, 2])
    f = wrap(model)
    yield backward(model, i, f)
    model.out.weight = model.embed.weight
    yield backward(model, i, f)
    with torch.no_grad():
        model.embed.weight.mul_(2)
    yield backward(model, i, f)
    model.out.weight = nn.Parameter(ones(4, 2))
    yield backward(model, i, f)


@session
def deep_copies_of_modules(wrap):
    model = nn.Sequential(linear(), nn.Tanh())
    f = wrap(model)
    yield f(ones(1, 2))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.add_(1)
    g = wrap(twin)
    yield f(ones(1, 2)), g(ones(1, 2))

    def ema(x, model, shadow):
        with torch.no_grad():
            for p, q in zip(model.parameters(), shadow.parameters(), strict=True):
                q.mul_(0.9).add_(p, alpha=0.1)
        return shadow(x)

    h = wrap(ema)
    for _ in range(2):
        yield h(ones(1, 2), model, twin), list(twin.parameters())

    def copies(x, model):
        other = copy.deepcopy(model)
        for p in other.parameters():
            p.data.mul_(0)
        return other(x), model(x)

    yield wrap(copies)(ones(1, 2), model), list(model.parameters())


@session
def attributes_of_modules(wrap):
    class Model(nn.Module):
        kind = "a"

        def __init__(self):
            super().__init__()
            self.layer = linear()
            self.calls, self.last, self.flag = 0, None, False
            self.act = functional.relu

        def forward(self, x):
            self.calls += 1
            y = self.act(self.layer(x))
            if self.flag and self.last is not None:
                y = y + self.last
            self.last = y.detach()
            return y if self.kind == "a" else -y

    model = Model()
    f = wrap(model)
    yield f(ones(1, 2)), model.calls, model.last
    model.flag = True
    yield f(ones(1, 2)), model.calls, model.last
    model.act = torch.tanh
    yield f(ones(1, 2)), model.calls
    model.act = nn.Softplus()
    yield f(ones(1, 2)), model.calls
    model.kind = "b"
    yield f(ones(1, 2))
    Model.kind = "c"
    del model.kind
    yield f(ones(1, 2)), model.calls
    model.layer = nn.Identity()
    yield f(ones(1, 2))
    model.forward = lambda x: x * 100
    yield f(ones(1, 2)), model.calls
    del model.forward
    yield f(ones(1, 2)), f.calls, model.calls


@session
def state_dict_hooks_and_loading(wrap):
    model, log = nn.Sequential(linear(), nn.BatchNorm1d(2)), []
    model.register_state_dict_post_hook(lambda m, d, prefix, meta: log.append(sorted(d)))
    f = wrap(model)
    yield f(ones(3, 2)), f.state_dict(), log
    state = {k: v.clone() * 2 for k, v in model.state_dict().items()}
    f.load_state_dict(state)
    yield f(ones(3, 2)), model.state_dict()
    yield tried(f.load_state_dict, {"x": ones(1)})

    def steps(x):
        before = {k: v.clone() for k, v in model.state_dict().items()}
        y = model(x)
        return y, before["1.num_batches_tracked"], sorted(model.state_dict())

    yield wrap(steps)(ones(3, 2))


@session
def modules_as_arguments(wrap):
    def step(model, x, names):
        for name, p in model.named_parameters():
            if name in names:
                x = x + p.sum()
        for m in model.modules():
            if isinstance(m, nn.Dropout):
                m.p = 0.0
        return (
            model(x),
            sum(p.numel() for p in model.parameters()),
            model.training,
            [type(m).__name__ for m in model.children()],
        )

    f = wrap(step)
    first, second = nn.Sequential(linear(), nn.Dropout(0.9)), nn.Sequential(linear(), nn.Tanh())
    yield f(first, ones(1, 2), {"0.bias"}), first[1].p
    yield f(second, ones(1, 2), {"0.bias", "0.weight"})
    yield f(first, ones(1, 2), set()), f(linear(), ones(1, 2), {"bias"})


@session
def global_hooks(wrap):
    model, log = linear(), []
    f = wrap(model)
    yield f(ones(1, 2))
    handle = nn.modules.module.register_module_forward_hook(
        lambda m, a, out: log.append(type(m).__name__)
    )
    try:
        yield f(ones(1, 2)), log
    finally:
        handle.remove()
    yield f(ones(1, 2)), log


@session
def recurrent_and_padding(wrap):
    rnn = nn.GRU(2, 3, batch_first=True)
    with torch.no_grad():
        for p in rnn.parameters():
            p.copy_(ones(*p.shape) / 50)

    def step(x, h):
        out, h = rnn(x, h)
        return out, h.detach()

    f, h = wrap(step), None
    for n in (2, 3, 2):
        out, h = f(ones(1, n, 2), h)
        yield out, h

    def packed(x, lengths):
        p = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = rnn(p)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)

    g = wrap(packed)
    yield g(ones(2, 3, 2), torch.tensor([3, 1])), g(ones(2, 3, 2), torch.tensor([1, 2]))
    yield wrap(lambda xs: nn.utils.rnn.pad_sequence(xs, batch_first=True))([ones(2), ones(3)])
