"""Sessions that look where a compiler has it hard: identity, views, sizes as numbers, names, odd classes."""

import collections
import functools
import itertools
import json
import math
import operator
import sys
import types

import torch
from torch import nn

from tests.strangers.sessions import session, tried


def ones(*shape):
    return torch.arange(1.0, 1.0 + int(torch.tensor(shape).prod())).reshape(shape)


@session
def views_of_dicts_are_views(wrap):
    def step(x, d):
        d["k"] = x + 1
        return d.keys(), d.values(), d.items()

    f, d = wrap(step), {"a": 1}
    keys, values, items = f(ones(2), d)
    d["later"] = 5
    yield list(keys), list(values), len(items), "later" in keys
    made = wrap(lambda x: (m := {"x": x + 1}, m.items()))(ones(2))
    made[0]["y"] = 2
    yield len(made[1])


@session
def iterators_are_given_back(wrap):
    def step(x, items):
        it = iter(items)
        next(it)
        doubled = map(lambda v: v * 2, items)
        return (
            it,
            zip(it, it),
            doubled,
            enumerate(items, 5),
            reversed(items),
            filter(None, [0, 1, 2]),
            x + 1,
        )

    f, items = wrap(step), [1, 2, 3, 4, 5, 6]
    for _ in range(2):
        it, pairs, doubled, numbered, back, some, _ = f(ones(2), items)
        items.append(7)
        yield next(pairs), list(it), list(doubled), list(numbered), list(back), list(some)

    def lazy(x, n):
        k = n
        g = (x * i + k for i in range(n))
        k = 100
        return g, (i for i in [k])

    g, h = wrap(lazy)(ones(2), 3)
    yield list(g), list(h)


@session
def containers_in_two_places(wrap):
    class Pair:
        def __init__(self):
            self.a = [1]
            self.b = self.a
            self.c = {"a": self.a}

    def step(x, p):
        p.a.append(x)
        p.a, p.b = p.b, [p.a]
        p.c["self"] = p.c
        p.c["a"].append(2)
        return len(p.a), p.b[0] is p.a, p.c["a"] is p.a, p.c["self"]["self"] is p.c

    f, p = wrap(step), Pair()
    for _ in range(3):
        yield f(ones(2), p), len(p.a), len(p.b), p.b[0] is p.a, p.c["a"] is p.b, sorted(p.c)
    p.b = p.a
    yield f(ones(2), p), p.b[0] is p.a


@session
def a_list_that_holds_itself(wrap):
    def step(x, items):
        items.append(items)
        items.insert(0, x + 1)
        return len(items), items[-1] is items

    f, items = wrap(step), [1]
    yield f(ones(2), items), len(items), items[-1] is items
    yield tried(f, ones(2), items), len(items)


@session
def slices_and_deletions(wrap):
    def step(x, items):
        items[1:3] = [x, x + 1, x + 2]
        del items[0], items[-1:]
        items[::2] = [0] * len(items[::2])
        items *= 2
        items.reverse()
        return items.copy() is items, items[-2:]

    f = wrap(step)
    for n in (4, 5, 4):
        items = list(range(n))
        yield f(ones(2), items), items
    yield tried(f, ones(2), [])


@session
def sizes_as_numbers(wrap):
    seen, table = [], {}

    def step(x):
        n, m = x.shape
        seen.append(n)
        table[n] = table.get(n, 0) + 1
        total = n * m - m // 2 + (n << 1) - n % 3
        text = f"{n:03d}/{m}/{total}" + "=" * n
        return (
            x * n, n / m, -n // 4, n**2, total, text, type(n) is int, isinstance(n, int), hash(n) == n, json.dumps({"n": n}),
            [i for i in range(n)], n in (2, 3), min(n, 4), max([n, 3]), divmod(n, 2), (n, m) == x.shape, x.shape == torch.Size([n, m]),
            n & 1, abs(3 - n), float(n), str(n), bool(n - 2), int(n / 2), round(n / 3, 2), math.sqrt(n), slice(n), n.bit_length(),
        )  # fmt: skip

    f = wrap(step)
    for n in (2, 3, 4, 5, 6, 1, 0, 7):
        yield (
            f(torch.ones(n, 3)),
            seen,
            table,
            [type(s).__name__ for s in seen],
            [type(k).__name__ for k in table],
        )


