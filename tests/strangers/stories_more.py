"""Sessions with torch's own states around breaks, and with what users do to compiled functions."""

import contextlib
import copy
import functools
import gc
import inspect
import pickle
import threading
import types
import weakref

import torch
from torch import nn
from torch.nn import functional

from tests.strangers.sessions import session, tried


def ones(*shape):
    return torch.arange(1.0, 1.0 + int(torch.tensor(shape).prod())).reshape(shape)


def say(value, *what):
    print("say", *what, type(value).__name__)
    return value


@session
def inference_mode_around_a_break(wrap):
    def step(x, w):
        y = x * w
        with torch.inference_mode():
            a = x * 2
            say(1, torch.is_inference_mode_enabled())
            b = a + 1
        z = y * 2
        return (
            z,
            a.is_inference(),
            b.is_inference(),
            z.requires_grad,
            torch.is_inference_mode_enabled(),
        )

    f = wrap(step)
    for _ in range(2):
        w = ones(2).requires_grad_()
        out = f(ones(2), w)
        out[0].sum().backward()
        yield out, w


@session
def enable_grad_inside_no_grad_with_breaks(wrap):
    def step(x, w):
        with torch.no_grad():
            a = x * w
            say(1, torch.is_grad_enabled())
            with torch.enable_grad():
                b = x * w * w
                say(2, torch.is_grad_enabled())
                c = b * 2
            d = c * w
        e = c + d
        return a, b, c, d, e, [t.requires_grad for t in (a, b, c, d, e)]

    f = wrap(step)
    for _ in range(2):
        w = ones(2).requires_grad_()
        out = f(ones(2), w)
        out[4].sum().backward()
        yield out[5], w
    with torch.no_grad():
        yield f(ones(2), ones(2).requires_grad_())[5], torch.is_grad_enabled()


@session
def decorated_no_grad_with_breaks(wrap):
    @torch.no_grad()
    def evaluate(x, w):
        y = x * w
        say(1, torch.is_grad_enabled())
        return y * 2

    def step(x, w):
        loss = (x * w).sum()
        metric = evaluate(x, w)
        return loss * 2, metric

    f = wrap(step)
    for _ in range(2):
        w = ones(2).requires_grad_()
        loss, metric = f(ones(2), w)
        loss.backward()
        yield loss.detach(), metric, w, torch.is_grad_enabled()


@session
def autocast_around_breaks(wrap):
    layer = nn.Linear(4, 4)
    nn.init.constant_(layer.weight, 0.5)
    nn.init.zeros_(layer.bias)

    def step(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = layer(x)
            say(1, torch.is_autocast_enabled("cpu"))
            b = layer(a)
        c = layer(x)
        say(2, torch.is_autocast_enabled("cpu"))
        return a.dtype, b, c, torch.is_autocast_enabled("cpu")

    f = wrap(step)
    for _ in range(2):
        layer.zero_grad()
        out = f(ones(1, 4) / 4)
        (out[1].float().sum() + out[2].sum()).backward()
        yield out, layer.weight.grad


@session
def default_states_around_breaks(wrap):
    def step(n):
        old = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            a = torch.ones(n)
            say(1, torch.get_default_dtype())
            b = torch.ones(n) * 0.5
        finally:
            torch.set_default_dtype(old)
        say(2, torch.get_default_dtype())
        return a, b, torch.ones(n)

    f = wrap(step)
    for n in (2, 3):
        yield f(n), torch.get_default_dtype()

    def raises(n):
        torch.set_default_dtype(torch.float64)
        say(n)
        a = torch.ones(2)
        torch.set_default_dtype(torch.float32)
        return a + ([1][n]), torch.ones(1)

    g = wrap(raises)
    yield tried(g, 0), torch.get_default_dtype(), tried(g, 3), torch.get_default_dtype()


@session
def hooks_with_breaks(wrap):
    model, log = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), []
    nn.init.ones_(model[0].weight)
    nn.init.zeros_(model[0].bias)

    def hook(module, args, output):
        log.append(say("hook", tuple(output.shape)))
        return output * 2 if len(log) < 3 else None

    model[0].register_forward_hook(hook)
    model.register_forward_pre_hook(lambda m, args: (say(args[0] + 1, "pre"),))
    f = wrap(model)
    for _ in range(4):
        model.zero_grad()
        y = f(ones(1, 2))
        y.sum().backward()
        yield y.detach(), log, model[0].weight.grad


