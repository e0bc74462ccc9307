"""benchmarks.language.everyday: programs as strangers write them, mostly of Python and its standard library."""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import logging
import operator
import re
import string
import types
import typing
import warnings
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.language.program import Compile, program, rows, scenario, square, two

LOG = logging.getLogger(__name__)
COUNTS = {"calls": 0}


class Mode(enum.IntFlag):
    """Flags."""

    BIAS = 1
    SCALE = 2


class Activation(str, enum.Enum):  # noqa: UP042
    """An enumeration of texts, as configurations have."""

    RELU = "relu"
    TANH = "tanh"

    @classmethod
    def _missing_(cls, value: object) -> Activation:
        return cls.RELU


class State(NamedTuple):
    """A record with defaults and a method."""

    hidden: Tensor
    step: int = 0

    def advance(self, x: Tensor) -> State:
        """The next state."""
        return self._replace(hidden=torch.tanh(self.hidden + x), step=self.step + 1)


@dataclasses.dataclass(frozen=True, order=True)
class Settings:
    """A frozen configuration."""

    width: int = 4
    scale: float = 0.5
    names: tuple[str, ...] = ("a", "b")
    extra: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def half(self) -> float:
        """Half of the scale."""
        return self.scale / 2

    def __post_init__(self) -> None:
        if self.width < 0:
            raise ValueError("width")


class Block(nn.Module, abc.ABC):
    """An abstract module."""

    registry: ClassVar[dict[str, type[Block]]] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        Block.registry[cls.__name__] = cls

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    @abc.abstractmethod
    def activate(self, x: Tensor) -> Tensor:
        """What comes after the layer."""

    def forward(self, x: Tensor) -> Tensor:
        """A layer, an activation."""
        return self.activate(self.layer(x))


class TanhBlock(Block):
    """One that is not abstract."""

    def activate(self, x: Tensor) -> Tensor:
        """Tanh."""
        return x.tanh()


class Delegating(nn.Module):
    """A module that finds attributes in another."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x: Tensor) -> Tensor:
        """Weights of the inner one."""
        return x @ self.weight.t() + self.bias


class Vector:
    """Operators of a user's class."""

    __slots__ = ("data",)

    def __init__(self, data: Tensor) -> None:
        self.data = data

    def __add__(self, other: Any) -> Vector:
        return Vector(self.data + (other.data if isinstance(other, Vector) else other))

    __radd__ = __add__

    def __matmul__(self, other: Vector) -> Tensor:
        return self.data @ other.data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Vector:
        return Vector(self.data[index])

    def __bool__(self) -> bool:
        return self.data.shape[0] > 2

    def __call__(self, x: Tensor) -> Tensor:
        return self.data * x

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.data)

    def __contains__(self, n: int) -> bool:
        return n < len(self)


@functools.singledispatch
def doubled(value: Any) -> Any:
    """Dispatched on the type."""
    return value


@doubled.register
def _(value: Tensor) -> Tensor:
    return value * 2


