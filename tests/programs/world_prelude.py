"""What every program with a world of its own begins with: classes with special methods, state, helpers."""

from __future__ import annotations

from typing import Final

PRELUDE: Final = '''\
import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import operator

FLAG = True
SCALE = 2.0
COUNT = 0
LOG = []
ITEMS = [1, 2, 3]
SEEN = {1, 4}
STATE = {"k": 1, "name": "a"}
CACHE = {}
NUMS = np.array([2, 3, 5])
REALS = np.array([0.5, 1.5, -2.0], dtype=np.float32)
BUFFER = torch.zeros(3)
TABLE = torch.arange(6.0).view(2, 3)
NAMES = collections.OrderedDict(one=1, two=2)


class Box:
    scale = 1.5
    size = 2

    def __init__(self, t=None):
        self.t = t
        self.items = [1]
        self.calls = 0

    def __call__(self, t, by=1.0, *more, **options):
        self.calls += 1
        return t * self.scale + by + len(more) + len(options)

    def __bool__(self):
        return self.size > 1

    def __len__(self):
        return self.size

    def __getitem__(self, k):
        return self.items[k]

    def __setitem__(self, k, value):
        self.items[k] = value

    def __contains__(self, value):
        return value == self.size

    def __iter__(self):
        yield from self.items

    def __getattr__(self, name):
        if name.startswith("made_"):
            return len(name) + self.calls
        raise AttributeError(name)

    def __eq__(self, other):
        return isinstance(other, Box) and other.size == self.size

    def __hash__(self):
        return hash(self.size)

    def __lt__(self, other):
        return self.size < other.size

    @property
    def double(self):
        return self.size * 2

    @double.setter
    def double(self, value):
        self.size = value // 2

    @classmethod
    def of(cls, t):
        return cls(t)

    @staticmethod
    def twice(t):
        return t + t

    @functools.cached_property
    def slow(self):
        self.calls += 1
        return self.size + 1


class Wrapped:
    __slots__ = ("name", "t")

    def __init__(self, t, name="w"):
        self.t = t
        self.name = name

    def __add__(self, other):
        return Wrapped(self.t + (other.t if isinstance(other, Wrapped) else other), self.name + "+")

    def __radd__(self, other):
        return Wrapped(other + self.t, "r" + self.name)

    def __iadd__(self, other):
        self.t = self.t + other
        self.name += "="
        return self

    def __mul__(self, other):
        return NotImplemented if isinstance(other, str) else Wrapped(self.t * other, self.name)

    def __rmul__(self, other):
        return Wrapped(other * self.t, self.name + "*")

    def __matmul__(self, other):
        return Wrapped(self.t * other.t, "@")

    def __neg__(self):
        return Wrapped(-self.t, "-" + self.name)

    def __index__(self):
        return len(self.name)

    def __float__(self):
        return 0.5 * len(self.name)

    def __repr__(self):
        return f"<{self.name}>"


class Early:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append("enter " + self.name)
        return self

    def __exit__(self, kind, value, trace):
        LOG.append(f"exit {self.name} {kind.__name__ if kind else None}")
        return self.swallow


class Clamped:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 1)

    def __set__(self, obj, value):
        setattr(obj, self.name, min(value, 5))


@dataclasses.dataclass
class Pair:
    left: object
    right: object = 1
    tags: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.tags.append(type(self.left).__name__)


@dataclasses.dataclass(frozen=True, order=True)
class Size:
    rows: int
    columns: int = 3


Point = collections.namedtuple("Point", "x y", defaults=(1,))


class Meter(dict):
    level = Clamped()

    def __missing__(self, key):
        self[key] = len(self)
        return self[key]


class Shelf(list):
    def push(self, *values):
        self.extend(values)
        return self


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 0.5))
        self.register_buffer("steps", torch.zeros(()))
        self.factor = 2
        self.inner = torch.nn.ModuleList([torch.nn.Tanh(), torch.nn.Dropout(0.0)])

    def forward(self, t, *, shift=0):
        if self.training:
            self.steps += 1
        for layer in self.inner:
            t = layer(t)
        return t * self.factor + shift + self.weight.sum()


@contextlib.contextmanager
def noting(name):
    LOG.append("begin " + name)
    try:
        yield len(LOG)
    except ZeroDivisionError:
        LOG.append("swallowed " + name)
    finally:
        LOG.append("end " + name)


def traced(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        global COUNT
        COUNT += 1
        return function(*args, **kwargs)

    return inner


@traced
def helper(t, k=2, /, *rest, shift=0.5, **options):
    """Doc."""
    return t * k + shift + sum(rest) + sum(options.values())


def pick(t, by="sum"):
    match by:
        case "sum":
            return t.sum()
        case ("max" | "min") as how:
            return getattr(t, how)()
        case {"k": int(k), **rest}:
            return t * k + len(rest)
        case [first, *_]:
            return t + first
        case Point(x=px, y=py):
            return t * px + py
        case _:
            return t


def pairs(n):
    got = None
    for i in range(n):
        got = yield i, got
    return n


def walk(n):
    total = yield from pairs(n)
    LOG.append(f"walked {total}")


BOX = Box()
METER = Meter()
NET = Net()
'''

# what a test looks at after each call
WORLD: Final = (
    "FLAG SCALE COUNT LOG ITEMS SEEN STATE CACHE NUMS REALS BUFFER TABLE NAMES BOX METER NET"
).split()
