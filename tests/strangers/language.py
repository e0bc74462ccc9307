"""Python as strangers write it: classes with special methods, containers, generators, closures, managers."""

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import math
import operator
import re
import typing

import torch

from tests.strangers.harness import made, rand, stranger


class Vector:
    def __init__(self, t):
        self.t = t

    def __add__(self, other):
        return Vector(self.t + (other.t if isinstance(other, Vector) else other))

    __radd__ = __add__

    def __matmul__(self, other):
        return (self.t * other.t).sum()

    def __iadd__(self, other):
        self.t = self.t + 10 * other
        return self

    def __getitem__(self, key):
        return Vector(self.t[key])

    def __setitem__(self, key, value):
        self.t[key] = value

    def __len__(self):
        return len(self.t)

    def __bool__(self):
        return len(self) > 1

    def __eq__(self, other):
        return isinstance(other, Vector) and self.t.shape == other.t.shape

    def __hash__(self):
        return hash(len(self))

    def __contains__(self, item):
        return item < len(self)

    def __neg__(self):
        return Vector(-self.t)

    def __iter__(self):
        return iter(self.t.unbind())

    def __repr__(self):
        return f"Vector({len(self)})"

    def __getattr__(self, name):
        if name.startswith("times"):
            return self.t * int(name[5:])
        raise AttributeError(name)

    def __call__(self, k=2):
        return self.t**k


@stranger(lambda: (rand(3),), lambda: (rand(1),), lambda: (rand(4),))
def operators_of_a_class(x):
    v = Vector(x.clone())
    w = v + 1 + Vector(x)
    w += 2
    w[0] = 5.0
    text = f"{w!r} {w}"
    return (
        (1 + v).t,
        w.t,
        v @ w,
        w[:1].t,
        bool(v),
        v == w,
        2 in v,
        (-v).t,
        sum(v),
        w.times3,
        v(),
        text,
        len({v: 1, w: 2}),
    )


@dataclasses.dataclass
class Config:
    width: int = 3
    scale: float = 0.5
    names: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.names.append("post")

    @property
    def area(self):
        return self.width**2


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: torch.Tensor
    b: int = 1


@stranger(
    lambda: (rand(3), Config()),
    lambda: (rand(3), Config(4, 2.0)),
    lambda: (rand(3), Config(names=["x"])),
)
def data_classes(x, config):
    other = dataclasses.replace(config, width=config.width + 1)
    frozen = Frozen(x * config.scale)
    try:
        frozen.b = 3
        changed = True
    except dataclasses.FrozenInstanceError:
        changed = False
    return (
        x * other.area,
        frozen.a,
        changed,
        dataclasses.asdict(config),
        config == other,
        len(config.names),
    )


class Mode(enum.Enum):
    MEAN = "mean"
    SUM = "sum"

    def reduce(self, x):
        return getattr(x, self.value)()


class Flags(enum.IntFlag):
    A = 1
    B = 2
    C = 4


@stranger(lambda: (rand(3), Mode.MEAN, Flags.A), lambda: (rand(3), Mode.SUM, Flags.A | Flags.C))
def enums(x, mode, flags):
    if mode is Mode.MEAN:
        x = x * 2
    return (
        mode.reduce(x),
        [m.name for m in Mode],
        flags & Flags.C,
        bool(flags & Flags.B),
        x * int(flags),
        Mode("sum") == mode,
    )


@stranger(
    lambda: (rand(3), {"kind": "scale", "by": 2}),
    lambda: (rand(3), {"kind": "pair", "items": [1, 2]}),
    lambda: (rand(3), (1, 2, 3)),
    lambda: (rand(3), 0.5),
)
def matching(x, command):
    match command:
        case {"kind": "scale", "by": by}:
            return x * by
        case {"kind": "pair", "items": [a, b]} if a < b:
            return x + a - b
        case (first, *rest):
            return x * first + sum(rest)
        case float() as number:
            return x - number
    return x


def chain_of(*functions):
    return functools.reduce(lambda f, g: lambda x: g(f(x)), functions)


