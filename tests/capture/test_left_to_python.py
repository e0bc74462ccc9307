"""What is not captured runs in Python, and the rest is captured around it."""

import itertools
import logging
import math
import random
import traceback
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import argand
from argand.support import events

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def printing(x):
    y = x + 1
    print("value", y.sum())
    return y * 2


@case
def item_and_tolist(x):
    n = (x * 0 + 2).sum().item()
    return x * n, x.tolist(), float(x[0, 0]), int(x[0, 1]), bool(x[0, 0] == 0)


@case
def branches(x):
    if x.sum() > 0:
        x = x + 1
    elif x.max() > 5:
        x = x - 1
    y = x if (x > 100).any() else x * 2
    while y.sum() < 100:
        y = y * 2
    return y, bool(x.sum() > 3 and x.sum() < 4), (x.sum() > 1000) or 5


@case
def data_dependent_shapes(x):
    a = x[x > 2]
    b = x.nonzero()
    c = torch.unique(x)
    return a * 2, b + 1, c, torch.masked_select(x, x > 1).sum()


@case
def numpy_calls(x):
    a = x.numpy() + 1
    b = torch.from_numpy(np.ascontiguousarray(a[::-1]))
    return b * np.float64(2.0) + float(np.sqrt(4.0)), np.prod([2, 3])


@case
def random_module(x):
    random.seed(3)
    n = random.random()
    return x * n, random.randint(1, 3)


@case
def generator_of_its_own(x):
    numbers = random.Random(3)  # its class is C's, but on the heap
    return x * numbers.random(), numbers.randint(1, 3)


@case
def transforms(x):
    f = torch.func.vmap(lambda row: row.sin() + 1)
    g = torch.func.grad(lambda row: (row * row).sum())
    return f(x) * 2, g(x) + 1


@case
def backward_inside(x):
    w = torch.ones(3, requires_grad=True)
    loss = ((x * w) ** 2).sum()
    loss.backward()
    return w.grad + 1, torch.autograd.grad((w * x).sum(), w)[0] * 2


@case
def optimizer_inside(x):
    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        loss = net(x).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.weight.detach() + 1