@doubled.register(list)
def _(value: list[Any]) -> list[Any]:
    return [doubled(item) for item in value]


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of users."""

    @functools.wraps(function)
    def run(*args: Any, **keywords: Any) -> Any:
        COUNTS["calls"] += 1
        return function(*args, **keywords)

    return run


def rearrange(x: Tensor, pattern: str, **sizes: int) -> Tensor:
    """A small einops: "b (h d) -> b h d"."""
    left, right = (side.strip() for side in pattern.split("->"))
    groups = [found.strip("()").split() for found in re.findall(r"\([^)]*\)|\S+", left)]
    known = dict(sizes)
    for group, size in zip(groups, x.shape, strict=True):
        unknown = [name for name in group if name not in known]
        if len(unknown) > 1:
            raise ValueError(f"cannot infer {unknown}")
        if unknown:
            done = functools.reduce(operator.mul, (known[n] for n in group if n in known), 1)
            known[unknown[0]] = size // done
    flat = [name for group in groups for name in group]
    x = x.reshape([known[name] for name in flat])
    target = [found.strip("()").split() for found in re.findall(r"\([^)]*\)|\S+", right)]
    x = x.permute([flat.index(name) for group in target for name in group])
    return x.reshape(
        [functools.reduce(operator.mul, (known[n] for n in group), 1) for group in target]
    )


@program(lambda: (torch.randn(2, 6, 3),), train=True)
def einops_like(x: Tensor) -> Tensor:
    """Patterns read by regular expressions."""
    y = rearrange(x, "b (h d) c -> b h d c", h=2)
    return rearrange(y, "b h d c -> (b h) (d c)")


@program(*rows(3, 5, 7))
def einops_like_sizes(x: Tensor) -> Tensor:
    """The same with open sizes."""
    return rearrange(x, "n (h d) -> h n d", h=2) * 2


@program()
def dataclass_replace(x: Tensor) -> Any:
    """Frozen records: replace, asdict, compare, fields."""
    first = Settings(extra={"n": 2})
    second = dataclasses.replace(first, scale=first.half)
    names = [field.name for field in dataclasses.fields(second)]
    scale = dataclasses.asdict(second)["scale"] if first > second else 1.0
    return x * scale + len(names), second.extra["n"]


@program()
def enum_of_texts(x: Tensor) -> Tensor:
    """Enumerations by value, missing values, flags."""
    for member in Activation:
        x = getattr(torch, member.value)(x)
    if Activation("gelu") is Activation.RELU and Mode.BIAS in (Mode.BIAS | Mode.SCALE):
        x = x + Mode.SCALE
    return x * len(Activation.__members__)


@program(two)
def match_with_classes(x: Tensor, y: Tensor) -> Any:
    """Patterns of classes, mappings and sequences."""
    found = []
    for item in (State(x), {"kind": "pair", "of": (x, y)}, [x, 1, 2], "text", 3):
        match item:
            case State(hidden=hidden, step=0):
                found.append(hidden.sin())
            case {"kind": "pair", "of": (a, b), **rest} if not rest:
                found.append(a @ b)
            case [Tensor() as first, *others]:
                found.append(first * sum(others))
            case str() | int():
                found.append(item)
    return found


@program()
def named_tuple_methods(x: Tensor) -> Any:
    """A record that replaces itself."""
    state = State(torch.zeros(4, 4))
    for row in x:
        state = state.advance(row)
    return state, state._asdict()["step"], State._fields


@program()
def walrus_and_star_args(x: Tensor) -> Any:
    """Assignments in expressions, unpacking, keyword-only arguments."""

    def combine(first: Tensor, *rest: Tensor, scale: float = 1.0, **named: Tensor) -> Tensor:
        total = first * scale
        for item in (*rest, *named.values()):
            total = total + item
        return total

    parts = [half for half in x.chunk(4) if (n := half.shape[0]) > 0]
    head, *middle, last = parts
    options = {"scale": 2.0, **{"extra": last}}
    return combine(head, *middle, **options), n


@program()
def texts_with_shapes(x: Tensor) -> Any:
    """Texts made of shapes and types."""
    text = f"{tuple(x.shape)!r:>10}|{x.dtype}|{x.shape[0]:03d}|{x.ndim=}|{str(x.device):^7}"  # noqa: RUF010
    return x + len(text), text, "%s-%d" % ("a", x.shape[1]), "{:.2f}/{n}".format(1.5, n=x.numel())  # noqa: UP031, UP032


@program()
def sorted_by_names(x: Tensor) -> Tensor:
    """sorted, min, max with keys; reversed; bisection."""
    parts = {"b": x, "a": x + 1, "c": x[:2]}
    for name in sorted(parts, key=lambda n: (parts[n].shape[0], n), reverse=True):
        x = x + parts[name].sum()
    longest = max(parts.items(), key=lambda pair: pair[1].numel())[0]
    first = min(parts, key=operator.methodcaller("upper"))
    return x * parts[longest] + parts[first]


@program()
def dict_merges(x: Tensor) -> Any:
    """Merged dicts, ChainMap, setdefault, popitem, views as sets."""
    base = {"a": x, "b": 1}
    merged = base | {"b": 2, "c": x.cos()}
    merged |= {"d": 4}
    chained = ChainMap({"a": x.sin()}, merged)
    both = base.keys() & merged.keys()
    merged.setdefault("e", x * 2)
    last = merged.popitem()
    rest = {key: merged[key] for key in sorted(merged.keys() - both)}
    return chained["a"] + chained["c"] + last[1], rest, sorted(both)


@program()
def functools_tools(x: Tensor) -> Any:
    """reduce, partial, partialmethod, lru_cache, singledispatch, wraps."""
    add = functools.partial(torch.add, alpha=2)
    y = functools.reduce(add, [x, x + 1, x + 2])
    twice = timed(functools.partial(doubled))
    return twice([y, x])[0], twice.__wrapped__.func is doubled, COUNTS["calls"] > 0


@scenario
def cached_property_module(compile_: Compile) -> Any:
    """A cached property of a module and of a plain object."""

    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dim = 4

        @functools.cached_property
        def frequencies(self) -> Tensor:
            return 1.0 / 10.0 ** (torch.arange(self.dim) / self.dim)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.frequencies

    model = Rotary()
    run = compile_(model)
    results = [run(torch.ones(2, 4)) for _ in range(3)]
    return results, "frequencies" in model.__dict__


@program()
def context_stacks(x: Tensor) -> Any:
    """ExitStack, suppress, nullcontext, contextmanager, closing."""
    seen: list[str] = []

    @contextlib.contextmanager
    def noted(name: str) -> Iterator[str]:
        seen.append(f"+{name}")
        try:
            yield name * 2
        finally:
            seen.append(f"-{name}")

    with contextlib.ExitStack() as stack:
        names = [stack.enter_context(noted(n)) for n in "ab"]
        stack.callback(seen.append, "end")
        stack.enter_context(torch.no_grad())
        with contextlib.suppress(KeyError, IndexError):
            x = x + 1
            seen.append({}["missing"])
        with contextlib.nullcontext(3) as n:
            x = x * n
    return x, seen, names


@program()
def containers(x: Tensor) -> Any:
    """Counter, OrderedDict, deque, defaultdict, namedtuple."""
    counts = Counter("abracadabra")
    pair = namedtuple("pair", "left right")
    window: deque[Tensor] = deque(maxlen=2)
    groups: defaultdict[int, list[Tensor]] = defaultdict(list)
    for index, row in enumerate(x):
        window.append(row)
        groups[index % 2].append(row)
    window.rotate(1)
    window.extendleft([x[0]])
    ordered = OrderedDict((str(k), torch.stack(v)) for k, v in groups.items())
    ordered.move_to_end("0")
    made = pair(*window)
    return made.left + made.right, ordered, counts.most_common(2), counts["z"]


@program()
def iteration_tools(x: Tensor) -> Any:
    """itertools: most of them."""
    found = list(itertools.accumulate(x.unbind(0), torch.add))
    pairs = list(itertools.pairwise(found))
    grid = [i * j for i, j in itertools.product(range(2), repeat=2)]
    grouped = {k: len(list(g)) for k, g in itertools.groupby("aabbb")}
    some = list(itertools.islice(itertools.cycle([1, 2, 3]), 1, 7, 2))
    mixed = list(itertools.zip_longest(some, grid[:2], fillvalue=0))
    kept = [*itertools.compress(found, [1, 0, 1, 0])]
    taken = list(itertools.takewhile(lambda n: n < 2, itertools.count()))
    rest = list(itertools.dropwhile(lambda n: n < 2, range(4)))
    first, second = itertools.tee(iter(kept))
    y = sum(next(first) for _ in range(2)) + next(second)
    combos = list(itertools.combinations("abc", 2)) + list(itertools.permutations("ab"))
    mapped = list(itertools.starmap(torch.mul, pairs))
    chained = list(itertools.chain.from_iterable([taken, rest]))
    odd = list(itertools.filterfalse(lambda n: n % 2, range(5)))
    return y, mapped, grouped, mixed, combos, chained, odd


@scenario
def abstract_modules(compile_: Compile) -> Any:
    """Abstract classes, registries by __init_subclass__, made inside."""
    torch.manual_seed(0)
    block = Block.registry["TanhBlock"]()
    run = compile_(lambda x: block(x) if isinstance(block, abc.ABC) else x)
    try:
        Block()
    except TypeError as error:
        text = type(error).__name__
    return run(torch.ones(2, 4)), text


@scenario
def getattr_modules(compile_: Compile) -> Any:
    """__getattr__ that asks another module, in training."""
    torch.manual_seed(0)
    model = Delegating(nn.Linear(4, 4))
    run = compile_(model)
    x = torch.ones(2, 4)
    run(x).sum().backward()
    return run(x), model.inner.weight.grad, run.in_features


@scenario
def module_containers(compile_: Compile) -> Any:
    """ModuleDict, ParameterList, ParameterDict, nested Sequential, named_parameters."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"up": nn.Linear(4, 8), "down": nn.Linear(8, 4)})
            self.scales = nn.ParameterList([nn.Parameter(torch.ones(4) * n) for n in (1.0, 2.0)])
            self.named = nn.ParameterDict({"shift": nn.Parameter(torch.zeros(4))})
            self.stack = nn.Sequential(nn.Sequential(nn.Tanh()), nn.Dropout(0.0))

        def forward(self, x: Tensor) -> Any:
            for name, part in self.parts.items():
                x = part(x) if name != "skip" else x
            for index, scale in enumerate(self.scales):
                x = x * scale + index
            if "shift" in self.named:
                x = x + self.named["shift"]
            size = sum(p.numel() for n, p in self.named_parameters() if "weight" in n)
            return self.stack[0](x) / size, len(self.stack), self.parts["up"].out_features

    torch.manual_seed(0)
    model = Net()
    run = compile_(model)
    x = torch.ones(2, 4)
    run(x)[0].sum().backward()
    return run(x), [p.grad for p in model.parameters()]