@session
def functions_of_autograd_with_breaks(wrap):
    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            say(1, "forward", k)
            ctx.save_for_backward(x)
            ctx.k = k
            return x * k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            say(1, "backward", ctx.k)
            return g * ctx.k + x, None

    def step(x, k):
        y = x * 2
        z = Noted.apply(y, k)
        say(2, "after")
        return (z * y).sum()

    f = wrap(step)
    for k in (2, 3, 2):
        x = ones(2).requires_grad_()
        f(x, k).backward()
        yield x


@session
def errors_of_graphs_are_handled(wrap):
    def step(x, i, log):
        try:
            y = functional.embedding(i, x)
            log.append("looked up")
            y = y * 2
        except IndexError as error:
            log.append(type(error).__name__)
            y = x[:1]
        finally:
            log.append("finally")
        return y

    f, log = wrap(step), []
    for i in (0, 1, 5, 0, 9):
        yield f(ones(2, 2), torch.tensor([i]), log), log

    def solves(a):
        try:
            return torch.linalg.cholesky(a), "fine"
        except torch.linalg.LinAlgError:
            return torch.linalg.cholesky(a + 10 * torch.eye(2)), "shifted"

    g = wrap(solves)
    yield g(torch.eye(2)), g(-torch.eye(2)), g(torch.eye(2))

    def writes_first(x, i):
        x.add_(1)
        try:
            return x[i]
        except IndexError:
            return x * 0

    h = wrap(writes_first)
    for i in (0, 7, 1):
        x = ones(2)
        yield tried(h, x, i), x
    for i in (0, 7, 1):
        x = ones(2)
        yield tried(h, x, torch.tensor(i)), x


@session
def compiled_functions_are_objects(wrap):
    def step(x, k=2):
        """A doc."""
        return x * k

    f = wrap(step)
    yield (
        f.__name__,
        f.__doc__,
        str(inspect.signature(f)),
        f(ones(2)),
        f(x=ones(2), k=3),
        callable(f),
    )

    class Holder:
        method = f

        def __init__(self):
            self.bound = wrap(self.plain)
            self.k = 3

        def plain(self, x):
            return x * self.k

        @functools.cached_property
        def late(self):
            return wrap(lambda x: x + self.k)

        decorated = staticmethod(f)

    h = Holder()
    yield h.bound(ones(2)), h.late(ones(2)), h.decorated(ones(2)), Holder.decorated(ones(2), 5)
    h.k = 10
    yield h.bound(ones(2)), h.late(ones(2))
    yield (
        list(map(f, [ones(1), ones(2)])),
        functools.partial(f, k=7)(ones(2)),
        sorted([2, 1], key=lambda v: f(ones(1) * v).item()),
    )

    class Decorated:
        def __init__(self, k):
            self.k = k

        @wrap
        def go(self, x):
            self.k += 1
            return x * self.k

        @classmethod
        @wrap
        def make(cls, x):
            return cls(int(x.shape[0]))

        @staticmethod
        @wrap
        def still(x):
            return x - 1

        @property
        @wrap
        def prop(self):
            return torch.ones(2) * self.k

        @wrap
        def __call__(self, x):
            return x + self.k

    d = Decorated(1)
    yield (
        d.go(ones(2)),
        d.go(ones(2)),
        d.k,
        Decorated.make(ones(3)).k,
        d.still(ones(2)),
        d.prop,
        d(ones(2)),
        Decorated.go(d, ones(2)),
    )


@session
def compiled_modules_are_modules(wrap):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            nn.init.ones_(self.layer.weight)
            nn.init.zeros_(self.layer.bias)
            self.register_buffer("n", torch.zeros(1))

        def forward(self, x, *, scale=1.0):
            self.n += 1
            return self.layer(x) * scale

        def other(self, x):
            return self.layer(x) * 7

    model = Model()
    f = wrap(model)
    yield (
        f(ones(1, 2)),
        f(ones(1, 2), scale=2.0),
        f.other(ones(1, 2)),
        f.n,
        isinstance(f, nn.Module),
        sorted(f.state_dict()),
    )
    f.layer.weight.data.mul_(2)
    yield f(ones(1, 2)), [n for n, _ in f.named_parameters()], f.training
    f.eval()
    yield model.training, f.training, f(ones(1, 2))
    f.layer = nn.Identity()
    yield f(ones(1, 2)), model(ones(1, 2))
    f.to(torch.float64)
    yield f(ones(1, 2).double()), model.n.dtype
    outer = nn.Sequential(f, nn.ReLU())
    yield (
        outer(ones(1, 2).double()),
        len(list(outer.parameters())),
        wrap(outer)(ones(1, 2).double()),
    )
    twin = copy.deepcopy(f)
    twin.n.zero_()
    yield twin(ones(1, 2).double()), twin.n, f.n
    f.register_forward_hook(lambda m, a, out: out * 100)
    yield f(ones(1, 2).double())
    f.zero_grad()
    f.apply(lambda m: print(type(m).__name__) if isinstance(m, nn.Identity) else None)


