"""capture.stored: a capture is restored where the program is the same, and made anew where it is not."""

import subprocess
import sys
import types

import pytest
import torch
from torch import nn
from torch.nn import functional

import argand
from argand.capture.stored.tokens import code_hash
from argand.runtime.disk.store import DiskStore
from argand.support import events

PROGRAM = """
import enum
import functools
import inspect
import math
import torch
from torch import nn
from torch.nn import functional

SCALE = 2.0
TABLE = {"shift": 1.0}

class Color(enum.Enum):
    RED = 3
    BLUE = 4

def helper(x, factor=1.5):
    return x * factor

def decorate(function):
    @functools.wraps(function)
    def wrapper(self, x):
        return function(self, x) + 1
    return wrapper

@functools.lru_cache
def cached(n):
    return n + 1

def make_closure(constant):
    def inner(x):
        return x + constant
    return inner

closure = make_closure(4.0)

def signed(x: float, y: int = 0):
    pass

class Base(nn.Module):
    power = 2
    names = {"wide": "linear"}
    def tail(self, x):
        return x - 1

class Model(Base):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.mode = "soft"
        self.color = Color.RED
    @property
    def gain(self):
        return 3.0
    @staticmethod
    def twist(x):
        return x.sin()
    @decorate
    def middle(self, x):
        return x.cos()
    def tail(self, x):
        return super().tail(x) * 2
    def forward(self, x):
        x = helper(self.linear(x)) * SCALE + TABLE["shift"]
        x = closure(x) * self.gain + max(cached(2), 1)
        x = self.middle(self.twist(x)) ** self.power
        x = x * getattr(self, self.names["wide"]).in_features
        x = x + sum(p.annotation is float for p in inspect.signature(signed).parameters.values())
        if self.mode == "soft":
            x = functional.relu(x)
        return {"out": self.tail(x), "color": self.color.value, "pi": math.pi}

def make():
    torch.manual_seed(0)
    return Model()
"""

# An edit of the program; each must be noticed.
EDITS = {
    "function": ("return x * factor", "return x / factor"),
    "default": ("factor=1.5", "factor=2.5"),
    "global": ("SCALE = 2.0", "SCALE = 3.0"),
    "item": ('"shift": 1.0', '"shift": 5.0'),
    "enumeration": ("RED = 3", "RED = 7"),
    "closure": ("make_closure(4.0)", "make_closure(6.0)"),
    "closure code": ("return x + constant", "return x - constant"),
    "class attribute": ("power = 2", "power = 3"),
    "class attribute that is a dict": ('"wide": "linear"', '"wide": "linear", "thin": "linear"'),
    "annotation": ("x: float", "x: int"),
    "inherited method": ("return x - 1", "return x - 9"),
    "property": ("return 3.0", "return 5.0"),
    "static method": ("return x.sin()", "return x.tanh()"),
    "decorated": ("return x.cos()", "return x.exp()"),
    "decorator": ("function(self, x) + 1", "function(self, x) + 2"),
    "cached": ("return n + 1", "return n + 2"),
    "attribute": ('self.mode = "soft"', 'self.mode = "hard"'),
    "structure": ("width, width)", "width, width, bias=False)"),
    "other member": ("color = Color.RED", "color = Color.BLUE"),
    "shadowed builtin": ("SCALE = 2.0", "SCALE = 2.0\ndef max(a, b): return 11"),
    "new special method": (
        "    @staticmethod",
        "    def __getattr__(self, name): return super().__getattr__(name)\n    @staticmethod",
    ),
    "instance hook": (
        "self.mode = ",
        "self.linear.register_forward_hook(lambda *a: a[2] * 2); self.mode = ",
    ),
    "rebound": (
        "def make():",
        "functional = type('F', (), {'relu': staticmethod(torch.sigmoid)})\ndef make():",
    ),
}


def load(text):
    module = types.ModuleType("stored_program")
    sys.modules[module.__name__] = module
    exec(compile(text, "stored_program.py", "exec"), module.__dict__)
    return module


def run(make, directory, x=None, tolerance=1e-5, **options):
    """(results, counters) of one compiled run as if in a new process, checked against eager."""
    argand.reset()
    model, x = make(), torch.linspace(-1, 1, 8).reshape(2, 4) if x is None else x
    wanted = model(x)
    compiled = argand.compile(
        model, options={"cache_dir": str(directory), "strict": True, **options}
    )
    with events.collect() as heard:
        found = compiled(x)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=tolerance, atol=tolerance)
    return heard


