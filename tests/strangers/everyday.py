"""Everyday code around tensors: printing, logging, files, caches, properties, inheritance, mistakes and their handling."""

import abc
import collections
import contextlib
import contextvars
import copy
import functools
import io
import itertools
import json
import logging
import operator
import random
import string
import types
import warnings
import weakref

import torch
import torch.nn.functional as F
from torch import nn

from tests.strangers.harness import made, rand, stranger

LOG = logging.getLogger("strangers")


@made(lambda: (rand(3),), lambda: (rand(4),))
def logs_of_a_run():
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append((record.levelname, record.getMessage()))

    logger = logging.Logger("run")
    logger.addHandler(Keep())

    def run(x):
        logger.info("shape %s", tuple(x.shape))
        y = x.exp()
        if y.sum() > 3:
            logger.warning("large: %d", int(y.sum()))
        return y + len(lines)

    return run, lines


@stranger(lambda: (rand(2, 2),), lambda: (rand(3, 2),))
def printed_into_a_buffer(x):
    stream = io.StringIO()
    print("before", x.shape, file=stream)
    with contextlib.redirect_stdout(stream):
        print(f"{x.shape[0]=} {x.dtype!s:>15} {x.dim():03d}")
    y = x * 2
    print("after", list(y.size()), sep="-", end="!", file=stream)
    return y, stream.getvalue()


class Base(abc.ABC):
    scale = 2.0
    registry = {}

    def __init_subclass__(cls, /, key=None, **kwargs):
        super().__init_subclass__(**kwargs)
        Base.registry[key or cls.__name__] = cls

    @property
    @abc.abstractmethod
    def offset(self): ...

    @classmethod
    def create(cls, *args):
        return cls(*args)

    @staticmethod
    def squash(x):
        return torch.tanh(x)

    def __call__(self, x):
        return self.squash(x) * self.scale + self.offset


class Shifted(Base, key="shifted"):
    def __init__(self, by=1):
        self._by = by

    @property
    def offset(self):
        return self._by

    @offset.setter
    def offset(self, value):
        self._by = value * 10


class Doubled(Shifted, key="doubled"):
    scale = 4.0

    @property
    def offset(self):
        return super().offset + 0.5

    @functools.cached_property
    def costly(self):
        return [self.scale] * 2


@stranger(lambda: (rand(3), "shifted"), lambda: (rand(3), "doubled"), lambda: (rand(2), "missing"))
def classes_from_a_registry(x, key):
    kind = Base.registry.get(key, Shifted)
    made_here = kind.create(3)
    y = made_here(x)
    if hasattr(made_here, "costly"):
        y = y + sum(made_here.costly)
    if key == "shifted":
        made_here.offset = 2
    return y, made_here(x), kind.__name__, isinstance(made_here, Base), kind.__mro__[1].__name__


@stranger(
    lambda: ({"w": rand(2), "b": [rand(2, seed=1), {"c": rand(1)}]},),
    lambda: ({"w": rand(3), "b": []},),
    lambda: ({"b": [rand(2)], "w": rand(2)},),
)
def trees_of_tensors(tree):
    def walk(node, path=()):
        if isinstance(node, torch.Tensor):
            yield ".".join(map(str, path)), node
        elif isinstance(node, dict):
            for key in sorted(node):
                yield from walk(node[key], (*path, key))
        else:
            for position, child in enumerate(node):
                yield from walk(child, (*path, position))

    flat = dict(walk(tree))
    total = sum(t.square().sum() for t in flat.values())
    return {k: v / total.sqrt() for k, v in flat.items()}, list(flat), copy.deepcopy(tree)


@stranger(
    lambda: (rand(4), 0),
    lambda: (rand(4), 1),
    lambda: (rand(4), 2),
    lambda: (rand(4), 3),
    lambda: (rand(4), 9),
)
def errors_and_their_handlers(x, which):
    notes = []
    try:
        try:
            if which == 0:
                y = x.view(3, 3)
            elif which == 1:
                y = x @ rand(5)
            elif which == 2:
                y = x[10]
            elif which == 3:
                y = {}["missing"]
            else:
                y = x + 1
        except (RuntimeError, IndexError) as error:
            notes.append(type(error).__name__)
            raise ValueError("bad input") from error
        except KeyError as error:
            notes.append(error.args[0])
            y = x * 0
        else:
            notes.append("fine")
        finally:
            notes.append("done")
    except ValueError as error:
        notes.append(type(error.__cause__).__name__)
        return x - 1, notes
    return y, notes


@stranger(lambda: (rand(3),), lambda: (rand(4),))
def managers_of_all_kinds(x):
    events = []

    @contextlib.contextmanager
    def stage(name):
        events.append(("in", name))
        try:
            yield name.upper()
        except ZeroDivisionError:
            events.append(("caught", name))
        finally:
            events.append(("out", name))

    with contextlib.ExitStack() as stack:
        for name in "ab":
            events.append(stack.enter_context(stage(name)))
        stack.callback(events.append, "callback")
        y = x.cos()
        with stage("c"), torch.no_grad():
            y = y + 1 / (len(events) - len(events))
        y = y * 2
    with contextlib.suppress(KeyError), contextlib.nullcontext(3) as three:
        y = y + three
        _ = {}[three]
    return y, events


