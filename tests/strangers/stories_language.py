"""Sessions about the language: classes, attributes, closures, generators, handlers, matching, containers."""

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import typing

import torch

from tests.strangers.sessions import session, tried


def ones(*shape):
    return torch.arange(1.0, 1.0 + int(torch.tensor(shape).prod())).reshape(shape)


@session
def a_dataclass_with_a_default_factory(wrap):
    @dataclasses.dataclass
    class Config:
        scale: float = 2.0
        shifts: list = dataclasses.field(default_factory=list)
        note: str = dataclasses.field(default="n", compare=False)

        def __post_init__(self):
            self.total = self.scale * 2

    def step(x, config):
        config.shifts.append(x.sum())
        other = dataclasses.replace(config, scale=config.scale + 1)
        return x * config.total + len(config.shifts), other, config == other

    f, config = wrap(step), Config()
    for _ in range(3):
        yield f(ones(2), config), config
    config.scale = 5.0
    yield f(ones(2), config), config
    config.total = 7.0
    yield f(ones(2), config), config, dataclasses.asdict(Config())


@session
def a_frozen_dataclass_as_key(wrap):
    @dataclasses.dataclass(frozen=True, order=True)
    class Key:
        a: int
        b: str = "x"

    table = {Key(1): 10.0, Key(2): 20.0}

    def step(x, key):
        return x * table.get(key, 1.0), key > Key(1), {key: x}[Key(key.a, key.b)]

    f = wrap(step)
    for key in (Key(1), Key(2), Key(3), Key(2, "y")):
        yield f(ones(2), key)
    table[Key(3)] = 30.0
    yield f(ones(2), Key(3))

    def breaks_the_rule(x, key):
        key.a = 3
        return x

    yield tried(wrap(breaks_the_rule), ones(2), Key(1))


@session
def descriptors_that_validate(wrap):
    class Positive:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, kind=None):
            return self if obj is None else getattr(obj, self.name, 0)

        def __set__(self, obj, value):
            if value < 0:
                raise ValueError(f"{self.name}: {value}")
            setattr(obj, self.name, value)

    class Thing:
        width = Positive()
        height = Positive()

    def step(thing, x, w):
        thing.width = w
        try:
            thing.height = w - 2
        except ValueError as error:
            return x, str(error), thing.width
        return x * thing.width + thing.height, thing.height

    f, thing = wrap(step), Thing()
    for w in (3, 1, 5, -1, 2):
        yield tried(f, thing, ones(2), w), vars(thing)
    Positive.__get__ = lambda self, obj, kind=None: 100
    yield tried(f, thing, ones(2), 3), vars(thing)


@session
def a_property_that_counts(wrap):
    class Meter:
        def __init__(self):
            self.reads = 0
            self._level = 1.0

        @property
        def level(self):
            self.reads += 1
            return self._level * self.reads

        @level.setter
        def level(self, value):
            self._level = value
            self.reads = 0

        @level.deleter
        def level(self):
            self._level = -1.0

    def step(x, m):
        y = x * m.level + m.level
        if m.reads > 3:
            m.level = 0.5
        if m.reads == 0 and m._level == 0.5:
            del m.level
        return y

    f, m = wrap(step), Meter()
    for _ in range(6):
        yield f(ones(2), m), m


@session
def getattr_and_setattr_of_a_proxy(wrap):
    class Proxy:
        def __init__(self, target):
            object.__setattr__(self, "target", target)
            object.__setattr__(self, "log", [])

        def __getattr__(self, name):
            self.log.append(f"get {name}")
            return self.target[name]

        def __setattr__(self, name, value):
            self.log.append(f"set {name}")
            self.target[name] = value

        def __delattr__(self, name):
            self.log.append(f"del {name}")
            del self.target[name]

    def step(p, x):
        p.count = p.count + 1
        y = x * p.scale + p.count
        if p.count > 2 and hasattr_(p, "extra"):
            del p.extra
        return y

    def hasattr_(p, name):
        try:
            getattr(p, name)
        except KeyError:
            return False
        return True

    f, p = wrap(step), Proxy({"count": 0, "scale": 2.0, "extra": 1})
    for _ in range(4):
        yield f(p, ones(2)), p.target, p.log
    p.target["scale"] = ones(2)
    yield f(p, ones(2)), p.target, p.log