@session
def sizes_kept_outside(wrap):
    class Keeper:
        total = 0

        def __init__(self):
            self.last, self.shape, self.log = None, None, collections.deque(maxlen=2)

    def step(x, keeper):
        same = keeper.last == x.size(0)
        keeper.last, keeper.shape = x.size(0), x.shape
        keeper.log.append((x.shape[0], x.numel()))
        Keeper.total += x.shape[0]
        return (
            x.sum() * keeper.total,
            same,
            x.new_zeros(keeper.last),
            x.stride(),
            x.view(-1, x.shape[-1]).shape[0],
        )

    f, keeper = wrap(step), Keeper()
    for n in (2, 3, 3, 4, 5, 5):
        yield (
            f(ones(n, 2), keeper),
            vars(keeper),
            keeper.total,
            type(keeper.last).__name__,
            type(keeper.shape).__name__,
        )
    Keeper.total = 0


@session
def floats_as_numbers(wrap):
    seen = []

    def step(x, k):
        seen.append(k)
        y = x * k if k > 0.15 else x - k
        return (
            y,
            f"{k:.3f}",
            k + 1,
            math.isnan(k),
            k == 0,
            {k: 1}.get(0.1, 0),
            repr(k),
            k.is_integer(),
            math.copysign(1, k),
            int(k) if k < 9 else 9,
        )

    f = wrap(step)
    for k in (0.1, 0.2, 0.3, 0.4, 0.5, 0.0, -0.0, 2.0, 1e300, 1e-320, 0.1):
        yield f(ones(2), k), seen
    yield tried(f, ones(2), float("nan")), tried(f, ones(2), float("inf"))
    g = wrap(
        lambda x, k: (
            torch.full((2,), k)
            + torch.nn.functional.dropout(x, k if k < 1 else 0.0, training=False) * max(k, 0.5)
        )
    )
    for k in (0.0, 0.25, 0.75, 3.0):
        yield g(ones(2), k)


@session
def what_gives_itself_back(wrap):
    def step(x):
        return (
            x.contiguous() is x, x.to(torch.float32) is x, x.float() is x, x.reshape(x.shape) is x, x.view_as(x) is x, x.detach() is x,
            x.requires_grad_(False) is x, x.expand_as(x) is x, x.cpu() is x, x.type(torch.float32) is x, x.squeeze() is x, x.add_(1) is x,
            x.clone() is x, torch.as_tensor(x) is x, x.T is x, x[:] is x, x[...] is x, x.data is x, (+x) is x, x.real is x, x.resolve_conj() is x,
        )  # fmt: skip

    f = wrap(step)
    yield f(ones(2)), f(ones(2, 2)), f(ones(2, 2).t()), f(ones(2).double())
    g = wrap(lambda x: (x.contiguous(), x.float(), x[:], x.detach(), x))
    x = ones(2, 2)
    a = g(x)
    yield (
        [t is x for t in a],
        [t.data_ptr() == x.data_ptr() for t in a],
        [t._base is x for t in a],
        [t._version for t in a],
    )
    a[2].add_(1)
    yield x


@session
def tensors_with_attributes(wrap):
    def step(x, w):
        if not hasattr(x, "count"):
            x.count = 0
        x.count += 1
        y = x * x.count
        y.tag = ("made", x.count)
        w.seen = getattr(w, "seen", ()) + (x.count,)
        return y, y.tag

    f, w = wrap(step), nn.Parameter(ones(2))
    x = ones(2)
    for _ in range(3):
        y, tag = f(x, w)
        yield y, tag, x.count, getattr(y, "tag", "lost"), w.seen
    del x.count
    yield f(x, w)[1], x.count