@program()
def warnings_inside(x: Tensor) -> Tensor:
    """A warning that is caught, and a filter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("not shown", UserWarning, stacklevel=2)
    return x + 1


@program()
def warning_given(x: Tensor) -> Tensor:
    """A warning in the middle."""
    y = x.sin()
    if x.shape[0] > 2:
        warnings.warn(f"long: {x.shape[0]}", stacklevel=1)
    return y.cos()


@program()
def logging_inside(x: Tensor) -> Tensor:
    """A logger that says nothing."""
    y = x.sin()
    LOG.debug("shape %s", x.shape)
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("values %s", y)
    return y + 1


@program(square, lambda: (torch.randn(3, 4),))
def asserts_with_messages(x: Tensor) -> Tensor:
    """Assertions that hold, and one that does not."""
    assert x.dim() == 2, f"need a matrix, got {x.shape}"
    assert isinstance(x, Tensor) and x.dtype.is_floating_point, x.dtype
    assert x.shape[0] % 2 == 0, f"odd: {x.shape[0]}"
    torch._assert(x.shape[1] == 4, "width")
    return x * 2


@program(reason="the interpreter has no rule for except*")
def try_in_all_forms(x: Tensor) -> Any:
    """try, except, else, finally, nested, with a cause and groups."""
    seen: list[str] = []
    for n in range(3):
        try:
            try:
                if n == 0:
                    raise KeyError("a")
                x = x + [1, 2][n - 1]
            except KeyError as error:
                raise ValueError("b") from error
            else:
                seen.append("else")
            finally:
                seen.append("finally")
                x = x * 2
        except ValueError as error:
            seen.append(f"{error}:{error.__cause__!r}:{error.__suppress_context__}")
    try:
        raise ExceptionGroup("many", [ValueError("v"), TypeError("t")])
    except* ValueError as group:
        seen.append(str(len(group.exceptions)))
    except* TypeError:
        seen.append("type")
    return x, seen


@program()
def recursion_over_trees(x: Tensor) -> Any:
    """Functions that call themselves over trees, with a memory."""

    @functools.lru_cache(maxsize=None)  # noqa: UP033
    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    def apply(tree: Any, function: Callable[[Tensor], Tensor]) -> Any:
        if isinstance(tree, Tensor):
            return function(tree)
        if isinstance(tree, Mapping):
            return type(tree)((key, apply(value, function)) for key, value in tree.items())
        return [apply(value, function) for value in tree] if isinstance(tree, list) else tree

    tree = {"a": [x, {"b": x + 1}], "n": OrderedDict(c=x.sum(), d="text")}
    return apply(tree, lambda t: t * fibonacci(12))


@program()
def slices_as_objects(x: Tensor) -> Any:
    """Slices, Ellipsis, index tuples, indices of a slice."""
    window = slice(1, None, 2)
    index: tuple[Any, ...] = (Ellipsis, window)
    start, stop, step = window.indices(x.shape[1])
    y = x[index] + x[:, range(start, stop, step)[0] : stop : step]
    y[operator.itemgetter(0)([window])] = 0
    return y, x[(None,) * 2 + (0,)], x[True].shape, [*range(5)][window]


@program()
def operators_of_classes(x: Tensor) -> Any:
    """A user's class with operators."""
    vector = sum([Vector(x), Vector(x + 1)], 0)
    product = vector @ vector[:4] if vector else x
    rows_ = [row.sum() for row in vector]
    return product, vector(x), rows_, 2 in vector, len(vector)