@session
def slots_and_inheritance(wrap):
    class Base:
        __slots__ = ("a",)

    class Derived(Base):
        __slots__ = ("b", "__dict__")

    def step(x, d):
        d.b = x + d.a
        if not hasattr(d, "c"):
            d.c = 0
        d.c += 1
        try:
            d.a = d.a + 1
            return d.missing
        except AttributeError as error:
            return str(error), d.c, d.b

    f, d = wrap(step), Derived()
    d.a = 1
    for _ in range(3):
        yield f(ones(2), d), d.a, d.b, d.c
    del d.a
    yield tried(f, ones(2), d)


@session
def class_attributes_change(wrap):
    class Base:
        rate = 1.0
        history = []

    class Child(Base):
        pass

    def step(x, obj):
        type(obj).history.append(type(obj).rate)
        Child.rate = Child.rate + 1
        return x * obj.rate + len(Base.history)

    f = wrap(step)
    yield f(ones(2), Child()), Base.rate, Child.rate, Base.history
    yield f(ones(2), Child()), Base.rate, Child.rate, Base.history
    Base.rate = 10.0
    yield f(ones(2), Base()), Base.rate, Child.rate, Base.history
    del Child.rate
    yield f(ones(2), Child()), Base.rate, Child.rate, Base.history
    Child.history = []
    yield f(ones(2), Child()), Base.history, Child.history


@session
def enums_of_all_kinds(wrap):
    class Mode(enum.Enum):
        SUM = "sum"
        MEAN = "mean"

        def apply(self, x):
            return x.sum() if self is Mode.SUM else x.mean()

        @classmethod
        def _missing_(cls, value):
            return cls.MEAN

    class Flag(enum.IntFlag):
        A = 1
        B = 2

    class Level(enum.IntEnum):
        LOW = 1
        HIGH = 5

    def step(x, mode, flags, level):
        y = Mode(mode).apply(x)
        if flags & Flag.B:
            y = y * 2
        return (
            y + level,
            f"{Mode(mode)} {flags!r} {level:d}",
            Level(level).name,
            [m.name for m in Mode],
            level > 3,
        )

    f = wrap(step)
    for args in (
        ("sum", Flag.A, Level.LOW),
        ("mean", Flag.A | Flag.B, Level.HIGH),
        ("zzz", Flag(0), Level.LOW),
    ):
        yield f(ones(3), *args)
    yield tried(f, ones(3), "sum", Flag.A, 7)


@session
def named_tuples_in_and_out(wrap):
    class Pair(typing.NamedTuple):
        x: torch.Tensor
        n: int = 3

        def scaled(self):
            return self._replace(x=self.x * self.n)

    Point = collections.namedtuple("Point", "a b", defaults=[4])

    def step(p, q):
        x, n = p
        made = Pair(x=q.a + n)
        return (
            made.scaled(),
            p._asdict(),
            Point(*q)._replace(b=x),
            Pair._fields,
            p == made if n > 5 else None,
        )

    f = wrap(step)
    for n in (1, 2, 2):
        yield f(Pair(ones(2), n), Point(ones(2)))
    yield f(Pair(ones(2)), Point(ones(2), b=7))