VARIABLE = contextvars.ContextVar("VARIABLE", default=1.0)


@stranger(lambda: (rand(3), 2.0), lambda: (rand(3), 3.0))
def variables_of_a_context(x, value):
    token = VARIABLE.set(value)
    try:
        y = x * VARIABLE.get()
    finally:
        VARIABLE.reset(token)
    return y + VARIABLE.get()


@made(lambda: (rand(3),), lambda: (rand(3),), lambda: (rand(2),))
def caches_by_shape():
    cache = {}
    hits = collections.Counter()

    def table(n):
        if n not in cache:
            cache[n] = torch.arange(float(n)).sin()
            hits["miss"] += 1
        else:
            hits["hit"] += 1
        return cache[n]

    def run(x):
        return x + table(x.shape[0])

    return run, [cache, hits]


@stranger(lambda: (rand(5), [3, 1, 2]), lambda: (rand(5), [0]), lambda: (rand(5), []))
def tools_for_iterables(x, order):
    pieces = [x[i] for i in order]
    pairs = list(itertools.pairwise(order))
    groups = {k: list(g) for k, g in itertools.groupby(sorted(order), key=lambda v: v % 2)}
    total = functools.reduce(operator.add, pieces, torch.zeros(()))
    running = list(itertools.accumulate(pieces, initial=torch.zeros(())))
    first = next(iter(order), None)
    best = max(order, default=-1, key=lambda v: -v)
    zipped = dict(zip(order, itertools.count(10), strict=False))
    return (
        total,
        running,
        pairs,
        groups,
        first,
        best,
        zipped,
        all(v >= 0 for v in order),
        sorted(order)[::-1],
    )


@stranger(
    lambda: (rand(3), '{"scale": 2, "bias": [1, 2.5]}'),
    lambda: (rand(3), '{"scale": 3, "bias": []}'),
)
def settings_from_text(x, text):
    settings = json.loads(text)
    name = string.Template("$a-$b").substitute(a=settings["scale"], b=len(settings["bias"]))
    return x * settings["scale"] + sum(settings["bias"]), name, json.dumps({"n": x.shape[0]})


@made(lambda: (rand(3),), lambda: (rand(3),))
def python_random_numbers():
    source = random.Random(3)

    def run(x):
        factor = source.random()
        if source.randint(0, 1):
            x = x.flip(0)
        return x * factor, source.choice([1, 2, 3])

    return run, []


@made(lambda: (rand(2, 3),), lambda: (rand(2, 3),), lambda: (rand(4, 3),))
def observers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    seen = collections.deque(maxlen=3)
    handles = [
        layer.register_forward_hook(
            lambda m, i, o: seen.append((type(m).__name__, o.mean().item()))
        )
        for layer in model
    ]
    model.register_forward_pre_hook(lambda m, args: (args[0] * 2,))

    def run(x):
        y = model(x)
        if len(seen) == 3 and handles:
            handles.pop().remove()
        return y

    return run, [seen, model]


@made(lambda: (rand(2, 4),), lambda: (rand(3, 4),))
def modules_changed_between_calls():
    torch.manual_seed(0)
    model = nn.Sequential(collections.OrderedDict(a=nn.Linear(4, 4), b=nn.Tanh()))
    count = [0]

    def run(x):
        count[0] += 1
        if count[0] == 2:
            model.add_module("c", nn.Linear(4, 2))
        if count[0] == 3:
            model.b = nn.Sigmoid()
        model.train(count[0] % 2 == 0)
        return model(x), [n for n, _ in model.named_modules()], model.training

    return run, [model, count]


@stranger(lambda: (rand(3, grad=True),), lambda: (rand(4, grad=True),))
def gradients_asked_for_inside(x):
    y = (x * 2).sum()
    kept = x.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        z = (kept**3).sum()
    z.backward()
    w = x.clone()
    w[0] = 5
    return y, kept.grad, w.requires_grad, torch.is_grad_enabled(), w * kept.grad


@stranger(lambda: (rand(3),), lambda: (rand(1),))
def comparisons_of_tensors(x):
    checks = [
        torch.equal(x, x.clone()),
        bool((x == x).all()),
        x.shape == (3,),
        x.size(0) in {1, 2},
        x.dtype is torch.float32,
        x is x.view_as(x),
        len(x) and x.ndim == 1,
        x.is_contiguous(),
        x.device.type == "cpu",
        isinstance(x, torch.FloatTensor),
        x.numel() > 2 if x.dim() else None,
        not x.requires_grad,
    ]
    return x.add(sum(map(bool, checks))), checks


@stranger(
    lambda: (rand(4), 3),
    lambda: (rand(4), 0),
    lambda: (rand(4), True),
    lambda: (rand(4), 2.5),
    lambda: (rand(4), None),
)
def numbers_of_many_types(x, n):
    if n is None:
        n = 7
    y = x * n
    if isinstance(n, bool):
        y = y.logical_not()
    elif isinstance(n, int) and n:
        y = y.repeat(n)
    return y, type(n).__name__, y.dtype