@program()
def closures_and_nonlocal(x: Tensor) -> Any:
    """Counters in closures, defaults bound early and late."""
    total = 0

    def step(y: Tensor) -> Tensor:
        nonlocal total
        total += y.shape[0]
        return y * total

    late = [lambda y: y * n for n in range(3)]  # noqa: B023
    early = [lambda y, n=n: y * n for n in range(3)]
    for function in (*late, *early, step, step):
        x = x + function(x)
    return x, total


@program()
def nonlocal_across_break(x: Tensor) -> Any:
    """A cell written before and after a break."""
    count = 0

    def step(y: Tensor) -> Tensor:
        nonlocal count
        count += 1
        torch._dynamo.graph_break() if False else None
        if y.sum().item() > -1e9:
            count += 10
        return y * count

    return step(step(x)), count


@program()
def text_handling(x: Tensor) -> Any:
    """Methods of texts, templates, translation, joined and split."""
    name = "encoder.layers.0.attn.weight"
    *path, leaf = name.split(".")
    number = int(next(part for part in path if part.isdigit()))
    table = str.maketrans({"a": "b", ".": "/"})
    text = string.Template("$a-${b}").substitute(a=leaf, b=number)
    found = re.fullmatch(r"(?P<root>\w+)\.(?:.*)", name)
    assert found is not None
    return x + number, name.translate(table), text, found["root"], re.sub(r"\d+", "N", name)