@session
def partials_change(wrap):
    def base(x, a, *, b=1, c=0):
        return x * a + b - c

    step = functools.partial(functools.partial(base, b=5), c=2)

    def run(x, function):
        return function(x, 2), function.keywords, functools.partial(function, a=3)(x)

    f = wrap(run)
    yield f(ones(2), step)
    step.keywords["b"] = 50
    yield f(ones(2), step)
    yield f(ones(2), functools.partial(base, b=ones(2)))
    yield tried(f, ones(2), functools.partial(base, zz=3))

    class Machine:
        def go(self, x, k):
            return x + k

        up = functools.partialmethod(go, k=10)

    yield wrap(lambda m, x: m.up(x))(Machine(), ones(2))


@session
def cached_properties(wrap):
    class Table:
        def __init__(self):
            self.runs = 0

        @functools.cached_property
        def weights(self):
            self.runs += 1
            return torch.ones(2) * self.runs

        @functools.cached_property
        def size(self):
            self.runs += 10
            return self.runs

    def step(t, x):
        t.weights.add_(1)
        return x * t.weights + t.size

    f, t = wrap(step), Table()
    for _ in range(2):
        yield f(t, ones(2)), t
    del t.weights
    yield f(t, ones(2)), t
    t.size = 100
    yield f(t, ones(2)), t
    yield f(Table(), ones(2))


@session
def single_dispatch(wrap):
    @functools.singledispatch
    def convert(value):
        return "object", value

    @convert.register
    def _(value: int):
        return "int", value + 1

    @convert.register(list)
    def _(value):
        return "list", [convert(v) for v in value]

    @convert.register(torch.Tensor)
    def _(value):
        return "tensor", value * 2

    def step(x, value):
        return convert(x), convert(value)

    f = wrap(step)
    for value in (1, "a", [1, "b", True], 2.0, ones(2), None):
        yield f(ones(2), value)
    convert.register(str, lambda value: ("str", value.upper()))
    yield f(ones(2), "a")


@session
def closures_over_loop_variables(wrap):
    def step(x, n):
        late = [lambda y: y + i for i in range(n)]
        early = [lambda y, i=i: y + i for i in range(n)]
        made = []
        for k in range(n):

            def add(y):
                nonlocal_total[0] += k
                return y * k

            made.append(add)
        nonlocal_total = [0]
        return [g(x) for g in (*late, *early, *made)], nonlocal_total, k

    f = wrap(step)
    for n in (2, 3, 2):
        yield f(ones(2), n)
    yield tried(f, ones(2), 0)


@session
def nonlocal_counters(wrap):
    def make():
        count, last = 0, None

        def step(x):
            nonlocal count, last
            count += 1
            previous, last = last, x * count
            return x if previous is None else previous + last

        def look():
            return count, last

        return step, look

    step, look = make()
    f = wrap(step)
    for _ in range(4):
        yield f(ones(2)), look()


@session
def generators_with_send(wrap):
    def averager():
        total, n, mean = 0.0, 0, None
        while True:
            got = yield mean
            if got is None:
                return "done", n
            total, n = total + got, n + 1
            mean = total / n

    def delegate(log):
        result = yield from averager()
        log.append(result)
        yield result

    def step(x):
        log = []
        g = delegate(log)
        next(g)
        means = [g.send(x * k) for k in range(1, 4)]
        last = g.send(None)
        try:
            next(g)
        except StopIteration as stop:
            means.append(stop.value)
        return means, last, log

    f = wrap(step)
    yield f(ones(2))
    yield f(ones(3))

    def throwing(x):
        def source():
            try:
                yield x
            except ValueError as error:
                yield str(error)
            finally:
                seen.append("closed")

        seen = []
        g = source()
        next(g)
        text = g.throw(ValueError("bad"))
        g.close()
        return text, seen, x + 1

    yield wrap(throwing)(ones(2))


@session
def an_outside_generator_is_advanced(wrap):
    def numbers():
        for k in range(10):
            yield k * 1.5

    def step(x, source):
        return x * next(source) + next(source)

    f, source = wrap(step), numbers()
    for _ in range(4):
        yield f(ones(2), source)
    yield next(source)
    iterator = iter([ones(2), ones(2) * 2, ones(2) * 3])
    g = wrap(lambda x, it: x + next(it))
    yield [g(ones(2), iterator) for _ in range(2)], list(iterator)
    yield tried(g, ones(2), iterator)