def reasons(heard):
    rows = [e for e in heard.events if isinstance(e, events.Count)]
    return [
        f"{e.counter} {e.detail}"
        for e in rows
        if e.counter in ("cache.miss", "cache.bypass", "restores")
    ]


@pytest.fixture
def filled(tmp_path):
    heard = run(load(PROGRAM).make, tmp_path)
    assert heard.total("compiles") == 1, reasons(heard)
    assert not heard.total("cache.bypass"), reasons(heard)
    return tmp_path


def test_the_same_program_is_restored(filled):
    heard = run(load(PROGRAM).make, filled)
    assert (heard.total("restores"), heard.total("compiles")) == (1, 0), reasons(heard)
    moved = load("\n\n# moved\n" + PROGRAM)
    heard = run(moved.make, filled)
    assert (heard.total("restores"), heard.total("compiles")) == (1, 0), reasons(heard)


@pytest.mark.parametrize("edit", EDITS)
def test_every_edit_is_noticed(filled, edit):
    old, new = EDITS[edit]
    assert PROGRAM.count(old) == 1
    heard = run(load(PROGRAM.replace(old, new)).make, filled)
    assert heard.total("restores") == 0
    heard = run(load(PROGRAM).make, filled)  # and the first is still there
    assert heard.total("restores") == 1, reasons(heard)


def patched_relu(x):
    return x.relu() + 1


def patched_forward(self, x):
    return functional.linear(x, self.weight, self.bias) * 2


patched_forward.__module__, patched_forward.__qualname__ = (
    "torch.nn.modules.linear",
    "Linear.forward",
)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (functional, "relu", patched_relu),
        (nn.Linear, "forward", patched_forward),
        (nn.Linear, "extra_repr", None),
    ],
)
@pytest.mark.parametrize("first", ["patched", "plain"])
def test_patches_of_torch_are_noticed(tmp_path, monkeypatch, owner, name, value, first):
    """A patch that matters is noticed, whether it is there first or later; one that does not is not."""
    make = load(PROGRAM).make
    for state in (first, "plain" if first == "patched" else "patched"):
        with monkeypatch.context() as patch:
            if state == "patched":
                patch.setattr(owner, name, value)
            heard = run(make, tmp_path)
    assert heard.total("restores") == (value is None)


def test_other_inputs_options_and_state_are_noticed(filled):
    make = load(PROGRAM).make
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    assert run(make, filled, x).total("restores") == 0
    assert run(make, filled, x).total("restores") == 1
    assert run(make, filled).total("restores") == 1
    assert run(make, filled, x.t().contiguous().t()).total("restores") == 0
    assert run(make, filled, x.clone().requires_grad_()).total("restores") == 0
    assert run(lambda: make().double(), filled, x.double()).total("restores") == 0
    assert run(lambda: make().eval(), filled).total("restores") == 1  # nothing read the flag
    assert run(make, filled, opt_level=1).total("restores") == 0
    for context in (torch.no_grad, lambda: torch.autocast("cpu"), torch.inference_mode):
        with context():
            assert run(make, filled, tolerance=0.2).total("restores") == 0  # bfloat16 is coarse
            assert run(make, filled, tolerance=0.2).total("restores") == 1


def test_gradients_of_a_restored_training_step(tmp_path):
    results = []
    for _ in range(2):
        argand.reset()
        torch.manual_seed(0)
        layers = (
            nn.Linear(4, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Dropout(0.0),
            nn.Linear(4, 2),
        )
        model = nn.Sequential(*layers)
        compiled = argand.compile(model, options={"cache_dir": str(tmp_path), "strict": True})
        with events.collect() as heard:
            compiled(torch.linspace(0, 1, 20).reshape(5, 4)).square().sum().backward()
        results.append([*(p.grad for p in model.parameters()), *model.buffers()])
    assert (heard.total("restores"), heard.total("compiles")) == (1, 0), reasons(heard)
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second)


def test_effects_are_replayed(tmp_path):
    for _ in range(2):
        argand.reset()
        seen, counts = [], {"calls": 0}

        def program(x, seen, counts):
            counts["calls"] += 1
            seen.append(x * 2)
            return x + 1

        compiled = argand.compile(program, options={"cache_dir": str(tmp_path), "strict": True})
        with events.collect() as heard:
            compiled(torch.ones(3), seen, counts)
        assert counts == {"calls": 1}
        assert torch.equal(seen[0], torch.full((3,), 2.0))
    assert heard.total("restores") == 1, reasons(heard)