@stranger(lambda: (rand(3),))
def functional_style(x):
    double = functools.partial(operator.mul, 2)
    compose = chain_of(double, torch.sin, lambda t: t + 1)
    return (
        compose(x),
        list(map(float, [1, 2])),
        [*filter(None, [0, 1, 2])],
        functools.reduce(operator.add, [x, x, x]),
    )


@stranger(lambda: (rand(4),), lambda: (rand(6),))
def iteration_tools(x):
    pairs = list(itertools.pairwise(x.unbind()))
    out = [a * b for a, b in pairs]
    groups = {k: len(list(g)) for k, g in itertools.groupby([1, 1, 2, 3, 3])}
    total = list(itertools.accumulate([1, 2, 3], operator.mul))
    products = [a * b for a, b in itertools.product([1, 2], repeat=2)]
    taken = list(itertools.islice(itertools.cycle([x.sum(), x.mean()]), 3))
    return (
        torch.stack(out),
        groups,
        total,
        products,
        taken,
        list(zip(*[[1, 2], [3, 4]])),
        list(enumerate("ab", 1)),
    )


def fibonacci():
    a, b = 0, 1
    while True:
        got = yield a
        a, b = b, a + b
        if got is not None:
            a, b = got, got


def delegating(x):
    yield x
    result = yield from inner(x)
    yield result * 2


def inner(x):
    yield x + 1
    return x + 2


@stranger(lambda: (rand(3),))
def generator_games(x):
    g = fibonacci()
    first = [next(g) for _ in range(4)]
    sent = g.send(10)
    g.close()
    return (
        first,
        sent,
        list(delegating(x)),
        sum(t.sum() for t in delegating(x)),
        dict((k, x * k) for k in range(2)),
    )


@contextlib.contextmanager
def scaled(box, by):
    box["scale"] *= by
    try:
        yield box["scale"]
    except ValueError as e:
        box["caught"] = str(e)
    finally:
        box["scale"] /= by


@stranger(lambda: (rand(3), {"scale": 1.0}), lambda: (-rand(3).abs(), {"scale": 3.0}))
def managers(x, box):
    with scaled(box, 2) as a, contextlib.suppress(KeyError):
        x = x * a
        box["missing"]
    with scaled(box, 4):
        if x.sum() < 0:
            raise ValueError("negative")
        x = x + 1
    with contextlib.ExitStack() as stack:
        stack.enter_context(scaled(box, 8))
        stack.callback(box.__setitem__, "done", True)
        x = x * box["scale"]
    return x


@stranger(lambda: (rand(3), 3), lambda: (rand(3), 0))
def closures_over_loops(x, n):
    late = [lambda: k for k in range(3)]
    early = [lambda k=k: k for k in range(3)]
    count = 0

    def bump(by=1):
        nonlocal count
        count += by
        return count

    values = [bump(k) for k in range(n)]
    return x * sum(f() for f in late), sum(f() for f in early), values, count, bump.__name__


@stranger(lambda: (rand(5),))
def containers(x):
    queue = collections.deque([x[0], x[1]], maxlen=2)
    queue.append(x[2])
    counts = collections.Counter("abracadabra")
    ordered = collections.OrderedDict(b=1, a=2)
    ordered.move_to_end("b")
    nested = collections.defaultdict(lambda: collections.defaultdict(list))
    nested["a"]["b"].append(x.sum())
    chain = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    heap = [5, 1, 3]
    heapq.heapify(heap)
    return (
        list(queue),
        counts.most_common(2),
        list(ordered),
        nested["a"]["b"],
        chain["b"],
        heapq.heappop(heap),
        sorted({3, 1, 2}),
    )


Point = collections.namedtuple("Point", ["x", "y"], defaults=[0])


class Typed(typing.NamedTuple):
    t: torch.Tensor
    n: int = 2

    def scaled(self):
        return self.t * self.n


