"""Rows: functions, their code, defaults and closures; calls of all kinds."""

import functools
import types

import torch

from tests.stale.machine import World, ramp, row, rows


def base(t, k=2, *, m=3):
    return t * k + m


def edited(t, k=2, *, m=3):
    return t * k - m


def fresh(function):
    """A copy of a function, that a row may change."""
    made = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = dict(function.__kwdefaults__) if function.__kwdefaults__ else None
    return made


def held_by_a_global(function):
    globals()["HELD"] = function
    return lambda t: HELD(t)


def held_by_a_cell(function):
    return lambda t: function(t)


def held_by_a_class(function):
    class Kind:
        call = staticmethod(function)

    return lambda t: Kind.call(t)


def held_by_an_object(function):
    thing = types.SimpleNamespace(call=function)
    return lambda t: thing.call(t)


def held_by_a_list(function):
    held = [function]
    return lambda t: held[0](t)


def held_by_a_partial(function):
    held = functools.partial(function)
    return lambda t: held(t)


def held_by_a_module(function):
    held = types.ModuleType("held")
    held.call = function
    return lambda t: held.call(t)


def held_as_a_method(function):
    class Kind:
        def __mul__(self, n):
            return n

    bound = types.MethodType(lambda self, t: function(t), Kind())
    return lambda t: bound(t)


HELD = None
HOLDERS = (
    held_by_a_global,
    held_by_a_cell,
    held_by_a_class,
    held_by_an_object,
    held_by_a_list,
    held_by_a_partial,
    held_by_a_module,
    held_as_a_method,
)
CHANGES = {
    "code": ("__code__", edited.__code__),
    "defaults": ("__defaults__", (5,)),
    "no_defaults": ("__defaults__", None),
    "keyword_defaults": ("__kwdefaults__", {"m": 7}),
    "no_keyword_defaults": ("__kwdefaults__", None),
}


@rows(
    "function",
    {
        f"{holder.__name__}_{name}": (holder, *change)
        for holder in HOLDERS
        for name, change in CHANGES.items()
    },
)
def _function(holder, name, value):
    function = fresh(base)
    before = getattr(function, name)
    program = holder(function)

    def write(new):
        if holder is held_by_a_global:
            globals()["HELD"] = function
        setattr(function, name, new)

    return World(program, lambda: write(value), lambda: write(before))


@row
def a_keyword_default_is_written_in_place():
    function = fresh(base)
    return World(
        lambda t: function(t),
        lambda: function.__kwdefaults__.update(m=7),
        lambda: function.__kwdefaults__.update(m=3),
    )


@row
def a_mutable_default():
    def function(t, held=[1]):  # noqa: B006, it is what is tested
        held.append(1)
        return t * len(held)

    return World(
        lambda t: function(t),
        lambda: function.__defaults__[0].append(5),
        state=lambda: function.__defaults__,
    )


@row
def a_default_that_is_an_object():
    thing = types.SimpleNamespace(k=2)

    class Kind:
        k = 2

    held = Kind()

    def function(t, held=held):
        return t * held.k

    return World(
        lambda t: function(t), lambda: setattr(held, "k", 5), lambda: setattr(held, "k", thing.k)
    )


@row
def a_default_of_the_compiled_function():
    def function(t, k=2):
        return t * k

    return World(
        lambda t: function(t, function.__defaults__[0]),
        lambda: setattr(function, "__defaults__", (5,)),
        lambda: setattr(function, "__defaults__", (2,)),
    )