@session
def managers_that_swallow(wrap):
    class Swallow:
        def __init__(self):
            self.seen = []

        def __enter__(self):
            self.seen.append("in")
            return self

        def __exit__(self, kind, error, trace):
            self.seen.append(kind.__name__ if kind else "out")
            return kind is ValueError

    @contextlib.contextmanager
    def scaled(log, k):
        log.append("enter")
        try:
            yield k
        except KeyError:
            log.append("key")
        finally:
            log.append("leave")

    def step(x, what, swallow):
        log = []
        with swallow, scaled(log, 3) as k:
            x = x * k
            if what == "value":
                raise ValueError("v")
            if what == "key":
                raise KeyError("k")
            if what == "type":
                raise TypeError("t")
            x = x + 1
        with contextlib.suppress(ZeroDivisionError):
            log.append(1 / (what != "zero"))
        return x, log

    f, swallow = wrap(step), Swallow()
    for what in ("none", "value", "key", "type", "zero", "value"):
        yield tried(f, ones(2), what, swallow), swallow.seen


@session
def try_finally_with_returns(wrap):
    def step(x, n, log):
        for k in range(n):
            try:
                if k == 1:
                    continue
                if k == 3:
                    return x * 100
                x = x + k
                if n == 7:
                    raise RuntimeError("seven")
            except RuntimeError as error:
                log.append(str(error))
                return x - 1
            finally:
                log.append(k)
                if n == 9:
                    return x * 0  # noqa: B012
        else:
            log.append("all")
        return x

    f, log = wrap(step), []
    for n in (0, 2, 5, 7, 9, 3):
        yield f(ones(2), n, log), log


@session
def exception_chains_and_groups(wrap):
    class Own(Exception):
        def __init__(self, code, x):
            super().__init__(f"code {code}")
            self.code, self.x = code, x

    def inner(x, code):
        if code:
            raise Own(code, x * 2)
        return x

    def step(x, code):
        try:
            return inner(x, code)
        except Own as error:
            if error.code > 1:
                raise RuntimeError("outer") from error
            return error.x, error.args, error.__context__ is None
        finally:
            x += 1

    f = wrap(step)
    for code in (0, 1, 2):
        x = ones(2)
        yield tried(f, x, code), x
    try:
        f(ones(2), 3)
    except RuntimeError as error:
        yield type(error.__cause__).__name__, error.__cause__.x, error.__cause__.code


@session
def star_unpacking(wrap):
    def step(parts, *rest, **named):
        first, *middle, last = parts
        (a, *_), *others = [[1, 2], [3]], 4
        merged = {**named, "z": len(middle), **{"a": a}}
        return first + last, [*middle, *rest], merged, others, max(*rest, 0)

    f = wrap(step)
    yield f([ones(2)] * 3, 1, 2, k=3)
    yield f((ones(2), ones(2)), 5)
    yield f(ones(3, 2), 1, a=2)
    yield tried(f, [ones(2)], 1)


@session
def matching(wrap):
    @dataclasses.dataclass
    class Node:
        op: str
        args: tuple

    def evaluate(node, x):
        match node:
            case Node("add", (a, b)):
                return evaluate(a, x) + evaluate(b, x)
            case Node(op="neg", args=(a,)):
                return -evaluate(a, x)
            case {"scale": float() | int() as k, **rest} if k > 0:
                return x * k, sorted(rest)
            case [first, *rest]:
                return evaluate(first, x), len(rest)
            case "x":
                return x
            case int(n) if n > 100:
                return x + n
            case None | False:
                return "nothing"
            case _:
                return "other", str(node)

    f = wrap(lambda node, x: evaluate(node, x))
    for node in (
        "x",
        Node("add", ("x", Node("neg", ("x",)))),
        {"scale": 2, "q": 1},
        {"scale": -2},
        [200, 1],
        None,
        3,
        True,
    ):
        yield f(node, ones(2))