@session
def tensors_as_keys_and_members(wrap):
    def step(x, y, table, group):
        table[x] = table.get(x, 0) + 1
        table.setdefault(y, 10)
        group.add(x)
        return x in group, y in group, len(table), table[x], x in [x, y], [k is x for k in table]

    f, table, group = wrap(step), {}, set()
    x, y, z = ones(2), ones(2) * 2, ones(2)
    for a, b in ((x, y), (x, y), (y, x), (z, x)):
        yield f(a, b, table, group), len(table), len(group), list(table.values())
    yield tried(wrap(lambda x, items: (x + 1, x in items)), ones(2), [ones(2)])
    yield tried(wrap(lambda x: (x == None, x != None, x is None)), ones(2))  # noqa: E711


@session
def classes_change_under_objects(wrap):
    class Cat:
        def say(self, x):
            return x + 1

    class Dog:
        def say(self, x):
            return x * 10

    def step(x, pet):
        y = pet.say(x)
        if y.shape[0] > 2:
            pet.__class__ = Dog if isinstance(pet, Cat) else Cat
        return y, type(pet).__name__

    f, pet = wrap(step), Cat()
    yield f(ones(2), pet)
    pet.__class__ = Dog
    yield f(ones(2), pet)
    yield f(ones(3), pet), type(pet).__name__
    pet.__dict__ = {"say": lambda x: x * 0}
    yield f(ones(2), pet)

    def whole(x, pet):
        pet.__dict__ = {"n": x}
        pet.__dict__["m"] = 2
        vars(pet)["k"] = 3
        return pet.n + pet.m, sorted(vars(pet))

    yield tried(wrap(whole), ones(2), pet), sorted(vars(pet))


@session
def singletons_and_pools(wrap):
    class Single:
        instance = None

        def __new__(cls, *args):
            if cls.instance is None:
                cls.instance = super().__new__(cls)
                cls.instance.n = 0
            return cls.instance

        def __init__(self, k=0):
            self.n += 1 + k

    class Borg:
        shared = {}

        def __init__(self):
            self.__dict__ = Borg.shared

    def step(x, k):
        s = Single(k)
        b = Borg()
        b.count = getattr(b, "count", 0) + 1
        return x * s.n + b.count, s is Single.instance, Single() is s

    f = wrap(step)
    for k in (0, 1, 0):
        yield f(ones(2), k), Single.instance.n, Borg.shared
    Single.instance = None
    yield f(ones(2), 0), Single.instance.n


@session
def custom_attribute_access(wrap):
    class Watched:
        def __init__(self):
            self.log, self.x = [], 1.0

        def __getattribute__(self, name):
            if not name.startswith("_") and name != "log":
                object.__getattribute__(self, "log").append(name)
            return object.__getattribute__(self, name)

        def method(self, x):
            return x * self.x

    class Meta(type):
        def __instancecheck__(cls, other):
            return hasattr(other, "quack")

        def __contains__(cls, item):
            return item == 3

        def __getitem__(cls, k):
            return k * 2

    class Duck(metaclass=Meta):
        pass

    def step(x, w):
        return (
            w.method(x),
            getattr(w, "x"),
            hasattr(w, "none"),
            isinstance(w, Duck),
            3 in Duck,
            Duck[4],
        )

    f, w = wrap(step), Watched()
    for _ in range(2):
        yield f(ones(2), w), w.log
    w.quack = 1
    w.x = 5.0
    yield f(ones(2), w), w.log


K = 1


@session
def names_of_all_kinds(wrap):
    global K
    K = 1
    module = types.ModuleType("stranger_module")
    module.rate = 2.0

    def step(x):
        y = x
        del x
        try:
            x  # noqa: B018, F821
        except UnboundLocalError as error:
            text = str(error)
        loc = sorted(locals())
        g = globals()["K"]
        globals()["K"] = g + 1
        z = eval("y * 2 + K")
        return (
            z,
            text,
            loc,
            K,
            module.rate,
            vars(module)["rate"],
            getattr(module, "none", "no"),
            sys.modules.get("nothing_here"),
        )

    f = wrap(step)
    for _ in range(2):
        yield f(ones(2)), K
    module.rate = 9.0
    yield f(ones(2)), K

    def deletes(x):
        global K
        module.temp = x * 2
        y = module.temp + 1
        del module.temp
        has = hasattr(module, "temp")
        saved, K = K, 5
        del K
        try:
            K  # noqa: B018
        except NameError as error:
            text = str(error)
        K = saved  # noqa: F841
        return y, text, has

    yield tried(wrap(deletes), ones(2)), K, hasattr(module, "temp")

    def deletes_twice(x):
        del module.temp
        return module.temp

    module.temp = 1
    yield tried(wrap(deletes_twice), ones(2)), hasattr(module, "temp")