@rows(
    "about_a_function",
    {
        "name": ("__name__", "other", lambda f: f.__name__),
        "qualname": ("__qualname__", "other", lambda f: f.__qualname__),
        "doc": ("__doc__", "other", lambda f: f.__doc__),
        "module": ("__module__", "other", lambda f: f.__module__),
        "annotations": ("__annotations__", {"t": int}, lambda f: f.__annotations__.get("t")),
        "defaults": ("__defaults__", (5,), lambda f: f.__defaults__[0]),
        "keyword_defaults": ("__kwdefaults__", {"m": 9}, lambda f: f.__kwdefaults__["m"]),
        "code": ("__code__", edited.__code__, lambda f: f.__code__.co_name),
        "argument_count": ("__code__", (lambda t: t).__code__, lambda f: f.__code__.co_argcount),
        "dict": ("extra", 5, lambda f: f.__dict__.get("extra")),
        "vars": ("extra", 5, lambda f: vars(f).get("extra")),
        "attribute": ("extra", 5, lambda f: getattr(f, "extra", None)),
        "wrapped": ("__wrapped__", edited, lambda f: hasattr(f, "__wrapped__")),
    },
)
def _about_a_function(name, value, read):
    function = fresh(base)
    missing = object()
    before = getattr(function, name, missing)

    def undo():
        if before is missing:
            delattr(function, name)
        else:
            setattr(function, name, before)

    return World(lambda t: (t * 2, read(function)), lambda: setattr(function, name, value), undo)


@row
def a_decorated_function():
    def twice(function):
        @functools.wraps(function)
        def wrapper(t):
            return function(t) * wrapper.scale

        wrapper.scale = 2
        return wrapper

    @twice
    def function(t):
        return t + 1

    return World(
        lambda t: function(t),
        lambda: setattr(function, "scale", 5),
        lambda: setattr(function, "scale", 2),
    )


@row
def a_cached_function():
    state = {"k": 2}

    @functools.lru_cache
    def scale(n):
        return n * state["k"]

    return World(lambda t: t * scale(2), scale.cache_clear, lambda: None)


@row
def a_singledispatch_function():
    @functools.singledispatch
    def scale(value):
        return 2

    return World(lambda t: t * scale(1), lambda: scale.register(int, lambda value: 5))


@row
def a_generator_function():
    state = {"k": 2}

    def numbers():
        yield state["k"]
        yield state["k"] + 1

    return World(lambda t: t * sum(numbers()), lambda: state.update(k=5), lambda: state.update(k=2))


@row
def a_recursive_function():
    state = {"k": 2}

    def power(t, n):
        return t if n == 0 else power(t * state["k"], n - 1)

    return World(lambda t: power(t, 3), lambda: state.update(k=5), lambda: state.update(k=2))


@row
def a_function_replaced_by_another_with_the_same_code():
    def make(k):
        return lambda t: t * k

    held = [make(2)]
    other = make(5)
    first = held[0]
    return World(
        lambda t: held[0](t), lambda: held.__setitem__(0, other), lambda: held.__setitem__(0, first)
    )


@row
def a_function_replaced_by_a_builtin():
    held = [lambda a, b: a * b]
    first = held[0]
    return World(
        lambda t: held[0](t, t),
        lambda: held.__setitem__(0, torch.add),
        lambda: held.__setitem__(0, first),
    )


@row
def a_function_replaced_by_an_object():
    class Call:
        def __call__(self, t):
            return t * 7

    held = [lambda t: t * 2]
    first = held[0]
    return World(
        lambda t: held[0](t),
        lambda: held.__setitem__(0, Call()),
        lambda: held.__setitem__(0, first),
    )


@row
def a_missing_cell():
    def outer():
        def inner(t):
            return t * value  # noqa: F821, it is filled later

        def fill(new):
            nonlocal value
            value = new

        def empty():
            nonlocal value
            del value

        value = 2
        del value
        return inner, fill, empty

    inner, fill, empty = outer()

    def program(t):
        try:
            return inner(t)
        except NameError:
            return t - 1

    return World(program, lambda: fill(5), empty)


@row
def a_written_cell():
    def outer():
        count = 0

        def step(t):
            nonlocal count
            count += 1
            return t * count

        def reset():
            nonlocal count
            count = 10

        return step, reset

    step, reset = outer()
    return World(lambda t: step(t), reset, state=lambda: step.__closure__[0].cell_contents)