BROKEN = """
import functools
import torch
from torch import nn

LOG = []
SHIFT = 2.0

def note(value):
    LOG.append(type(value).__name__)
    return 3.0

class Guarded(nn.Module):
    def forward(self, x):
        y = x.sin()
        try:
            y = y + int(y.sum().item() * 0 + 1)
            self.check(y)
        except ValueError as error:
            y = y * len(str(error))
        return y.cos() + SHIFT
    def check(self, y):
        if y.sum() > -1e9:
            raise ValueError("four")

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 4), Guarded()])
    def forward(self, x):
        total = torch.zeros(())
        def add(value):
            nonlocal total
            total = total + value.mean()
            return total
        for name, part in zip("ab", self.parts):
            x = part(x)
            if add(x) > 1e9:
                x = x * 2
            print(name, end="")
        scale = note(x)
        return {"out": x * scale + add(x) * 5}

def make():
    torch.manual_seed(0)
    return Model()
"""

BROKEN_EDITS = {
    "before the break": ("y = x.sin()", "y = x.tan()"),
    "after the break": ("add(x) * 5", "add(x) * 7"),
    "in the handler": ("y * len", "y - len"),
    "in the inlined frame": ("y.cos() + SHIFT", "y.cos() - SHIFT"),
    "the operation": ("return 3.0", "return 9.0"),
    "a global read after it": ("SHIFT = 2.0", "SHIFT = 4.0"),
    "the nested function": ("total + value.mean()", "total - value.mean()"),
    "the exception": ('"four"', '"fourteen"'),
}


def test_graph_breaks_are_restored(tmp_path):
    first = run(load(BROKEN).make, tmp_path)
    assert first.total("compiles") >= 5
    assert not first.total("cache.bypass"), reasons(first)
    for text in (BROKEN, "# moved\n" + BROKEN):
        heard = run(load(text).make, tmp_path)
        assert heard.total("compiles") == 0, reasons(heard)
        assert heard.total("restores") >= first.total("compiles")


@pytest.mark.parametrize("edit", BROKEN_EDITS)
def test_edits_around_graph_breaks_are_noticed(tmp_path, edit):
    run(load(BROKEN).make, tmp_path)
    old, new = BROKEN_EDITS[edit]
    assert BROKEN.count(old) == 1
    run(load(BROKEN.replace(old, new)).make, tmp_path)  # the results are compared
    assert run(load(BROKEN).make, tmp_path).total("compiles") == 0


def test_frames_without_a_graph_are_restored_where_they_are_the_same(tmp_path):
    text = """
LIMIT = 3
def settle(a, b):
    return {"out": a + b if a < LIMIT else a - b}
"""
    for change in ("LIMIT = 3", "LIMIT = 1"):
        for expected in (0, 1):
            argand.reset()
            settle = load(text.replace("LIMIT = 3", change)).settle
            compiled = argand.compile(settle, options={"cache_dir": str(tmp_path), "strict": True})
            with events.collect() as heard:
                assert compiled(2, 5) == settle(2, 5)
            assert heard.total("restores") == expected, reasons(heard)
    argand.reset()
    with events.collect() as heard:  # with tensors there is one
        assert torch.equal(compiled(torch.ones(()), torch.ones(3))["out"], torch.zeros(3))
    assert heard.total("compiles")


def test_restored_guards_tell_the_users_lines(filled):
    lines = {}
    for name, head in (("traced", ""), ("restored", "\n\n# moved\n")):
        argand.reset()
        module = load(head + PROGRAM)
        model = module.make()
        directory = filled if name == "restored" else filled / "other"
        compiled = argand.compile(model, options={"cache_dir": str(directory), "strict": True})
        with events.collect() as heard:
            compiled(torch.ones(2, 4))
            module.SCALE = 7.0
            compiled(torch.ones(2, 4))
            model.mode = "hard"
            compiled(torch.ones(2, 4))
        assert heard.total("restores") == (name == "restored"), reasons(heard)
        rows = [
            e for e in heard.events if isinstance(e, events.Count) and e.counter == "recompiles"
        ]
        lines[name] = [e.detail for e in rows]
    at = 1 + PROGRAM.split("\n").index(
        '        x = helper(self.linear(x)) * SCALE + TABLE["shift"]'
    )
    assert lines["traced"][0] == f"`SCALE` was 2.0, is 7.0 [stored_program.py:{at} in forward]"
    assert (
        lines["restored"][0] == f"`SCALE` was 2.0, is 7.0 [stored_program.py:{at + 3} in forward]"
    )
    assert "`self.mode` was 'soft', is 'hard' [stored_program.py:" in lines["restored"][1]