@session
def builtins_are_shadowed(wrap):
    space = {"torch": torch, "__name__": "stranger_space", "__builtins__": __builtins__}
    exec(
        "def step(x):\n    return x * len([1, 2]) + abs(-1) + helper(x) if 'helper' in globals() else x * len([1, 2]) + abs(-1)",
        space,
    )
    f = wrap(space["step"])
    yield f(ones(2))
    space["len"] = lambda items: 100
    yield f(ones(2))
    del space["len"]
    space["abs"] = lambda v: 7
    yield f(ones(2))
    space["helper"] = lambda x: x * 1000
    yield f(ones(2))
    real, math.floor = math.floor, lambda v: 42
    try:
        yield wrap(lambda x: x * math.floor(1.5))(ones(2))
    finally:
        math.floor = real
    g = wrap(lambda x: x * math.floor(1.5))
    yield g(ones(2))
    math.floor = lambda v: 43
    try:
        yield g(ones(2))
    finally:
        math.floor = real


@session
def functions_change(wrap):
    def helper(x, k=2):
        return x * k

    def step(x):
        helper.calls = getattr(helper, "calls", 0) + 1
        return helper(x), helper.__name__, helper.__doc__, helper.calls

    f = wrap(step)
    yield f(ones(2))
    helper.__defaults__ = (5,)
    yield f(ones(2))
    helper.__code__ = (lambda x, k=0: x + k).__code__
    yield f(ones(2))
    helper.__name__, helper.__doc__ = "renamed", "doc"
    yield f(ones(2))
    helper.calls = 50
    yield f(ones(2))
    step.__code__ = (lambda x: x * -1).__code__ if not step.__closure__ else step.__code__
    yield f(ones(2))


@session
def cells_are_written_from_outside(wrap):
    n = 1
    table = {"k": 1}

    def step(x):
        return x * n + table["k"]

    def other(value):
        nonlocal n, table
        n = value
        table = {"k": value * 10}

    f = wrap(step)
    yield f(ones(2))
    other(2)
    yield f(ones(2))
    step.__closure__[0].cell_contents = 7
    yield f(ones(2))
    del n
    yield tried(f, ones(2))
    n = ones(2)
    yield f(ones(2))


@session
def recursion_of_all_kinds(wrap):
    def fib(n, memo={}):  # noqa: B006
        if n not in memo:
            memo[n] = n if n < 2 else fib(n - 1) + fib(n - 2)
        return memo[n]

    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    def tree(x, depth):
        return x if depth == 0 else tree(x * 2, depth - 1) + tree(x + 1, depth - 1)

    def nested(x):
        if isinstance(x, dict):
            return {k: nested(v) for k, v in x.items()}
        if isinstance(x, list | tuple):
            return type(x)(nested(v) for v in x)
        return x * 2 if isinstance(x, torch.Tensor) else x

    def step(x, n):
        y = (lambda f: f(f, n))(lambda f, k: 1 if k < 2 else k * f(f, k - 1))
        return tree(x, 3), fib(n), even(n), y, nested({"a": [x, (x, 1)], "b": {"c": x}})

    f = wrap(step)
    for n in (5, 6, 5):
        yield f(ones(2), n), len(fib.__defaults__[0])

    def endless(x):
        return endless(x + 1)

    yield tried(wrap(endless), ones(2))[:2]