@row
def a_global_that_was_missing():
    def program(t):
        try:
            return t * STALE_MISSING  # noqa: F821, it is what is tested
        except NameError:
            return t - 1

    return World(
        program,
        lambda: globals().__setitem__("STALE_MISSING", 5),
        lambda: globals().pop("STALE_MISSING"),
    )


@row
def a_global_that_hides_a_builtin():
    return World(
        lambda t: t * max(1, 2),
        lambda: globals().__setitem__("max", lambda a, b: 7),
        lambda: globals().pop("max"),
    )


@row
def a_written_global():
    globals()["STALE_COUNT"] = 0

    def program(t):
        global STALE_COUNT
        STALE_COUNT += 1
        return t * STALE_COUNT

    def arguments():
        globals()["STALE_COUNT"] = start[0]
        return (ramp(),)

    start = [0]
    return World(
        program, lambda: start.__setitem__(0, 5), lambda: start.__setitem__(0, 0), arguments
    )


STALE_COUNT = 0


@row
def a_lambda_in_a_dict():
    table = {"scale": lambda t: t * 2}
    first = table["scale"]
    return World(
        lambda t: table["scale"](t),
        lambda: table.update(scale=lambda t: t * 5),
        lambda: table.update(scale=first),
    )


@row
def the_number_of_arguments():
    count = [2]
    return World(
        lambda *ts: sum(ts),
        lambda: count.__setitem__(0, 3),
        lambda: count.__setitem__(0, 2),
        lambda: tuple(ramp() for _ in range(count[0])),
    )


@row
def keywords_of_a_call():
    options = {"scale": 2}

    def scaled(t, **kw):
        return t * kw.get("scale", 1) + len(kw)

    return World(
        lambda t: scaled(t, **options),
        lambda: options.update(extra=1),
        lambda: options.pop("extra"),
    )


@row
def an_autograd_function():
    class Scaled(torch.autograd.Function):
        k = 2

        @staticmethod
        def forward(ctx, t):
            return t * Scaled.k

        @staticmethod
        def backward(ctx, grad):
            return grad * Scaled.k

    return World(
        lambda t: Scaled.apply(t), lambda: setattr(Scaled, "k", 5), lambda: setattr(Scaled, "k", 2)
    )


@row
def a_forward_of_an_autograd_function():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    first = Scaled.__dict__["forward"]
    return World(
        lambda t: Scaled.apply(t),
        lambda: setattr(Scaled, "forward", staticmethod(lambda ctx, t: t * 5)),
        lambda: setattr(Scaled, "forward", first),
    )


@row
def a_property_function():
    class Kind:
        @property
        def k(self):
            return 2

    thing = Kind()
    first = Kind.k
    return World(
        lambda t: t * thing.k,
        lambda: setattr(Kind, "k", property(lambda self: 5)),
        lambda: setattr(Kind, "k", first),
    )


@row
def code_of_a_property():
    class Kind:
        @property
        def k(self):
            return 2

    def other(self):
        return 5

    thing = Kind()
    first = Kind.k.fget.__code__
    return World(
        lambda t: t * thing.k,
        lambda: setattr(Kind.k.fget, "__code__", other.__code__),
        lambda: setattr(Kind.k.fget, "__code__", first),
    )


@row
def code_of_a_method():
    class Kind:
        def k(self):
            return 2

    def other(self):
        return 5

    thing = Kind()
    first = Kind.k.__code__
    return World(
        lambda t: t * thing.k(),
        lambda: setattr(Kind.k, "__code__", other.__code__),
        lambda: setattr(Kind.k, "__code__", first),
    )


@row
def code_of_forward():
    class Net(torch.nn.Module):
        def forward(self, t):
            return t * 2

    def other(self, t):
        return t * 5

    net = Net()
    first = Net.forward.__code__
    return World(
        lambda t: net(t),
        lambda: setattr(Net.forward, "__code__", other.__code__),
        lambda: setattr(Net.forward, "__code__", first),
    )