@session
def memory_is_given_back(wrap):
    class Big:
        pass

    def step(x, box):
        box.y = x * 2
        return x + 1

    f = wrap(step)
    x, box = ones(2), Big()
    refs = weakref.ref(x), weakref.ref(box)
    f(x, box)
    f(x, box)
    del x, box
    gc.collect()
    yield [r() is None for r in refs]
    model = nn.Linear(2, 2)
    ref = weakref.ref(model)
    g = wrap(lambda m, x: m(x))
    g(model, ones(1, 2))
    del model
    gc.collect()
    yield ref() is None


@session
def threads_have_their_own(wrap):
    f, out = wrap(lambda x, k: (x * k).sum(), dynamic=None), {}

    def work(n):
        x = ones(n).requires_grad_()
        with torch.set_grad_enabled(n % 2 == 0):
            y = f(x, n)
        out[n] = (y.requires_grad, y.item())

    for n in range(1, 5):
        thread = threading.Thread(target=work, args=(n,))
        thread.start()
        thread.join()
    yield out


@session
def pickles_and_copies_of_results(wrap):
    def step(x, n):
        return {
            "x": x * n,
            "shape": x.shape,
            "n": x.shape[0] * 2,
            "list": [n, (x.shape[0],)],
            "size": x.size(0),
        }

    f = wrap(step)
    for n in (2, 3, 4, 5):
        found = f(ones(n), n)
        again = pickle.loads(pickle.dumps(found))
        yield (
            again,
            copy.deepcopy(found),
            type(found["shape"]).__name__,
            type(found["n"]).__name__,
            found["n"] == 2 * n,
            hash(found["size"]),
        )


@session
def kinds_of_callables(wrap):
    class Call:
        def __init__(self):
            self.n = 0

        def __call__(self, x):
            self.n += 1
            return x * self.n

    c = Call()
    f = wrap(lambda g, x: g(x))
    for g in (
        c,
        c,
        torch.sin,
        torch.Tensor.cos,
        operator_neg,
        functools.partial(torch.add, other=3),
        types.MethodType(lambda s, x: x + s.n, c),
        nn.ReLU(),
        abs,
        lambda x: x,
    ):
        yield f(g, ones(2)), c.n
    yield tried(f, 3, ones(2)), tried(f, None, ones(2))
    yield wrap(c)(ones(2)), wrap(torch.sin)(ones(2)), wrap(nn.ReLU())(ones(2)), c.n


def operator_neg(x):
    return -x


@session
def long_lived_state_machine(wrap):
    class Machine:
        def __init__(self):
            self.state, self.count, self.history = "idle", 0, []
            self.handlers = {"idle": self.idle, "run": self.run, "stop": self.stop}

        def idle(self, x):
            self.state = "run"
            return x

        def run(self, x):
            self.count += 1
            if self.count >= 2:
                self.state = "stop"
            return x * 2

        def stop(self, x):
            self.state, self.count = "idle", 0
            self.handlers["idle"], self.handlers["run"] = self.run, self.idle
            return x * 0

        def step(self, x):
            self.history.append(self.state)
            return self.handlers[self.state](x)

    m = Machine()
    f = wrap(m.step)
    for _ in range(8):
        yield f(ones(2)), m.state, m.count, m.history


@session
def decoding_with_a_cache(wrap):
    class Cache:
        def __init__(self):
            self.keys, self.length = None, 0

        def update(self, k):
            self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=1)
            self.length += k.shape[1]
            return self.keys

    def step(x, cache=None, positions=None):
        if positions is None:
            begin = 0 if cache is None else cache.length
            positions = torch.arange(begin, begin + x.shape[1])
        k = x + positions[None, :, None]
        keys = cache.update(k) if cache is not None else k
        return (x @ keys.transpose(1, 2)).sum(-1), cache

    f, cache = wrap(step), Cache()
    yield f(ones(1, 3, 2))[0]
    x = ones(1, 4, 2)
    for _ in range(5):
        y, cache = f(x, cache)
        x = y[:, -1:, None].expand(1, 1, 2) / 100
        yield y, cache.length, cache.keys