@stranger(lambda: (rand(3),))
def named_tuples(x):
    p = Point(x)
    q = p._replace(y=x.sum())
    first, *rest = q
    return (
        p,
        q,
        Typed(x).scaled(),
        Typed(x),
        isinstance(q, tuple),
        first,
        rest,
        p._fields,
        Typed(t=x, n=3)._asdict(),
    )


@stranger(lambda: (rand(3), "a-1,b-2"), lambda: (rand(3), ""))
def strings(x, spec):
    parsed = {k: int(v) for k, v in (part.split("-") for part in spec.split(",") if part)}
    found = re.findall(r"[a-z]", spec)
    label = f"{len(x)=} {x.shape[0]:>4d} {math.pi:.3f} {spec!r:>10}"
    return (
        x * sum(parsed.values()),
        found,
        label,
        "%s-%d" % ("a", 3),
        "{0}{1}".format(*"ab"),
        spec.upper().encode(),
    )


class Meta(type):
    registry = []

    def __new__(mcs, name, bases, space, **options):
        made = super().__new__(mcs, name, bases, space, **options)
        mcs.registry.append(name)
        return made

    def __init__(cls, name, bases, space, **options):
        super().__init__(name, bases, space)

    def __len__(cls):
        return 7


class WithMeta(metaclass=Meta):
    factor = 3

    def __init_subclass__(cls, factor=1, **rest):
        super().__init_subclass__(**rest)
        cls.factor = factor


class Child(WithMeta, factor=5):
    pass


@stranger(lambda: (rand(3),))
def metaclasses(x):
    return (
        x * Child.factor,
        len(Child),
        WithMeta().factor,
        type(Child).__name__,
        issubclass(Child, WithMeta),
        [c.__name__ for c in Child.__mro__],
    )


class Celsius:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, 0.0) * 1.8 + 32

    def __set__(self, instance, value):
        setattr(instance, self.name, value)


class Weather:
    temperature = Celsius()
    __slots__ = ("_temperature", "wind")

    def __init__(self):
        self.wind = 1.0

    @functools.cached_property
    def never(self):
        return 1


@stranger(lambda: (rand(3), 10.0), lambda: (rand(3), 20.0))
def descriptors(x, degrees):
    w = Weather()
    before = w.temperature
    w.temperature = degrees
    w.wind += 1
    return (
        x * w.temperature,
        before,
        w.wind,
        isinstance(Weather.temperature, Celsius),
        hasattr(w, "missing"),
    )


@stranger(lambda: (rand(3), [3, 1, 2]), lambda: (rand(3), [1]))
def sorting(x, items):
    ranked = sorted(items, key=lambda v: -v)
    items.sort(reverse=True)
    words = sorted(["bb", "a", "ccc"], key=len)
    return (
        x * ranked[0],
        items,
        words,
        max(items, default=0),
        min(items, key=abs),
        items[::-1],
        any(v > 2 for v in items),
        all(items),
    )


@stranger(lambda: (rand(3), {"a": 1, "b": {"c": [2, 3]}}), lambda: (rand(3), {"b": {"c": [5]}}))
def nested_structures(x, tree):
    shallow, deep = copy.copy(tree), copy.deepcopy(tree)
    shallow["b"]["c"].append(9)
    deep["b"]["c"].clear()
    merged = {**tree, "z": 1} | {"a": 7}
    flat = [v for part in tree["b"].values() for v in part]
    return (
        x * sum(flat),
        merged,
        deep,
        {v: k for k, v in merged.items() if isinstance(v, int)},
        list(tree),
    )


@stranger(lambda: (rand(3), 5), lambda: (rand(3), 0), lambda: (rand(3), 1))
def recursion(x, depth):
    def go(t, d):
        return t if d == 0 else go(t * 1.1, d - 1) + d

    def is_even(n):
        return n == 0 or is_odd(n - 1)

    def is_odd(n):
        return n != 0 and is_even(n - 1)

    return go(x, depth), is_even(depth)


@stranger(lambda: (rand(3), 1, 2), lambda: (rand(3),), lambda: (rand(3), 4))
def signatures(x, a=10, /, *rest, key=None, **options):
    def inner(*args, scale=1, **kw):
        return sum(args) * scale + len(kw)

    return x * inner(a, *rest, scale=2, **{"u": 1, **options}), key, rest