@session
def comparisons_that_are_odd(wrap):
    class Odd:
        def __init__(self, x):
            self.x = x

        def __eq__(self, other):
            return self.x == other

        def __lt__(self, other):
            return "less"

        def __contains__(self, item):
            return item

        def __iter__(self):
            self.x = self.x + 1
            return iter([self.x, self.x * 2])

        __hash__ = None

    def step(x, odd):
        return odd == x, (odd < 3), (5 in odd), [*odd], 1 < 2 < 3 > 2, x if odd is not None else 0

    f, odd = wrap(step), Odd(ones(2))
    for _ in range(2):
        yield f(ones(2), odd), odd.x
    yield tried(wrap(lambda x, odd: (x + 1, {odd: 1})), ones(2), odd)
    nan = float("nan")
    yield wrap(lambda x, v: (x + 1, v == v, v in [v], v in (1.0, nan), {v: 1}.get(v)))(ones(2), nan)


@session
def subclasses_of_builtins(wrap):
    class Stack(list):
        depth = 0

        def push(self, item):
            self.append(item)
            self.depth += 1
            return self

        def __getitem__(self, k):
            return (
                super().__getitem__(k) if isinstance(k, slice) else ("item", super().__getitem__(k))
            )

    class Lower(dict):
        def __missing__(self, key):
            self[key] = key.upper()
            return self[key]

        def __setitem__(self, key, value):
            super().__setitem__(key.lower(), value)

    class Metres(float):
        def __add__(self, other):
            return Metres(float(self) + other)

    class Name(str):
        def __len__(self):
            return 99

    def step(x, stack, lower, metres, name):
        stack.push(x).push(1)
        lower["ABC"] = x
        return (
            stack[0],
            stack[-1:],
            stack.depth,
            lower["q"],
            "abc" in lower,
            metres + 1,
            type(metres + 1).__name__,
            len(name),
            name.upper(),
            x * metres,
        )

    f, stack, lower = wrap(step), Stack(), Lower()
    for _ in range(2):
        yield (
            f(ones(2), stack, lower, Metres(1.5), Name("n")),
            len(stack),
            stack.depth,
            sorted(lower),
            vars(stack),
        )
    yield f(ones(2), Stack([1]), Lower(a=1), Metres(2), Name("m"))


@session
def modules_made_inside(wrap):
    def step(x, n):
        layer = nn.Linear(2, n)
        nn.init.ones_(layer.weight)
        nn.init.zeros_(layer.bias)
        model = nn.Sequential(layer, nn.ReLU())
        p = nn.Parameter(torch.ones(n))
        return model(x) * p, sum(q.numel() for q in model.parameters()), p.requires_grad

    f = wrap(step)
    for n in (2, 3, 2):
        y, count, grad = f(ones(1, 2).requires_grad_(), n)
        yield y, count, grad
    kept = {}

    def keeps(x):
        if "layer" not in kept:
            kept["layer"] = nn.Linear(2, 2)
            nn.init.ones_(kept["layer"].weight)
            nn.init.zeros_(kept["layer"].bias)
        return kept["layer"](x)

    g = wrap(keeps)
    for _ in range(3):
        yield g(ones(1, 2)), sorted(kept), kept["layer"].weight


@session
def gradients_are_read_and_set(wrap):
    def step(w, x):
        if w.grad is None:
            w.grad = torch.zeros_like(w)
        w.grad.add_(x)
        norm = w.grad.norm()
        with torch.no_grad():
            w.sub_(w.grad * 0.1)
        if norm > 10:
            w.grad = None
        return norm, w.grad is None

    f, w = wrap(step), ones(2).requires_grad_()
    for k in (1, 2, 5, 1):
        yield f(w, ones(2) * k), w


@session
def out_arguments_and_resizing(wrap):
    def step(x, out):
        torch.add(x, 1, out=out)
        y = x.unsqueeze_(0)
        y.squeeze_(0)
        z = torch.empty(0)
        torch.mul(x, 2, out=z)
        return out * 2, z.shape, x.shape

    f = wrap(step)
    x, out = ones(3), torch.zeros(3)
    yield tried(f, x, out), out, x
    out = torch.zeros(0)
    yield tried(f, x, out), out.shape
    g = wrap(lambda x: (x.t_(), x.shape, x.is_contiguous())[1:])
    x = ones(2, 3)
    yield g(x), x, g(x), x