SAME = """
import torch
def outer(scale):
    def inner(x):
        return x * scale
    return inner
one = outer(2.0)
two = one
def make():
    return lambda x: {"out": one(x) + (1 if one is two else 5)}
"""


def test_objects_that_were_one_stay_one(tmp_path):
    run(load(SAME).make, tmp_path)
    assert run(load(SAME).make, tmp_path).total("restores") == 1
    # the results are compared
    run(load(SAME.replace("two = one", "two = outer(2.0)")).make, tmp_path)


# A global, a number made of it, and an edit: what a trace knows by identity, natively or not at all.
WORLDS = {
    "annotation": ("def f(x: 2): return x", "f.__annotations__['x']", "x: 2", "x: 3"),
    "docstring": ("def f(): return 1\nf.__doc__ = 'ab'", "len(f.__doc__)", "'ab'", "'abc'"),
    "function attribute": ("def f(): return f.k\nf.k = 2", "f()", "f.k = 2", "f.k = 3"),
    "default object": ("class O: v = 2\ndef f(a=O()): return a.v", "f()", "v = 2", "v = 3"),
    "members": ("class R: a = 1", "len([n for n in vars(R) if n[0] != '_'])", "a = 1", "a = b = 1"),
    "dir": ("class R: a = 1", "len(dir(R))", "a = 1", "a = b = 1"),
    "registered": (
        "class A(abc.ABC): pass\nA.register(dict)",
        "2 if isinstance({}, A) else 3",
        "A.register(dict)",
        "",
    ),
    "bases": ("class A: k = 2\nclass B: k = 3\nclass R(A, B): pass", "R.k", "R(A, B)", "R(B, A)"),
    "metaclass": ("class M(type): k = 2\nclass R(metaclass=M): pass", "R.k", "k = 2", "k = 3"),
    "descriptor": (
        "class D:\n  def __get__(*a): return 2\nclass R: k = D()",
        "R().k",
        "return 2",
        "return 3",
    ),
    "proxy": ("K = types.MappingProxyType({'a': 2})", "K['a']", "'a': 2", "'a': 3"),
    "pattern": ("K = re.compile('a+')", "2 if K.match('aa') else 3", "'a+'", "'b+'"),
    "fraction": ("K = fractions.Fraction(2, 1)", "float(K)", "2, 1", "3, 1"),
    "path": ("K = pathlib.Path('/ab')", "len(str(K))", "'/ab'", "'/abc'"),
    "getter": ("K = operator.itemgetter(0)", "K((2, 3))", "getter(0)", "getter(1)"),
    "alias": (
        "K = typing.Optional[int]",
        "2 if K == typing.Optional[int] else 3",
        "K = typing.Optional[int]",
        "K = int",
    ),
    "array": ("K = np.array([2.0, 1.0])", "float(K[0])", "[2.0", "[3.0"),
    "tensor": ("K = torch.tensor([2.0])", "K.item()", "[2.0]", "[3.0]"),
    "partial": ("K = functools.partial(pow, 2)", "K(2)", "pow, 2", "pow, 3"),
    "method": (
        "class O:\n  def f(s): return s.k\no = O(); o.k = 2\nK = o.f",
        "K()",
        "o.k = 2",
        "o.k = 3",
    ),
    "builtin": (
        "import builtins\nbuiltins.of_tests = lambda: 2",
        "of_tests()",
        "lambda: 2",
        "lambda: 3",
    ),
}