@program()
def type_tools(x: Tensor) -> Any:
    """typing, types, isinstance of unions, get_type_hints, SimpleNamespace, casts."""
    config = types.SimpleNamespace(width=4, act="tanh")
    config.depth = 2
    x = typing.cast(Tensor, x) * config.width if isinstance(x, Tensor | float) else x
    kinds = typing.get_args(int | str)
    frozen = types.MappingProxyType({"a": 2})
    assert callable(getattr(torch, config.act)) and hasattr(config, "depth")
    return getattr(torch, config.act)(x) * frozen["a"], len(kinds), vars(config)


@program()
def copies(x: Tensor) -> Any:
    """copy and deepcopy of containers and records."""
    tree = {"a": [x, 1], "b": (2, 3)}
    shallow, deep = copy.copy(tree), copy.deepcopy({"n": [1, {"m": 2}]})
    deep["n"][1]["m"] = 5
    shallow["a"].append(x * 2)
    return shallow, tree["a"][-1] + deep["n"][1]["m"], copy.copy(State(x, 3)).step


@program()
def heaps_and_bits(x: Tensor) -> Any:
    """A heap, divmod, pow, rounding, bases, bytes."""
    heap: list[tuple[int, str]] = []
    for n in (5, 1, 4):
        heapq.heappush(heap, (n, f"n{n}"))
    smallest = heapq.heappop(heap)
    whole, rest = divmod(x.shape[0] * 5, 3)
    numbers = [round(2.675, 2), pow(3, 4, 5), int("ff", 16), bin(5), (10).bit_length(), abs(-3)]
    return x * whole + rest, smallest, numbers, bytes([1, 2]).hex(), any(n > 4 for n, _ in heap)


@program()
def iterators_of_classes(x: Tensor) -> Any:
    """A class with __iter__ and __next__, iter with a sentinel, next with a default."""

    class Rows:
        def __init__(self, x: Tensor) -> None:
            self.x, self.at = x, 0

        def __iter__(self) -> Rows:
            return self

        def __next__(self) -> Tensor:
            if self.at == self.x.shape[0]:
                raise StopIteration
            self.at += 1
            return self.x[self.at - 1]

    taken = [row * 2 for row in Rows(x)]
    stack = [3, 2, 1]
    popped = list(iter(stack.pop, 1)) if False else list(iter(lambda: stack.pop(), 2))
    return taken, popped, next(iter([]), "default"), list(map(torch.add, taken, taken))


@program()
def delegated_generators(x: Tensor) -> Any:
    """yield from with a result, send, generators in generators."""

    def inner(y: Tensor) -> Iterator[Tensor]:
        for row in y:
            yield row.sin()
        return y.shape[0]

    def outer(y: Tensor) -> Iterator[Any]:
        count = yield from inner(y)
        received = yield count
        yield y * received

    running = outer(x)
    found = [next(running) for _ in range(x.shape[0] + 1)]
    return found, running.send(3)


