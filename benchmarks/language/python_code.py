"""benchmarks.language.python_code: what Python programs do around their tensors."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.language.program import Compile, program, rows, scenario, square, two


def helper(x: Tensor, n: int = 2) -> Tensor:
    """A function in a set."""
    return x * n


class Point(NamedTuple):
    """A named tuple."""

    x: Tensor
    y: Tensor


@dataclasses.dataclass
class Box:
    """A dataclass."""

    value: Tensor
    scale: float = 2.0


class Colour(enum.Enum):
    """An enumeration."""

    RED = 1
    BLUE = 2


LOCAL = threading.local()
LOCAL.scale = 3.0
TRACED = torch.fx.symbolic_trace(nn.Sequential(nn.Tanh(), nn.ReLU()))


@program()
def iterator_in_loop(x: Tensor) -> Tensor:
    """An iterator that is read by hand and by a loop."""
    numbers = iter((1, 2, 3, 4))
    x = x + next(numbers)
    for number in numbers:
        x = x * number
    return x


@program(two)
def min_max_of_tensors(x: Tensor, y: Tensor) -> Tensor:
    """min and max of sizes and tensors."""
    return x.clamp(min=min(x.shape[0], 1)) + max(y.shape)


@scenario
def id_of_module(compile_: Compile) -> Any:
    """id of an object as a key."""
    layer = nn.Linear(2, 2)
    table = {id(layer): 3.0}
    run = compile_(lambda x: x * table[id(layer)])
    return [run(torch.ones(2)) for _ in range(2)]


@program()
def frozenset_of_functions(x: Tensor) -> Tensor:
    """A function in a frozenset."""
    return helper(x) if helper in frozenset({helper, len}) else x


@program()
def subclasses(x: Tensor) -> Tensor:
    """The subclasses of a class."""
    return x * (1 + len(Point.__subclasses__()))


@program()
def none_as_key(x: Tensor) -> Tensor:
    """None as a key of a dict."""
    return x * {None: 2, "a": 3}[None]


@program()
def record_function(x: Tensor) -> Tensor:
    """A mark for the profiler."""
    with torch.autograd.profiler.record_function("part"):
        return x.sin()


@program()
def device_context(x: Tensor) -> Tensor:
    """A device as a context."""
    with torch.device("cpu"):
        return x + torch.ones(4)


@program()
def is_fx_tracing(x: Tensor) -> Tensor:
    """A question that torch.fx's users ask."""
    return x * 2 if torch.fx._symbolic_trace.is_fx_tracing() else x * 3


@program()
def questions_of_the_process(x: Tensor) -> Tensor:
    """cuda, mps, threads, default types."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        return x
    return x.to(torch.get_default_dtype()) * 2


@program()
def distributed_questions(x: Tensor) -> Tensor:
    """Is there a process group?"""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return x * torch.distributed.get_world_size()
    return x * 2


@program()
def globals_call(x: Tensor) -> Tensor:
    """globals() by name."""
    return globals()["helper"](x)


@program()
def thread_local(x: Tensor) -> Tensor:
    """A value of the thread."""
    return x * LOCAL.scale


@program()
def formats(x: Tensor) -> Tensor:
    """Texts of sizes."""
    text = f"{x.shape[0]:>4}|{x.dtype}".strip()
    return x * len(text)


@program()
def named_tuples(x: Tensor) -> Any:
    """A named tuple in and out."""
    point = Point(x, x + 1)
    return point._replace(y=point.x * point.y)


@program()
def dataclasses_made(x: Tensor) -> Tensor:
    """A dataclass that is made and changed."""
    box = Box(x)
    other = dataclasses.replace(box, scale=3.0)
    return box.value * box.scale + other.scale


@program()
def enumerations(x: Tensor) -> Tensor:
    """Members of an enumeration."""
    table = {Colour.RED: 2, Colour.BLUE: 3}
    return x * table[Colour(2)] + Colour["RED"].value


@program()
def generators(x: Tensor) -> Tensor:
    """A generator with a value that is sent to it."""

    def scaled() -> Iterator[Any]:
        factor = yield x
        yield x * factor

    made = scaled()
    next(made)
    return made.send(3)


@program()
def generator_expression(x: Tensor) -> Tensor:
    """A sum over a generator."""
    return sum(x * n for n in range(3))


@program()
def comprehension_conditions(x: Tensor) -> Any:
    """Dicts and sets by comprehension."""
    return {str(n): x * n for n in range(4) if n % 2}


@program()
def try_and_raise(x: Tensor) -> Tensor:
    """An exception of one's own, caught."""
    try:
        if x.dim() == 2:
            raise ValueError("two")
    except ValueError as error:
        return x * len(str(error))
    finally:
        x = x + 1
    return x


@program()
def raised_out(x: Tensor) -> Tensor:
    """An exception that leaves the function."""
    if x.dim() == 2:
        raise KeyError("no")
    return x