@pytest.mark.parametrize("world", WORLDS)
def test_other_worlds_are_noticed(tmp_path, world):
    """In one process and in the next, whichever is first."""
    head, number, old, new = WORLDS[world]
    imports = "import abc, fractions, functools, math, operator, pathlib, re, types, typing\nimport numpy as np, torch"
    texts = [
        f"{imports}\n{text}\ndef make(): return lambda x: {{'out': x.sin() * ({number})}}"
        for text in (head, head.replace(old, new))
    ]
    assert texts[0] != texts[1]
    for one, two in (texts, texts[::-1]):
        for text in (one, two, one):
            run(load(text).make, tmp_path / str(one is texts[0]), strict=False)
        argand.reset()
        module, x = load(one), torch.ones(3)
        program = module.make()
        compiled = argand.compile(program, options={"cache": False})
        for text in (one, two):
            exec(text, module.__dict__)
            torch.testing.assert_close(compiled(x)["out"], program(x)["out"])


@pytest.mark.parametrize(
    "question",
    ['float(os.environ.get("FACTOR", "1"))', "os.getpid()", 'hash("a") % 7', "constant()"],
)
def test_what_depends_on_the_process_is_not_stored(tmp_path, question):
    text = f"""
import os
import torch
import argand
@argand.assume_constant_result
def constant():
    return 3
def make():
    return lambda x: {{"out": x * {question}}}
"""
    for _ in range(2):
        heard = run(load(text).make, tmp_path)
        assert heard.total("restores") == 0
        assert heard.total("cache.bypass") == 1, reasons(heard)


def test_questions_about_torch_are_asked_again(tmp_path):
    text = """
import torch
def make():
    return lambda x: {"out": x * torch.get_num_threads()}
"""
    make, threads = load(text).make, torch.get_num_threads()
    try:
        for count, restored in ((threads, 0), (threads, 1), (threads + 1, 0), (threads + 1, 1)):
            torch.set_num_threads(count)
            assert run(make, tmp_path).total("restores") == restored
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("damage", ["{}", "[]", "nonsense", '{"guards": 3}'])
def test_wrong_data_and_lost_graphs_are_misses(filled, damage):
    store = DiskStore(filled)
    for entry in list(store.entries()):
        sections = store.get(entry.key)
        if b'"capture"' in sections["about"]:
            store.put(entry.key, {**sections, "0": damage.encode()})
    heard = run(load(PROGRAM).make, filled)
    assert heard.total("restores") == 0
    for entry in list(store.entries()):
        if b'"autograd"' in (store.get(entry.key) or {}).get("about", b""):
            entry.path.unlink()
    heard = run(load(PROGRAM).make, filled)
    assert heard.total("restores") == 0
    assert run(load(PROGRAM).make, filled).total("restores") == 1


def test_code_is_hashed_by_what_it_does():
    def codes(text):
        space = {}
        exec(text, space)
        return code_hash(space["f"].__code__)

    one = "def f(x): return x in {'a', 'b', 'c'} or x == 0.0"
    assert codes(one) == codes("\n\n" + one)
    others = [
        one.replace("0.0", "-0.0"),
        one.replace("0.0", "0"),
        one.replace("'c'", "'d'"),
        one.replace("or", "and"),
    ]
    assert len({codes(text) for text in [one, *others]}) == 5


FRESH = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import program
from argand.support import events
import argand
model = program.make()
x = torch.linspace(-1, 1, 8).reshape(2, 4)
with events.collect() as heard:
    found = argand.compile(model)(x)["out"]
torch.testing.assert_close(found, model(x)["out"])
found.sum().backward()
heavy = [n for n in ("argand.capture.trace", "argand.autograd.trace", "argand.native.build") if n in sys.modules]
print(heard.total("restores"), heard.total("compiles"), heavy)
"""


def test_a_fresh_process(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONHASHSEED": "random", "PATH": ""}
    lines = [
        subprocess.run(
            [sys.executable, "-c", FRESH, str(tmp_path)],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    assert lines[0].stdout.startswith("0 1")
    assert lines[1].stdout.strip() == "1 0 []"


def test_objects_made_by_python_constructors_are_restored(tmp_path):
    """They are made by a function of ours, in a module that a restored frame does not import."""
    text = """
import torch
class Result:
    def __init__(self, value):
        self.value = value * 2
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
    def forward(self, x):
        return {"out": Result(x + self.weight).value * Result(x).value}
def make():
    return Model()
"""
    (tmp_path / "program.py").write_text(text)
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""}
    command = [sys.executable, "-c", FRESH, str(tmp_path)]
    runs = [
        subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [done.stdout.split()[:2] for done in runs] == [["0", "1"], ["1", "0"]]