@session
def many_arguments_and_keywords(wrap):
    def step(a, /, b, *args, c=3, d, **kw):
        return a * b + sum(args) + c - d, sorted(kw), args

    f = wrap(step)
    yield (
        f(ones(2), 2, 3, 4, d=1),
        f(ones(2), b=2, d=0, e=5, a=6),
        f(ones(2), 2, d=ones(2), c=ones(2)),
    )
    for bad in (
        (lambda: f(ones(2))),
        (lambda: f(ones(2), 2)),
        (lambda: f(a=ones(2), b=1, d=1)),
        (lambda: f(ones(2), 1, b=2, d=1)),
    ):
        yield tried(bad)
    table = {"b": 2, "d": 1}
    yield f(ones(2), **table), wrap(lambda x, kw: step(x, **kw))(ones(2), table)
    table["c"] = 9
    yield wrap(lambda x, kw: step(x, **kw))(ones(2), table)


@session
def chained_functions(wrap):
    def compose(*functions):
        return functools.reduce(lambda f, g: lambda x: g(f(x)), functions)

    def decorate(times):
        def outer(function):
            count = 0

            @functools.wraps(function)
            def inner(*args, **kwargs):
                nonlocal count
                count += 1
                result = function(*args, **kwargs)
                for _ in range(times - 1):
                    result = function(result, **kwargs)
                return result, count

            return inner

        return outer

    @decorate(3)
    def scaled(x, k=2):
        return x * k

    pipeline = compose(torch.sin, lambda x: x + 1, operator.neg, nn.ReLU())
    f = wrap(lambda x: (pipeline(x), scaled(x), scaled(x, k=3), scaled.__name__))
    for _ in range(3):
        yield f(ones(2))


@session
def products_and_combinations(wrap):
    def step(xs, n):
        pairs = [a * b for a, b in itertools.combinations(xs, 2)]
        grid = list(itertools.product(range(n), "ab"))
        rounds = list(itertools.islice(itertools.cycle(xs), n))
        longest = list(itertools.zip_longest(xs, range(n), fillvalue=-1))
        a, b = itertools.tee(iter(range(n)))
        next(a, None)
        taken = (
            list(itertools.takewhile(lambda v: v < 2, range(n))),
            list(itertools.dropwhile(lambda v: v < 2, range(n))),
        )
        return (
            pairs,
            grid,
            rounds,
            longest,
            list(zip(a, b)),
            taken,
            list(itertools.chain.from_iterable([[n], xs])),
            list(itertools.starmap(pow, [(n, 2)])),
        )

    f = wrap(step)
    for n in (3, 4, 0):
        yield f([ones(2), ones(2) * 2], n)


@session
def functions_are_changed_inside(wrap):
    def helper(x, k=2, *, m=1):
        return x * k + m

    def step(x, n):
        a = helper(x)
        helper.__defaults__ = (n,)
        helper.__kwdefaults__ = {"m": n}
        b = helper(x)
        helper.tag = n
        return a, b, helper.__defaults__, helper.tag

    f = wrap(step)
    for n in (3, 4, 4):
        yield f(ones(2), n), helper.__defaults__, helper.__kwdefaults__, helper.tag

    class A:
        def go(self, x):
            return x

    class B:
        def go(self, x):
            return -x

    class C(A):
        pass

    def rebase(x, c):
        y = c.go(x)
        type(c).__bases__ = (B,) if type(c).__bases__ == (A,) else (A,)
        return y, c.go(x), isinstance(c, A)

    g = wrap(rebase)
    yield tried(g, ones(2), C()), tried(g, ones(2), C()), C.__bases__[0].__name__


@session
def unpacking_in_python(wrap):
    import itertools

    class Asked:
        def __init__(self):
            self.log = []

        def __len__(self):
            self.log.append("len")
            return 2

        def __iter__(self):
            self.log.append("iter")
            return iter([1, 2])

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            print("missing", name)
            return 1

    def step(x, value):
        print("begin")
        a, b = value
        return x + a + b

    f, asked = wrap(step), Asked()
    yield f(ones(2), asked), asked.log
    for value in (
        (1, 2),
        [3, 4],
        {5: 0, 6: 0},
        iter([7, 8]),
        ones(2),
        (1, 2, 3),
        [1],
        5,
        None,
        itertools.count(),
    ):
        yield tried(f, ones(2), value)