@session
def beams_and_sampling(wrap):
    def step(logits, k, generator, seen):
        probabilities = torch.softmax(logits, -1)
        values, indices = probabilities.topk(k)
        pick = torch.multinomial(probabilities, 1, generator=generator)
        seen.add(int(pick[0]))
        return (
            values,
            indices,
            pick,
            sorted(seen),
            [(round(v, 3), i) for v, i in zip(values[0].tolist(), indices[0].tolist())],
        )

    f, generator, seen = wrap(step), torch.Generator().manual_seed(1), set()
    for k in (1, 2, 2, 3):
        yield f(ones(1, 4), k, generator, seen), seen


@session
def losses_with_options(wrap):
    def step(x, y, reduction, weight=None, smoothing=0.0):
        loss = functional.cross_entropy(
            x, y, weight=weight, reduction=reduction, label_smoothing=smoothing
        )
        return loss if loss.dim() == 0 else loss.mean() * 2

    f = wrap(step)
    for reduction, weight, smoothing in (
        ("mean", None, 0.0),
        ("sum", None, 0.0),
        ("none", ones(3), 0.0),
        ("mean", ones(3), 0.1),
        ("mean", None, 0.0),
    ):
        x = ones(2, 3).requires_grad_()
        loss = f(x, torch.tensor([0, 2]), reduction, weight, smoothing)
        loss.backward()
        yield loss.detach(), x
    yield tried(f, ones(2, 3), torch.tensor([0, 2]), "bad")
    yield tried(f, ones(2, 3), torch.tensor([0, 7]), "mean")[:2]


@session
def masks_and_lengths(wrap):
    def step(x, lengths):
        most = max(lengths)
        mask = torch.tensor([[k < n for k in range(most)] for n in lengths])
        total = (x[:, :most] * mask).sum(1) / torch.tensor(lengths)
        chunks = torch.split(x.flatten(), lengths + [x.numel() - sum(lengths)])
        return total, [c.sum() for c in chunks], mask.sum()

    f = wrap(step)
    for lengths in ([1, 2], [3, 3], [2, 1], [1, 1]):
        yield f(ones(2, 3), lengths)


@session
def bits_of_everything_after_breaks(wrap):
    def step(x, table):
        out = torch.empty_like(x)
        for k, (name, fn) in enumerate(table.items()):
            if name == "skip":
                continue
            part = fn(x) if callable(fn) else x * fn
            say(name, k)
            out = out * 0 + part if k == 0 else out + part
            with contextlib.suppress(KeyError):
                out = out + table["bias"][name]
        return out, out.shape

    f, table = (
        wrap(step),
        {"sin": torch.sin, "two": 2, "skip": None, "lin": nn.Identity(), "bias": 1.5},
    )
    yield tried(f, ones(2), table)
    table = {"sin": torch.sin, "two": 2, "skip": None}
    yield tried(f, ones(2), table)
    table["bias"] = {"sin": 1}
    yield tried(f, ones(2), table)


@session
def histories_are_cut_in_place(wrap):
    def step(x, w, h):
        y = x * w
        h.detach_()
        h = h * w
        y.detach_()
        return y, h, y.requires_grad, x.requires_grad, w.requires_grad

    f = wrap(step)
    for _ in range(2):
        x, w = ones(2).requires_grad_(), ones(2).requires_grad_()
        h = x * 3
        y, out, *flags = f(x, w, h)
        out.sum().backward()
        yield flags, x.grad, w.grad, h.requires_grad, y
    yield tried(wrap(lambda x: (x.view(-1).detach_(), x + 1)), ones(2))


@session
def arguments_met_first_without_gradients(wrap):
    def step(a, b):
        with torch.no_grad():
            flags = [a.requires_grad, b.requires_grad, a.is_leaf, b.is_leaf]
            c = a * 2
        return a * b + c, flags

    def inferred(a, b):
        with torch.inference_mode():
            flags = [a.requires_grad, a.is_inference()]
        return a * b, flags

    for function in (step, inferred):
        f = wrap(function)
        for mode in (True, False, True):
            a = ones(2).requires_grad_()
            with torch.set_grad_enabled(True):
                b = a * 2
            with torch.set_grad_enabled(mode):
                y, flags = f(b, a)
            yield (
                flags,
                y.requires_grad,
                y.detach(),
                torch.autograd.grad(y.sum(), a) if mode else None,
            )
            yield f(ones(2), b)[1]