def _variadic(x, *rest, scale=1, **named):
    for value in rest:
        x = x + value
    for key, value in named.items():
        x = x * value + len(key)
    return x * scale


@stranger(
    lambda: (rand(2), (1, 2), {"scale": 3, "other": 2}),
    lambda: (rand(2), (), {}),
    lambda: (rand(2), (rand(2),), {"z": 1}),
)
def arguments_unpacked(x, rest, named):
    bound = functools.partial(_variadic, x, scale=2)
    merged = {**named, "last": 1.5} | {"first": 0.5}
    try:
        y = bound(*rest, **merged)
    except TypeError as error:
        return str(error)
    first, *middle, last = (x, *rest, x)
    return y, len(middle), first is last


@made(lambda: (rand(3),), lambda: (rand(3),))
def weak_references():
    class Node:
        def __init__(self, value, parent=None):
            self.value, self.children = value, []
            self.parent = weakref.ref(parent) if parent else lambda: None
            if parent:
                parent.children.append(self)

        @property
        def depth(self):
            parent = self.parent()
            return 0 if parent is None else parent.depth + 1

    root = Node(1.0)
    leaf = Node(3.0, Node(2.0, root))

    def run(x):
        node, out = leaf, x
        while node is not None:
            out = out * node.value + node.depth
            node = node.parent()
        return out, [c.value for c in root.children]

    return run, []


@stranger(
    lambda: (rand(3), "add"),
    lambda: (rand(3), "mul"),
    lambda: (rand(3), "__sub__"),
    lambda: (rand(3), "nope"),
)
def methods_by_name(x, name):
    method = getattr(x, name, None)
    if method is None:
        return getattr(types.SimpleNamespace(nope=x + 9), name)
    table = {"add": torch.add, "mul": operator.mul}
    return method(2), table.get(name, lambda a, b: a - b)(x, 3), callable(method)


@stranger(lambda: (rand(3),), lambda: (rand(3) * 100,))
def warnings_given(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if x.abs().max() > 10:
            warnings.warn("large values", UserWarning, stacklevel=2)
        y = x.clamp(-10, 10)
    return y, [str(w.message) for w in caught]


def _steps(x):
    total = 0
    while True:
        sent = yield total
        if sent is None:
            return total * 10
        total = total + sent * x


@stranger(lambda: (rand(3), [1, 2]), lambda: (rand(3), []), lambda: (rand(3), [4]))
def coroutines_by_hand(x, values):
    def outer():
        result = yield from _steps(x)
        yield ("end", result)

    run = outer()
    out = [next(run)]
    for value in values:
        out.append(run.send(value))
    out.append(run.send(None))
    run.close()
    return out


@made(lambda: (rand(3),), lambda: (rand(3),), lambda: (rand(3),))
def closures_with_state():
    def make():
        count, history = 0, []

        def step(x):
            nonlocal count
            count += 1
            history.append(x.mean())
            return x * count + sum(history) / len(history)

        def reset():
            nonlocal count
            count = 0
            history.clear()

        step.reset = reset
        step.peek = lambda: (count, len(history))
        return step

    step = make()

    def run(x):
        y = step(x)
        if step.peek()[0] >= 3:
            step.reset()
        return y, step.peek()

    return run, []


class Money(int):
    def __add__(self, other):
        return Money(int(self) + int(other))

    def __format__(self, spec):
        return f"${int(self):{spec}}"


@stranger(lambda: (rand(3), Money(5)), lambda: (rand(3), Money(6)))
def subclasses_of_numbers(x, price):
    total = price + 1
    return (
        x * total,
        f"{total:>5}",
        type(total).__name__,
        total // 4,
        -total,
        total == 6,
        divmod(total, 4),
    )


@stranger(lambda: (rand(2, 3),), lambda: (rand(3, 3),))
def results_of_all_kinds(x):
    values, places = x.max(dim=1)
    named = torch.sort(x, dim=0)
    return (
        {"values": values, 3: places, ("a", 1): [named.indices, None, ...]},
        {1, 2},
        range(x.shape[0]),
        slice(0, 2),
        x.shape,
        torch.float16,
        x.device,
        1 + 2j,
        b"bytes",
        type(named).__name__,
        frozenset([x.ndim]),
    )


@stranger(lambda: (rand(4, 4),), lambda: (rand(2, 2),))
def early_returns_in_loops(x):
    for row in range(x.shape[0]):
        for column in range(x.shape[1]):
            if row == column:
                continue
            if x[row, column] > 1.0:
                return x[row] * 2, (row, column)
            x = x + 0.1
        else:
            x = x * 1.5
    return x, None


@stranger(lambda: (rand(6),), lambda: (rand(3),))
def slices_assigned(x):
    y = x.clone()
    y[::2] += 1
    y[1::2] *= -1
    y[-1] = y[0]
    y[y < 0] = 0
    z = y[None, :, None]
    z[0, 0, 0] = 42
    a, *b = y.unbind()
    y[[0, -1]] = y[[-1, 0]]
    del x
    return y, z, a, len(b), F.pad(y, (1, 2), value=7)