@session
def walrus_and_comprehensions(wrap):
    def step(x, limits):
        kept = [y for k in limits if (y := k * 2) > 2]
        table = {k: v for v, k in enumerate(limits)}
        while (n := len(kept)) > 1:
            x, last = x + n, kept.pop()
        return (
            x,
            kept,
            table,
            y,
            last,
            {k % 2 for k in limits},
            sum(k for k in limits if k),
            [*map(str, limits)],
        )

    f = wrap(step)
    yield f(ones(2), [1, 2, 3])
    yield f(ones(2), (5, 6, 0))
    yield tried(f, ones(2), [0, 1])


@session
def default_mutable_arguments(wrap):
    def step(x, seen=[], *, table={}):  # noqa: B006
        seen.append(x.sum())
        table[len(seen)] = x
        return sum(seen), list(table)

    f = wrap(step)
    for _ in range(3):
        yield f(ones(2)), step.__defaults__, step.__kwdefaults__
    yield f(ones(2), []), len(step.__defaults__[0])
    step.__defaults__ = ([],)
    yield f(ones(2)), step.__defaults__


COUNTER = 0
SETTINGS = {"gain": 1.0, "names": []}


@session
def global_counters(wrap):
    global COUNTER
    COUNTER = 0
    SETTINGS.clear()
    SETTINGS.update(gain=1.0, names=[])

    def step(x):
        global COUNTER
        COUNTER += 1
        SETTINGS["gain"] *= 2
        SETTINGS["names"].append(f"{COUNTER}:{tuple(x.shape)}")
        return x * SETTINGS["gain"] + COUNTER

    f = wrap(step)
    for n in (2, 3, 2):
        yield f(ones(n)), COUNTER, SETTINGS
    COUNTER = 10
    yield f(ones(2)), COUNTER, SETTINGS


@session
def dict_order_and_mutation(wrap):
    def step(x, table, key):
        value = table.pop(key, None)
        table[key] = x if value is None else value + 1
        table.setdefault("new", 0)
        first = next(iter(table))
        merged = table | {"k": 1}
        return (
            first,
            list(table.items()),
            list(reversed(merged)),
            table.keys() & {"a", "b"} == {"a"},
        )

    f, table = wrap(step), {"a": 1, "b": ones(2)}
    for key in ("a", "b", "c", "a"):
        yield f(ones(2), table, key), table

    def changes_while_iterating(x, table):
        for key in table:
            table[key + "!"] = x
        return x

    yield tried(wrap(changes_while_iterating), ones(2), {"a": 1})

    def list_while_iterating(x, items):
        for item in items:
            x = x + item
            if item < 3:
                items.append(item + 1)
        return x, items

    yield wrap(list_while_iterating)(ones(2), [1, 2])


@session
def sorting_with_keys(wrap):
    class Item:
        def __init__(self, n, name):
            self.n, self.name = n, name

        def __lt__(self, other):
            return self.n < other.n

    calls = []

    def key(item):
        calls.append(item.name)
        return -item.n

    def step(x, items):
        ranked = sorted(items, key=key)
        items.sort(key=lambda item: (item.name, item.n), reverse=True)
        low, high = min(items), max(items, key=lambda item: item.n)
        return (
            x + low.n,
            [i.name for i in ranked],
            [i.name for i in items],
            high.name,
            [i.n for i in sorted(items)],
        )

    f = wrap(step)
    for ns in ((3, 1, 2), (1, 1, 1), (2, 3, 1)):
        yield f(ones(2), [Item(n, name) for n, name in zip(ns, "abc")]), calls