@stranger(lambda: (rand(3), 12), lambda: (rand(3), 7))
def loops_with_else(x, n):
    for d in range(2, n):
        if n % d == 0:
            x = x * d
            break
    else:
        x = x - 1
    k = 0
    while True:
        k += 1
        if k % 2:
            continue
        if k > 4:
            break
        x = x + k
    return x, k


class Base:
    def __init__(self, k):
        self.k = k

    def run(self, x):
        return x + self.k


class Mixin:
    def run(self, x):
        return super().run(x) * 2


class Derived(Mixin, Base):
    def __init__(self):
        super().__init__(k=3)

    def run(self, x):
        return super().run(x) - 1


@stranger(lambda: (rand(3),))
def cooperative_classes(x):
    d = Derived()
    return d.run(x), Base.run(d, x), super(Mixin, d).run(x), type(d).mro()[1].__name__, vars(d)


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return function(*args, **kwargs) + wrapper.calls

    wrapper.calls = 0
    return wrapper


@made(*[lambda: (rand(3),)] * 3)
def decorators():
    @logged
    def run(x):
        return x * 2

    return run, run.__dict__


@made(*[lambda: (rand(3), 4)] * 3, lambda: (rand(3), 6))
def memoised():
    calls = []

    @functools.lru_cache(maxsize=None)
    def slow(n):
        calls.append(n)
        return n * n

    return (lambda x, n: x * slow(n) + slow(n + 1)), calls


@stranger(lambda: (rand(3), 2**70), lambda: (rand(3), -7))
def big_integers(x, n):
    return (
        n * 3,
        n // 7,
        n % 5,
        (n >> 3) & 0xFF,
        x * (n % 3),
        n.bit_length(),
        divmod(n, 4),
        round(n / 3, -1),
        int(str(n)[-2:]),
    )


@stranger(lambda: (rand(3),))
def walrus_and_conditionals(x):
    if (n := len(x)) > 2 and (total := x.sum()) is not None:
        x = x * n
    return (
        x,
        total,
        [y for v in range(4) if (y := v * 2) > 2],
        n if n else 0,
        not x.numel(),
        (x is None) or n,
    )


@stranger(
    lambda: (rand(3), None),
    lambda: (rand(3), 2.0),
    lambda: (rand(3), rand(3)),
    lambda: (rand(3), "half"),
)
def arguments_of_many_types(x, other):
    if other is None:
        return x
    if isinstance(other, torch.Tensor):
        return x + other
    if callable(other) or isinstance(other, str):
        return getattr(x, other)()
    return x * other


@stranger(lambda: (rand(3), [rand(2), None, 3, "s", (rand(1), {"k": rand(2)})]))
def trees(x, tree):
    def walk(node):
        if isinstance(node, torch.Tensor):
            return node * 2
        if isinstance(node, dict):
            return {k: walk(v) for k, v in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(walk(v) for v in node)
        return node

    return walk(tree), torch.utils._pytree.tree_map(lambda v: v, (x, [x]))


@made(*[lambda: (rand(3),)] * 3)
def unhashable_registry():
    registry = {}

    def register(name):
        def decorate(f):
            registry[name] = f
            return f

        return decorate

    @register("sin")
    def a(x):
        return x.sin()

    @register("twice")
    def b(x):
        return x * 2

    def run(x):
        for name in sorted(registry):
            x = registry[name](x)
        if len(registry) < 4:
            register(f"extra{len(registry)}")(lambda t: t + 1)
        return x

    return run, registry


@stranger(lambda: (rand(3),))
def unpacking(x):
    a, (b, *c), d = 1, [x, 2, 3], "z"
    first, *_, last = range(5)
    (e,), [f] = [x], (x.sum(),)
    g = h = [x]
    g.append(1)
    a, c = c, a
    return a, b, c, d, first, last, e, f, len(h), [*"ab", c], {**{"k": x}}