@case
def messages(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("careful")
    logging.getLogger("argand.tests").debug("x has %s rows", x.shape[0])
    return x + 1


@case
def iteration_over_tensors(x):
    return [row * i for i, row in enumerate(x)], len(x), sum(x), max(1, len(x)), list(x[0])


@case
def inference(x):
    with torch.inference_mode():
        y = x * 2
    return y + 0 if not y.is_inference() else y.clone(), math.floor(2.5)


@case
def break_inside_torch_contexts(x):
    w = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x
        argand.graph_break()
        b = x @ x
        with torch.no_grad():
            c = w * 2
            argand.graph_break()
            d = w * 3
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        argand.graph_break()
        e = x * 2
    f = x @ x
    return a, b, c, d, e, f, c.requires_grad, d.requires_grad, torch.is_autocast_enabled("cpu")


@case
def subclasses(x):
    class Mine(torch.Tensor):
        pass

    y = x.as_subclass(Mine)
    return (y * 2).as_subclass(torch.Tensor) + 1


@case
def strings_of_tensors(x):
    y = x + 1
    return f"{y.sum().item():.1f} {y.shape}", str(y)[:6], y


@case
def generator_state_across_a_break(x):
    def numbers():
        for i in range(4):
            yield x + i

    g = numbers()
    first = next(g)
    argand.graph_break()
    second = next(g)
    return first, second, [v * 2 for v in g]


@case
def iterators_across_a_break(x):
    it = iter([x, x + 1, x + 2])
    pairs = zip([1, 2, 3], [4, 5, 6])
    a = next(it)
    next(pairs)
    argand.graph_break()
    return a, next(it), list(it), list(pairs)


@case
def break_in_a_callback(x):
    def score(i):
        return (x[i] * -1).sum().item()

    return sorted([0, 1, 2], key=score), x + 1


@case
def break_in_constructor_and_property(x):
    class Box:
        def __init__(self, v):
            self.v = v + 1
            argand.graph_break()
            self.w = v * 2

        @property
        def both(self):
            y = self.v + self.w
            argand.graph_break()
            return y * 2

    box = Box(x)
    return box.both + box.v, [b.w for b in [Box(x + 1), Box(x)]]


@case
def break_in_dunder(x):
    class Odd:
        def __add__(self, other):
            y = other * 2
            argand.graph_break()
            return y + 1

        def __len__(self):
            argand.graph_break()
            return 3

        def __bool__(self):
            argand.graph_break()
            return False

        def __iter__(self):
            argand.graph_break()
            return iter([x, x + 1])

    odd = Odd()
    if odd:
        x = x - 100
    return odd + x, len(odd), [y * 2 for y in odd], x if odd else x * 3


@case
def state_of_other_libraries(x):
    import itertools

    counter = itertools.count(5)
    next(counter)
    argand.graph_break()
    return x + next(counter)


@case
def guard_objects_of_torch(x):
    guard = torch._C._DisableTorchDispatch()
    state = torch.get_rng_state()
    del guard
    torch.manual_seed(3)
    y = x + torch.rand_like(x)
    torch.set_rng_state(state)
    return y


@pytest.mark.parametrize("name", CASES)
def test_left_to_python(name, capsys):
    function = CASES[name]
    run = argand.compile(function, backend="eager", options={"strict": True})
    for _ in range(2):
        x = torch.arange(9.0).reshape(3, 3)
        want = function(x.clone())
        expected = capsys.readouterr().out
        got = run(x.clone())
        assert capsys.readouterr().out == expected
        torch.testing.assert_close(got, want, rtol=0, atol=0) if isinstance(
            want, torch.Tensor
        ) else same(got, want)


def same(got, want):
    assert type(got) is type(want)
    if isinstance(want, dict):
        got, want = list(got.items()), list(want.items())
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    elif isinstance(want, list | tuple):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    else:
        assert got == want


def test_warning_reaches_the_user():
    def f(x):
        warnings.warn("from the model")
        return x + 1

    with pytest.warns(UserWarning, match="from the model"):
        argand.compile(f, backend="eager", fullgraph=True)(torch.ones(1))


def test_a_number_nobody_looks_at_breaks_nothing():
    def f(x):
        y = x * 2
        n = y.sum().item()
        y.add_(1)
        return y, n, {"n": n}, isinstance(n, float), type(n)

    with events.collect() as heard:
        same(argand.compile(f, backend="eager", fullgraph=True)(torch.ones(2)), f(torch.ones(2)))
    assert heard.total("capture.graphs") == 1


CHECKED = """
def pure(x, log, *more, key=3, **other):
    log.append(1)
    assert x.sum().item() < 100, f"large {x.sum()} {key} {more} {other}"
    log.append(2)
    assert (x >= 0).all(), "negative"
    return torch.arange(60.0)[x.long()], torch.rand(2)

def changing(x, log, *more, **other):
    x.add_(1)
    log.append(1)
    assert x.sum().item() < 100
    x.mul_(2)
    if x.max() > 50:
        log.append(3)
        raise ValueError("large")
    with torch.no_grad():
        x.view(-1)[0].zero_()
        assert not (x < 0).any()
    return x + torch.rand(2)

def caught(x, log, *more, **other):
    try:
        if x.sum() < 0:
            raise KeyError("k")
        y = x * 2
    except KeyError:
        log.append("caught")
        y = x * 3
    return y
"""  # pytest rewrites asserts of this file


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", ["pure", "changing", "caught"])
def test_checks_of_a_graph_leave_the_state_of_eager(name, fullgraph, backend):
    names = {"torch": torch}
    exec(compile(CHECKED, "checked.py", "exec"), names)
    run = argand.compile(names[name], backend=backend, fullgraph=fullgraph)

    def outcome(function, value):
        torch.manual_seed(1)
        x, log = torch.full((2,), value), []
        try:
            result = function(x, log, 7, key=5, z=1)
        except Exception as error:
            entries = traceback.extract_tb(error.__traceback__)[1:]
            result = repr((error, error.__context__, [entry.lineno for entry in entries]))
        return repr((result, x, log, torch.rand(1), torch.is_grad_enabled()))

    with events.collect() as heard:
        for value in (1.0, -1.0, 1000.0, 30.0, -60.0, 2.0):
            assert outcome(run, value) == outcome(names[name], value)
    assert fullgraph or (heard.total("capture.breaks") > 0) == (name == "changing")


def test_the_rest_is_captured():
    def f(x):
        a = x + 1
        print(end="")
        b = a * 2
        return b

    with events.collect() as heard:
        argand.compile(f, backend="eager")(torch.ones(1))
    assert heard.total("capture.graphs") == 2 and heard.total("capture.breaks") == 1


def test_what_hears_a_message_at_once_is_asked_before_the_frame_goes_on():
    heard = []

    class Keep(logging.Handler):
        def emit(self, record):
            heard.append(record.getMessage())

    logger = logging.Logger("argand.tests.heard")

    def f(x):
        y = x + 1
        logger.warning("rows: %s", x.shape[0])
        return y * len(heard)

    compiled = argand.compile(f)
    torch.testing.assert_close(compiled(torch.ones(3)), (torch.ones(3) + 1) * 0)
    logger.addHandler(Keep())
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3) + 1)
    torch.testing.assert_close(compiled(torch.ones(3)), (torch.ones(3) + 1) * 2)
    assert heard == ["rows: 3"] * 2