@session
def texts_of_sizes(wrap):
    def step(x, names):
        b, *rest = x.shape
        label = f"{b:>4}|{x.shape!r}|{x.dim()=}|{x.dtype}"
        names[label] = names.get(label, 0) + 1
        return (
            x.reshape(-1),
            "%d-%s" % (b, rest),
            "{0}x{1}".format(b, x.numel()),
            str(x.size()),
            label.encode(),
        )  # noqa: UP031,UP030,UP032

    f, names = wrap(step), {}
    for shape in ((2, 3), (4, 3), (5, 3), (6, 7)):
        yield f(ones(*shape), names), names


@session
def abstract_classes_and_protocols(wrap):
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

        @property
        @abc.abstractmethod
        def name(self): ...

    class Square(Shape):
        def __init__(self, x):
            self.x = x

        def area(self):
            return self.x * self.x

        name = "square"

    @typing.runtime_checkable
    class HasArea(typing.Protocol):
        def area(self): ...

    class Duck:
        def area(self):
            return 7.0

    def step(x, thing):
        if isinstance(thing, Shape):
            return thing.area() + x, thing.name
        if isinstance(thing, HasArea):
            return x + thing.area(), "duck"
        if isinstance(thing, collections.abc.Mapping):
            return x, sorted(thing)
        return x, isinstance(thing, collections.abc.Iterable), isinstance(thing, int | str)

    f = wrap(step)
    for thing in (Square(ones(2)), Duck(), {"a": 1}, [1], 3, "s"):
        yield f(ones(2), thing)
    Shape.register(Duck)
    Duck.name = "late"
    yield f(ones(2), Duck())
    yield tried(wrap(lambda x: (Shape(), x)[1] + 1), ones(2))


@session
def operators_of_users(wrap):
    class Money:
        def __init__(self, n):
            self.n = n

        def __add__(self, other):
            return Money(self.n + other.n) if isinstance(other, Money) else NotImplemented

        def __radd__(self, other):
            return Money(self.n + other)

        def __eq__(self, other):
            return isinstance(other, Money) and self.n == other.n

        def __hash__(self):
            return 7

        def __index__(self):
            return int(self.n)

        def __bool__(self):
            return self.n > 0

        def __len__(self):
            return 3

        def __getitem__(self, k):
            if k > 2:
                raise IndexError
            return self.n * k

        def __call__(self, x):
            return x * self.n

        def __format__(self, spec):
            return f"${self.n}{spec}"

        def __iadd__(self, other):
            self.n += other
            return self

        def __missing__(self):
            return None

    def step(x, m):
        m += 1
        total = sum([m, m])
        return (
            m(x),
            total.n,
            list(m),
            f"{m:!}",
            m in {Money(m.n)},
            x[Money(0)],
            bool(Money(-1)),
            [*range(50)][m],
            m == total,
        )

    f, m = wrap(step), Money(1)
    for _ in range(3):
        yield f(ones(2), m), m.n
    Money.__call__ = lambda self, x: x - self.n
    yield f(ones(2), m)
    yield tried(wrap(lambda x, m: m + x), ones(2), m)
    yield tried(wrap(lambda x, m: (x + 1, m + "a")), ones(2), m)


@session
def metaclasses_and_init_subclass(wrap):
    registry = {}

    class Plugin:
        def __init_subclass__(cls, key=None, **kw):
            super().__init_subclass__(**kw)
            registry[key or cls.__name__] = cls

        def run(self, x):
            return x

    class Double(Plugin, key="d"):
        def run(self, x):
            return super().run(x) * 2

    class Meta(type):
        def __call__(cls, *args):
            made = super().__call__(*args)
            made.stamped = True
            return made

        def __len__(cls):
            return 42

        @property
        def label(cls):
            return cls.__name__.lower()

    class Stamped(metaclass=Meta):
        def __init__(self, x):
            self.x = x

    def step(x, key):
        s = Stamped(x)
        return registry[key]().run(x), s.stamped, len(Stamped), Stamped.label, key in registry

    f = wrap(step)
    yield f(ones(2), "d")

    class Triple(Plugin):
        def run(self, x):
            return x * 3

    yield f(ones(2), "Triple")
    registry["d"] = Triple
    yield f(ones(2), "d")
    yield tried(f, ones(2), "none")