@program()
def own_context(x: Tensor) -> Tensor:
    """A context manager by contextlib."""

    @contextlib.contextmanager
    def scope() -> Iterator[int]:
        yield 3

    with scope() as n, contextlib.suppress(KeyError):
        x = x * n
    return x


@program()
def standard_library(x: Tensor) -> Tensor:
    """itertools, functools, operator, collections, math."""
    for a, b in itertools.product((1, 2), (3, 4)):
        x = x + a * b
    x = functools.reduce(operator.mul, [x, 2, 3])
    counts = collections.Counter("abca")
    return x * counts["a"] + math.sqrt(4)


@program()
def deque_and_defaultdict(x: Tensor) -> Tensor:
    """Containers of collections."""
    queue = collections.deque([x], maxlen=2)
    queue.append(x * 2)
    table = collections.defaultdict(list)
    table["a"].append(queue.popleft())
    return table["a"][0] + queue[0]


@program()
def partial_and_lambda(x: Tensor) -> Tensor:
    """Partial functions."""
    return functools.partial(helper, n=5)(x) + (lambda t: t.sin())(x)


@program()
def match_statement(x: Tensor) -> Tensor:
    """A match over shapes."""
    match tuple(x.shape):
        case (4, n):
            return x * n
        case _:
            return x


@program()
def walrus_and_star(x: Tensor) -> Tensor:
    """Assignments in expressions, starred targets."""
    first, *rest = x.unbind(0)
    return first + len(rest) if (n := len(rest)) > 1 else first * n


@program()
def closures(x: Tensor) -> Tensor:
    """A closure that changes its variable."""
    total = 0

    def add(n: int) -> None:
        nonlocal total
        total += n

    add(2)
    add(3)
    return x * total


@program()
def class_inside(x: Tensor) -> Tensor:
    """A class that is made inside."""

    class Scale:
        def __init__(self, n: int) -> None:
            self.n = n

        def __call__(self, t: Tensor) -> Tensor:
            return t * self.n

    return Scale(3)(x)


@program()
def properties(x: Tensor) -> Tensor:
    """Properties, class and static methods."""

    class Thing:
        base = 2

        @property
        def twice(self) -> int:
            return self.base * 2

        @classmethod
        def make(cls) -> Any:
            return cls()

        @staticmethod
        def three() -> int:
            return 3

    thing = Thing.make()
    return x * thing.twice + thing.three()


@program()
def getattr_setattr(x: Tensor) -> Tensor:
    """Attributes by name."""

    class Empty:
        pass

    thing = Empty()
    setattr(thing, "a", x)  # noqa: B010
    return getattr(thing, "a") * (2 if hasattr(thing, "b") else 3)  # noqa: B009


@program(*rows(3, 5, 7, 9))
def sizes_vary(x: Tensor) -> Tensor:
    """A size that changes from call to call."""
    return x.sum(0) / x.shape[0]


@program(*rows(3, 5, 7), dynamic=True)
def open_sizes_arithmetic(x: Tensor) -> Tensor:
    """Arithmetic over open sizes."""
    n = x.shape[0]
    return x.reshape(-1)[: n * 2].reshape(n, 2) * math.ceil(n / 2)


@program(*[(lambda n=n: (torch.ones(3), n)) for n in range(6)])
def integer_argument_varies(x: Tensor, n: int) -> Tensor:
    """An integer that changes from call to call."""
    return x * n


@program(*[(lambda n=n: (torch.ones(3), n / 8)) for n in range(1, 7)])
def float_argument_varies(x: Tensor, n: float) -> Tensor:
    """A float that changes from call to call."""
    return x * n


@scenario
def list_grows(compile_: Compile) -> Any:
    """A list from outside that grows."""
    seen: list[Tensor] = []

    @compile_
    def run(x: Tensor) -> Tensor:
        seen.append(x * 2)
        return seen[-1] + 1

    return [run(torch.ones(2)) for _ in range(3)], seen


@scenario
def attribute_counter(compile_: Compile) -> Any:
    """A module that counts its calls."""

    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.calls

    model = Counter()
    compiled = compile_(model)
    return [compiled(torch.ones(2)) for _ in range(5)], model.calls