def test_what_shows_a_warning_is_asked_before_the_frame_goes_on(monkeypatch):
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda *args: shown.append(str(args[0])))

    def f(x):
        warnings.warn("careful", stacklevel=1)
        return x * len(shown)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        torch.testing.assert_close(argand.compile(f)(torch.ones(3)), torch.ones(3))


_ASKED: list[str] = []


class _Number:
    def __index__(self):
        _ASKED.append("index")
        return 1

    def __float__(self):
        _ASKED.append("float")
        return 1.0


_ASKING = {
    "oct": oct, "hex": hex, "bin": bin, "chr": chr, "range": lambda n: [*range(n)], "sqrt": math.sqrt,
    "enumerate": lambda n: [*enumerate("a", n)], "islice": lambda n: [*itertools.islice("ab", n)],
    "bytes": lambda n: bytes([n]), "gcd": lambda n: math.gcd(n, 2), "fsum": lambda n: math.fsum([n]),
}  # fmt: skip


@pytest.mark.parametrize("name", _ASKING)
def test_native_code_that_asks_an_object_for_its_number(name):
    """`oct(n)` ran `n.__index__` once, while it was traced: what that did was missing from later calls."""
    function = _ASKING[name]

    def program(x):
        return x + 1, function(_Number())

    compiled = argand.compile(program, backend="eager")
    for _ in range(3):
        _ASKED.clear()
        wanted, asked = program(torch.ones(1))[1], [*_ASKED]
        _ASKED.clear()
        assert compiled(torch.ones(1))[1] == wanted
        assert asked == _ASKED != []


def _named_anew(x):
    kind = type("Old", (), {})
    kind.__name__, kind.__doc__, kind.__module__ = "New", "text", "elsewhere"
    return x + 1, kind.__name__, kind.__doc__, kind.__module__


def _named_by_a_class(x):
    class Old:
        """Old text."""

    Old.__name__, Old.__qualname__, Old.__doc__ = "New", "A.New", "text"
    return x + 1, Old.__name__, Old.__qualname__, Old.__doc__, str(Old)


def _annotated_anew(x):
    kind = type("Kind", (), {"__annotations__": {}})
    kind.__annotations__ = {"a": int}
    return x + 1, kind.__annotations__


def _refused(x):
    try:
        itertools.accumulate.anything = 1
    except TypeError as error:
        return x + 1, str(error)
    return x, "changed"


def _of_no_module(x):
    class Failure(Exception):
        pass

    Failure.__module__ = 5
    try:
        raise Failure("text")
    except Failure as error:
        return x + 1, str(error), Failure.__module__


@pytest.mark.parametrize(
    "program", [_named_anew, _named_by_a_class, _annotated_anew, _refused, _of_no_module]
)
def test_facts_of_classes_that_are_written(program):
    """They stand in the class itself: a trace that only noted the write read the old ones, or raised at its end."""
    compiled = argand.compile(program, backend="eager", options={"strict": True})
    for _ in range(2):
        assert compiled(torch.ones(1))[1:] == program(torch.ones(1))[1:]