@session
def multiple_inheritance_and_super(wrap):
    class A:
        def go(self, x):
            return x + 1, "A"

    class B(A):
        def go(self, x):
            y, name = super().go(x * 2)
            return y, name + "B"

    class C(A):
        def go(self, x):
            y, name = super().go(x - 3)
            return y, name + "C"

    class D(B, C):
        pass

    f = wrap(lambda d, x: d.go(x))
    yield f(D(), ones(2))
    A.go = lambda self, x: (x, "a")
    yield f(D(), ones(2))
    C.__bases__ = (A,)
    D.go = lambda self, x: super(D, self).go(x)
    yield f(D(), ones(2))
    del C.go
    yield f(D(), ones(2))
    d = D()
    d.go = lambda x: (x, "own")
    yield f(d, ones(2))


@session
def arguments_of_other_types(wrap):
    def step(x, y=None, flag=False):
        if y is None:
            return x + 1
        if isinstance(y, str):
            return x, y.upper()
        if isinstance(y, list | tuple):
            return sum(y, start=x), len(y), type(y).__name__
        if isinstance(y, bool):
            return x if y else -x
        return x * y + flag

    f = wrap(step)
    for y in (
        None,
        2,
        2.0,
        True,
        False,
        1,
        "a",
        "b",
        [ones(2)],
        [ones(2)] * 2,
        (ones(2),),
        ones(2),
        ones(2).double(),
        3 + 1j,
        [],
        None,
    ):
        yield f(ones(2), y)
    yield f(ones(2), 2, True), f(ones(2), 2, 1), f(y=3, x=ones(2))
    yield tried(f, ones(2), {}), tried(f), tried(f, ones(2), 1, 2, 3)


@session
def numbers_near_each_other(wrap):
    def step(x, k):
        return x * k, k, type(k).__name__, 1 / k if k else "zero", k == 1, k is True

    f = wrap(step)
    for k in (1, 1.0, True, 0, 0.0, -0.0, False, 2**70, -(2**63), 1e400, 3, 4, 5, 6, 7):
        yield tried(f, ones(2), k)
    yield f(ones(2).long(), 2), f(ones(2).long(), 2.5), f(ones(2) > 1, 3)


@session
def the_same_tensor_twice(wrap):
    def step(a, b, c):
        a.add_(1)
        d = b * 2
        c.mul_(d.sum())
        return a + b, d, a is b, c

    f = wrap(step)
    x, y, z = ones(2), ones(2), ones(2)
    yield f(x, y, z), x, y, z
    yield f(x, x, z), x, z
    yield f(x, x, x), x
    yield f(x, y, y), x, y
    base = ones(6)
    yield f(base[:2], base[2:4], base[4:]), base
    yield f(base[:2], base[1:3], base[::3]), base
    yield f(base[:2], base[0:2], base[4:]), base


@session
def odd_inputs(wrap):
    def step(x):
        return x.sum(-1), x.reshape(-1), x.transpose(0, 1) * 2, x[..., :1]

    f = wrap(step)
    for x in (ones(3, 4), ones(4, 3).t(), ones(6, 8)[::2, ::2], ones(1, 4).expand(3, 4), torch.zeros(0, 4), torch.zeros(3, 0),
              ones(3, 4).to(torch.complex64), torch.view_as_complex(ones(3, 4, 2)).conj(), ones(3, 4).bool(), ones(3, 4).half(),
              ones(3, 4).to_sparse().to_dense(), ones(24).as_strided((3, 4), (8, 2), 1)):  # fmt: skip
        yield f(x)
    g = wrap(lambda x: x * 2)
    yield g(ones(2, 2).to_sparse()).to_dense(), g(ones(2)), tried(f, ones(2))