@scenario
def lazy_modules(compile_: Compile) -> Any:
    """Lazy modules: initialised first, then one graph."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    compiled = compile_(model)
    return [compiled(torch.ones(3, 5)).detach() for _ in range(2)], dict(model.state_dict())


@scenario
def forward_of_compiled(compile_: Compile) -> Any:
    """compiled.forward(x) instead of compiled(x)."""
    torch.manual_seed(0)
    model = compile_(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    return [model.forward(torch.ones(2, 3)).detach() for _ in range(2)]


@scenario
def generator_function(compile_: Compile) -> Any:
    """A generator function that is itself compiled."""

    @compile_
    def steps(x: Tensor) -> Iterator[Tensor]:
        for n in range(3):
            x = x.sin() * n + 1
            yield x

    return [list(steps(torch.ones(2))) for _ in range(2)]


@scenario
def async_function(compile_: Compile) -> Any:
    """An async function that is itself compiled."""

    @compile_
    async def run(x: Tensor) -> Tensor:
        y = x.sin() * 2
        await asyncio.sleep(0)
        return y.cos() + 1

    return [asyncio.run(run(torch.ones(2))) for _ in range(2)]


@scenario
def method(compile_: Compile) -> Any:
    """A bound method."""

    class Thing:
        scale = 2

        def run(self, x: Tensor) -> Tensor:
            return x * self.scale

    thing = Thing()
    run = compile_(thing.run)
    first = run(torch.ones(2))
    thing.scale = 3
    return first, run(torch.ones(2))


@scenario
def callable_object(compile_: Compile) -> Any:
    """An object with __call__."""

    class Thing:
        def __call__(self, x: Tensor) -> Tensor:
            return x * 2

    return compile_(Thing())(torch.ones(2))


@program()
def recursion(x: Tensor) -> Tensor:
    """A recursive function."""

    def power(t: Tensor, n: int) -> Tensor:
        return t if n == 0 else power(t * 2, n - 1)

    return power(x, 4)


@program()
def printed_shapes(x: Tensor) -> Tensor:
    """repr of shapes and types."""
    return x * len(repr(x.shape)) + len(str(x.dtype))


@program()
def isinstance_checks(x: Tensor) -> Tensor:
    """Types of tensors and modules."""
    return x * (isinstance(x, Tensor) + isinstance(x, torch.FloatTensor) + callable(x))


@program(lambda: ({"a": torch.ones(2), "b": [torch.ones(3), (torch.ones(1), 2)]},))
def nested_arguments(given: Any) -> Any:
    """A tree of tensors, by pytree."""
    return torch.utils._pytree.tree_map(lambda t: t * 2, given)


@program()
def star_arguments(x: Tensor) -> Tensor:
    """Calls with stars."""

    def inner(*args: Tensor, scale: int, **more: int) -> Tensor:
        return sum(args) * scale + more["extra"]

    return inner(*[x, x], **{"scale": 2, "extra": 3})


@program()
def slots_and_super(x: Tensor) -> Tensor:
    """Slots, super, inheritance."""

    class Base:
        __slots__ = ("n",)

        def __init__(self, n: int) -> None:
            self.n = n

        def run(self, t: Tensor) -> Tensor:
            return t * self.n

    class Child(Base):
        def run(self, t: Tensor) -> Tensor:
            return super().run(t) + 1

    return Child(3).run(x)


@program()
def tensor_truth(x: Tensor) -> Tensor:
    """A branch on data: a break for everybody."""
    return x * 2 if x.sum() > 0 else x * 3


@program()
def item_used(x: Tensor) -> Tensor:
    """A number out of a tensor."""
    return x * x.sum().item()


@program()
def print_inside(x: Tensor) -> Tensor:
    """A print between operations."""
    y = x.sin()
    print("here")
    return y.cos()


@program(square, train=True)
def fx_interpreter(x: Tensor) -> Tensor:
    """A graph of torch.fx, run by its interpreter."""
    return torch.fx.Interpreter(TRACED).run(x)


@program()
def unpacked_sizes(x: Tensor) -> Tensor:
    """Sizes by name."""
    height, width = x.size()
    return x.view(height * width).view(*x.shape)


@program()
def sorted_with_key(x: Tensor) -> Tensor:
    """sorted, map, filter, zip, enumerate."""
    names = sorted(["bb", "a", "ccc"], key=len, reverse=True)
    for n, (name, size) in enumerate(zip(names, map(len, names), strict=True)):
        x = x + n * size if name else x
    return x * len(list(filter(None, [0, 1, 2])))


@scenario
def many_breaks_in_helper(compile_: Compile) -> Any:
    """A helper with a break, called often: nothing changes between the calls."""

    def helper_with_break(x: Tensor) -> Tensor:
        if x.sum() > 1e9:
            return x
        return x + 1

    def run(x: Tensor) -> Tensor:
        for _ in range(12):
            x = helper_with_break(x) * 1.5
        return x

    compiled = compile_(run)
    return [compiled(torch.ones(2)) for _ in range(3)]


@scenario
def flags_in_any_combination(compile_: Compile) -> Any:
    """Branches on data, with arguments that are sometimes the same object."""

    def run(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        x = x + 1
        if a:
            x = x * 2
        x = x - 3
        if b:
            x = x * 2
        return x - 3

    compiled, flags = compile_(run), (torch.tensor([1.0]), torch.tensor([0.0]))
    return [compiled(torch.ones(3), *chosen) for chosen in itertools.product(flags, repeat=2)]


@scenario
def iterator_across_break(compile_: Compile) -> Any:
    """An iterator that lives across a graph break."""

    def run(x: Tensor) -> Tensor:
        numbers = iter((1, 2, 3, 4, 5))
        x = x + next(numbers)
        print("between")
        for number in numbers:
            x = x * number
        return x

    return [compile_(run)(torch.ones(3)) for _ in range(2)]