@scenario
def descriptors_and_metaclasses(compile_: Compile) -> Any:
    """Descriptors, class methods, static methods, class attributes that change."""

    class Scaled:
        def __set_name__(self, owner: type, name: str) -> None:
            self.name = f"_{name}"

        def __get__(self, instance: Any, owner: type) -> Any:
            return self if instance is None else getattr(instance, self.name) * 2

        def __set__(self, instance: Any, value: Any) -> None:
            setattr(instance, self.name, value)

    class Layer:
        made: ClassVar[int] = 0
        scale = Scaled()

        def __init__(self, scale: float) -> None:
            self.scale = scale
            type(self).made += 1

        @classmethod
        def default(cls) -> Layer:
            return cls(1.5)

        @staticmethod
        def shift(x: Tensor) -> Tensor:
            return x + 1

        def __call__(self, x: Tensor) -> Tensor:
            return self.shift(x) * self.scale

    def run(x: Tensor) -> Any:
        layer = Layer.default()
        layer.scale = 3
        return layer(x), Layer.made

    compiled = compile_(run)
    return [compiled(torch.ones(3)) for _ in range(2)]


@program()
def sets_and_order(x: Tensor) -> Any:
    """Sets of numbers and texts, frozen keys, comparisons."""
    axes = set(range(x.dim())) - {0}
    chosen = frozenset(("a", "b")) | {"c"}
    table = {frozenset({1, 2}): 3, (1, "k"): 4}
    x = x.sum(dim=tuple(sorted(axes))) * table[frozenset({2, 1})] + table[1, "k"]
    return x, len(chosen), {"a"} < chosen, axes.isdisjoint({5}), sorted(chosen ^ {"a", "z"})


@program()
def comprehensions_nested(x: Tensor) -> Any:
    """Comprehensions in comprehensions, with conditions, over zips and dicts."""
    grid = [[x[i, j] * (i + j) for j in range(4) if j != i] for i in range(2)]
    table = {f"{i}{name}": row for i, (name, row) in enumerate(zip("abcd", x, strict=True))}
    pairs = {(k, v.shape) for k, v in table.items() if not k.startswith("0")}
    return torch.stack([torch.stack(row) for row in grid]), table, sorted(pairs)


@scenario
def global_counters(compile_: Compile) -> Any:
    """A module's counter that is written at each call."""
    COUNTS["calls"] = 0

    def run(x: Tensor) -> Tensor:
        COUNTS["calls"] += 1
        return x * 2

    compiled = compile_(run)
    return [compiled(torch.ones(2)) for _ in range(3)], COUNTS["calls"]


@program()
def while_and_else(x: Tensor) -> Any:
    """while with else, for with else, break, continue, chained comparisons."""
    n = 0
    while 0 <= n < 10:
        n += 3
        if n % 2:
            continue
        x = x + n
    else:
        x = x * 2
    for row in x:
        if row.shape[0] == 5:
            break
    else:
        x = x - 1
    return x, n


@program()
def lists_in_place(x: Tensor) -> Any:
    """Lists: insert, slices that are set, sort, reverse, deletion, starred multiplication."""
    items = [x, x + 1, x + 2]
    items.insert(1, x * 5)
    items[2:4] = [x.sin()] * 3
    del items[0]
    items.reverse()
    numbers = [3, 1, 2] * 2
    numbers.sort(key=lambda n: -n)
    numbers.remove(2)
    items += [items.pop(0)]
    return torch.stack(items).sum(0), numbers, numbers.index(1), numbers.count(3)


@program(two)
def attribute_tools(x: Tensor, y: Tensor) -> Any:
    """operator.attrgetter, getattr with defaults, methods taken from classes."""
    shape = operator.attrgetter("shape", "dtype")(x)
    add = operator.attrgetter("add")(x)
    method = Tensor.mul
    return add(y), method(x, y), shape, getattr(x, "missing", 3), Tensor.__add__(x, y)


@program(lambda: (torch.randn(4, 4), {"mask": torch.ones(4, 4), "scale": 2.0, "none": None}))
def optional_arguments(x: Tensor, options: dict[str, Any]) -> Tensor:
    """Options that may be there or not."""
    mask = options.get("mask")
    if mask is not None and options.get("none") is None:
        x = x.masked_fill(mask == 0, float("-inf"))
    return x * options.pop("scale", 1.0) + len(options)
