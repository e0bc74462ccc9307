"""Soundness: for every guard kind, changing the guarded thing makes the next call miss."""

import collections
import ctypes
import enum
import gc
import math
import types
import weakref

import pytest
import torch

from argand.runtime import _native, tensors
from argand.runtime.guard_programs import compile_guards
from argand.runtime.guards import Guard, GuardKind, Relation, tensor_spec
from argand.runtime.sources import (
    Attr,
    Builtin,
    Cell,
    Closure,
    ClosureCell,
    Const,
    Defaults,
    DictAttr,
    DictOf,
    FrameFunction,
    Global,
    Item,
    KwDefaults,
    Local,
    SizeOf,
    TypeAttr,
    TypeOf,
)

from .handmade import HandMade

K = GuardKind
X = Local("x")


def same(value):
    return value


def checks(rows, good, bad, function=None):
    """The guards hold for all of `good` and for none of `bad`."""

    def f(x):
        return None

    run = HandMade(function or f, rows)
    run(good[0])
    assert len(run.misses) == 1
    for value in good:
        assert run(value) == ("hit",), value
    assert len(run.misses) == 1
    program = run.entries[0].program
    for value in bad:
        view = _native.FrameView((f.__code__, f, f.__globals__, {}, (value,)))
        assert isinstance(program.check(view), int), value
        assert program.check(_native.FrameView((f.__code__, f, {}, {}, (good[0],)))) == ()


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    ("expected", "others"),
    [
        (1, [True, 1.0, 2, None, "1"]),
        (True, [1, False]),
        (None, [0, False]),
        (0.0, [-0.0, 0, False, math.nan]),
        (math.nan, [0.0, None]),
        (2**70, [2**70 + 1, float(2**70)]),
        (1j, [1j + 1, 1.0]),
        ("abc", ["abd", b"abc"]),
        (b"abc", ["abc"]),
        ((1, 2.0, "a"), [(1, 2, "a"), (1, 2.0), [1, 2.0, "a"], (1, 2.0, "a", 0)]),
        ([1, [2, 3]], [[1, [2, 4]], [1, (2, 3)], [1]]),
        ({"a": 1, "b": [2]}, [{"b": [2], "a": 1}, {"a": 1}, {"a": True, "b": [2]}]),
        (frozenset({1, 2}), [{1, 2}, frozenset({1, 3}), frozenset({True, 2})]),
        (slice(1, 2), [slice(1, 3), slice(1, 2, 1), slice(1.0, 2)]),
        (range(0, 3, 2), [range(0, 4, 2), range(0, 3)]),
        (torch.Size([1, 2]), [(1, 2), torch.Size([1, 3])]),
        (torch.float32, [torch.float64]),
        (torch.device("cpu"), [torch.device("meta"), "cpu"]),
        (Colour.RED, [Colour.BLUE, 1]),
    ],
)
def test_equals(expected, others):
    import copy

    twin = copy.deepcopy(expected)
    checks([Guard(K.EQUALS, X, expected)], [expected, twin], others)


def test_equals_keeps_its_own_copy_of_containers():
    live = [1, 2]
    run = HandMade(same, [Guard(K.EQUALS, Local("value"), live)])
    run(live)
    assert run(live) == ("hit",)
    live.append(3)
    program = run.entries[0].program
    assert program.check(run.misses[0]) == 0


def test_other_sources_are_shown_as_the_user_writes_them():
    y, z = Local("y"), Attr(Local("z"), "weight")
    assert str(Guard(K.SAME_OBJECT, X, z)) == "SAME_OBJECT x z.weight"
    assert str(Guard(K.NOT_ALIASED, X, (y, z))) == "NOT_ALIASED x y, z.weight"


def test_type_is():
    class A:
        pass

    class B(A):
        pass

    one = A()
    checks([Guard(K.TYPE_IS, X, A)], [A(), one], [B(), 1, A])
    run = HandMade(same, [Guard(K.TYPE_IS, Local("value"), A)])
    run(one)
    assert run(one) == ("hit",)
    one.__class__ = B
    assert run.entries[0].program.check(run.misses[0]) == 0


def test_id_is():
    one, two = object(), object()
    checks([Guard(K.ID_IS, X, one)], [one], [two, None])


def test_length():
    checks([Guard(K.LENGTH, X, 2)], [[1, 2], (1, 2), {1: 2, 3: 4}, {1, 2}, "ab"], [[], [1], 5])


class HasLength:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n


def test_length_of_a_user_class():
    rows = [Guard(K.TYPE_IS, X, HasLength), Guard(K.LENGTH, X, 2)]
    checks(rows, [HasLength(2)], [HasLength(3), object()])


def test_dict_keys_are_ordered():
    good = [{"a": 1, "b": 2}, collections.OrderedDict(a=1, b=2)]
    checks([Guard(K.DICT_KEYS, X, ("a", "b"))], good, [{"b": 1, "a": 2}, {"a": 1}, ["a", "b"]])


def test_order_of_an_ordered_dict_changes_without_a_new_version():
    d = collections.OrderedDict(a=1, b=2)
    run = HandMade(same, [Guard(K.DICT_KEYS, Local("value"), ("a", "b"))])
    run(d)
    assert run(d) == ("hit",)
    d.move_to_end("a")
    assert run.entries[0].program.check(run.misses[0]) == 0


class Plain:
    pass


def with_attribute(**names):
    made = Plain()
    vars(made).update(names)
    return made


def test_has_and_no_attribute():
    checks([Guard(K.HAS_ATTR, X, "a")], [with_attribute(a=1)], [with_attribute(b=1), 3])
    checks([Guard(K.NO_ATTR, X, "a")], [with_attribute(b=1)], [with_attribute(a=1)])


def test_dict_contains_and_missing():
    checks([Guard(K.DICT_CONTAINS, X, "a")], [{"a": 1}, {"a", "b"}], [{"b": 1}, set(), []])
    checks([Guard(K.DICT_MISSING, X, "a")], [{"b": 1}, set()], [{"a": 1}, {"a"}, []])


def test_missing():
    value = with_attribute(a=1)
    run = HandMade(same, [Guard(K.MISSING, DictAttr(Local("value"), "b"))])
    run(value)
    assert run(value) == ("hit",)
    value.b = 1
    assert run.entries[0].program.check(run.misses[0]) == 0


def base_tensor():
    return torch.zeros(4, 6)


TENSOR_CHANGES = {
    "dtype": lambda: torch.zeros(4, 6, dtype=torch.float64),
    "size": lambda: torch.zeros(4, 7),
    "rank": lambda: torch.zeros(4, 6, 1),
    "strides": lambda: torch.zeros(6, 4).t(),
    "device": lambda: torch.zeros(4, 6, device="meta"),
    "grad": lambda: torch.zeros(4, 6, requires_grad=True),
    "grad of a result": lambda: torch.zeros(4, 6, requires_grad=True) + 1,
    "view of a leaf": lambda: torch.zeros(4, 6, requires_grad=True)[:],
    "parameter": lambda: torch.nn.Parameter(torch.zeros(4, 6), requires_grad=False),
    "sparse": lambda: torch.zeros(4, 6).to_sparse(),
    "conjugate": lambda: torch.zeros(4, 6, dtype=torch.complex64).conj(),
    "negative": lambda: torch.zeros(4, 6, dtype=torch.complex64).conj().imag,
    "not a tensor": lambda: [0.0],
}


def inference_tensor():
    with torch.inference_mode():
        return torch.zeros(4, 6)


@pytest.mark.parametrize("fast", [True, False])
def test_tensor(fast):
    tensors.prepare.cache_clear()
    try:
        assert tensors.prepare(fast=fast) is fast
        # the program asks for prepare() without arguments: answer from the cache we just filled
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tensors, "prepare", lambda: fast)
            bad = [make() for make in TENSOR_CHANGES.values()]
            rows = [Guard(K.TENSOR, X, tensor_spec(base_tensor()))]
            checks(rows, [base_tensor(), torch.ones(4, 6)], [*bad, inference_tensor()])
            loose = tensor_spec(base_tensor(), free=frozenset({0}))
            checks([Guard(K.TENSOR, X, loose)], [base_tensor(), torch.ones(9, 6)], bad[:1])
            inner = tensor_spec(base_tensor(), free=frozenset({1}))
            sparse = torch.ones(4, 9)[:, :5]  # its rows do not follow each other
            checks([Guard(K.TENSOR, X, inner)], [base_tensor(), torch.ones(4, 9)], [sparse])
    finally:
        tensors.prepare.cache_clear()
        tensors.prepare()


def test_tensor_of_many_dimensions():
    t = torch.zeros(1, 2, 3, 1, 2, 3, 1)
    rows = [Guard(K.TENSOR, X, tensor_spec(t))]
    checks(rows, [t, torch.ones_like(t)], [torch.zeros(1, 2, 3, 1, 2, 3), t.transpose(1, 2)])


def test_tensor_changed_in_place():
    t = torch.zeros(4)
    run = HandMade(same, [Guard(K.TENSOR, Local("value"), tensor_spec(t))])
    run(t)
    program, view = run.entries[0].program, run.misses[0]
    assert program.check(view) == ()
    t.requires_grad_(True)
    assert program.check(view) == 0
    t.requires_grad_(False)
    assert program.check(view) == ()
    t.resize_(6)
    assert program.check(view) == 0
    t.resize_(4)
    assert program.check(view) == ()
    t.data = torch.zeros(4, dtype=torch.int32)
    assert program.check(view) == 0


def test_a_view_inherits_requires_grad_from_its_base():
    base = torch.zeros(4)
    view = base[:2]
    run = HandMade(same, [Guard(K.TENSOR, Local("value"), tensor_spec(view))])
    run(view)
    program = run.entries[0].program
    assert program.check(run.misses[0]) == ()
    base.requires_grad_(True)
    expected = () if not view.requires_grad else 0
    assert program.check(run.misses[0]) == expected


def two(x, y):
    return x


Y = Local("y")


def test_not_aliased_and_same_object():
    a, b = torch.zeros(3), torch.zeros(3)
    run = HandMade(two, [Guard(K.NOT_ALIASED, X, (Y,))])
    run(a, b)
    assert run(b, a) == ("hit",)
    run(a, a)
    assert len(run.misses) == 2
    run = HandMade(two, [Guard(K.SAME_OBJECT, X, Y)])
    run(a, a)
    assert run(b, b) == ("hit",)
    run(a, b)
    assert len(run.misses) == 2


def test_no_overlap():
    a, b = torch.zeros(3), torch.zeros(3)
    run = HandMade(two, [Guard(K.NO_OVERLAP, X, (Y,))])
    run(a, b)
    assert run(b, a) == ("hit",)
    run(a, a[1:])
    assert len(run.misses) == 2


def test_many_different_objects():
    def f(x):
        return None

    sources = [Item(X, i) for i in range(300)]
    run = HandMade(f, [Guard(K.NOT_ALIASED, sources[0], tuple(sources[1:]))])
    values = [object() for _ in range(300)]
    run(values)
    assert run(values) == ("hit",)
    values[7] = values[250]
    run(values)
    assert len(run.misses) == 2


def test_relation():
    relation = Relation("==", ((2, (SizeOf(X, 0),)),), ((1, (SizeOf(Y, 0),)), (1, ())))
    run = HandMade(two, [Guard(K.RELATION, X, relation)])
    run(torch.zeros(3), torch.zeros(5))
    assert run(torch.zeros(4), torch.zeros(7)) == ("hit",)
    run(torch.zeros(4), torch.zeros(8))
    assert len(run.misses) == 2
    divides = Relation("divides", ((4, ()),), ((1, (SizeOf(X, 0),)),))
    run = HandMade(two, [Guard(K.RELATION, X, divides)])
    run(torch.zeros(8), 0)
    assert run(torch.zeros(12), 0) == ("hit",)
    run(torch.zeros(13), 0)
    assert len(run.misses) == 2
    size = ((1, (SizeOf(X, 0),)),)
    for name, value in (("//", 2), ("%", 1), ("min", 3), ("max", 5)):
        by = ((3 if name in ("min", "max") else 2, ()),)
        rows = [Guard(K.RELATION, X, Relation("==", ((1, ((name, size, by),)),), ((value, ()),)))]
        checks(rows, [torch.ones(5)], [torch.ones(2)])


GLOBAL_STATES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "default device": lambda: torch.device("meta"),
    "disabled torch function": torch._C.DisableTorchFunction,
}


@pytest.mark.parametrize("name", GLOBAL_STATES)
def test_global_state(name):
    run = HandMade(same, [Guard(K.GLOBAL_STATE, None)])
    run(1)
    assert run(1) == ("hit",)
    with GLOBAL_STATES[name]():
        run(1)
        assert len(run.misses) == 2
        assert run(1) == ("hit",)
    assert run(1) == ("hit",)
    assert len(run.misses) == 2


def test_global_state_inside_autocast():
    run = HandMade(same, [Guard(K.GLOBAL_STATE, None)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run(1)
        assert run(1) == ("hit",)
    with torch.autocast("cpu", dtype=torch.float16):
        run(1)
    assert len(run.misses) == 2


def test_default_dtype_and_deterministic():
    run = HandMade(same, [Guard(K.GLOBAL_STATE, None)])
    run(1)
    try:
        torch.set_default_dtype(torch.float64)
        run(1)
        assert len(run.misses) == 2
    finally:
        torch.set_default_dtype(torch.float32)
    try:
        torch.use_deterministic_algorithms(True)
        run(1)
        assert len(run.misses) == 3
    finally:
        torch.use_deterministic_algorithms(False)
    assert run(1) == ("hit",)
    assert len(run.misses) == 3


def test_weak_alive_ends_the_entry_with_its_object():
    things = [Plain()]

    def f(x):
        return None

    rows = lambda view: [Guard(K.WEAK_ALIVE, X, things[0])]
    run = HandMade(f, rows, target=(target := Target()))
    run(0)
    assert len(run.entries) == 1
    alive = weakref.ref(target)
    run.target = None
    del target
    things.clear()
    gc.collect()
    assert alive() is None
    assert run.entries == []


class Target:
    def __call__(self, *values):
        return ("hit", *values)


# ---- sources ----

SETTING = 3


def outer(free):
    def inner(x, d=4, *, k=5):
        return (free, SETTING, len, x, d, k)

    return inner


def misses_after(run, change, *args):
    run(*args)
    assert run(*args)[0] == "hit"
    before = len(run.misses)
    change()
    run(*args)
    return len(run.misses) - before


def test_every_root_and_step():
    global SETTING
    SETTING = 3
    inner = outer(2)
    this = FrameFunction()
    collect = (
        Cell("free"),
        Global("SETTING"),
        Builtin("len"),
        Local("x"),
        Defaults(this, 0),
        KwDefaults(this, "k"),
        Closure(this, 0),
        ClosureCell(this, 0),
        Const(math),
        this,
        TypeOf(Local("x")),
        TypeAttr(TypeOf(Local("x")), "__len__"),
        DictOf(Const(math)),
        DictAttr(Const(math), "pi"),
        Attr(Const(math), "pi"),
        Item(Local("x"), -1),
    )
    run = HandMade(inner, [], collect)
    x = [7, 8]
    cell = inner.__closure__[0]
    run(x)
    assert run(x) == (
        "hit", 2, 3, len, x, 4, 5, 2, cell, math, inner, list, list.__len__,
        vars(math), math.pi, math.pi, 8,
    )  # fmt: skip


@pytest.mark.parametrize("source", [Cell("free"), Closure(FrameFunction(), 0)])
def test_cell_is_rebound(source):
    inner = outer(2)
    run = HandMade(
        inner, lambda view: [Guard(K.EQUALS, source, inner.__closure__[0].cell_contents)]
    )

    def change():
        inner.__closure__[0].cell_contents = 9

    assert misses_after(run, change, 0) == 1


def test_global_is_rebound_deleted_and_shadowed():
    namespace = {}
    exec("A = 1\ndef f(x): return A", namespace)
    f = namespace["f"]
    run = HandMade(f, lambda view: [Guard(K.EQUALS, Global("A"), namespace["A"])])
    assert misses_after(run, lambda: namespace.update(A=2), 0) == 1
    shadow = HandMade(f, [Guard(K.MISSING, Global("len"))])
    shadow(0)
    assert shadow(0) == ("hit",)
    namespace["len"] = same
    assert shadow.entries[0].program.check(shadow.misses[0]) == 0


def test_builtin_is_rebound():
    builtins = {"len": len}
    f = types.FunctionType(same.__code__, {"__builtins__": builtins})
    run = HandMade(f, lambda view: [Guard(K.ID_IS, Builtin("len"), builtins["len"])])
    assert misses_after(run, lambda: builtins.update(len=same), 0) == 1


def test_defaults_are_replaced():
    inner = outer(2)
    rows = [Guard(K.EQUALS, Defaults(FrameFunction(), 0), 4)]
    run = HandMade(inner, rows)
    run(0)
    assert run(0) == ("hit",)
    inner.__defaults__ = (6,)
    assert run.entries[0].program.check(run.misses[0]) == 0
    rows = [Guard(K.EQUALS, KwDefaults(FrameFunction(), "k"), 5)]
    run = HandMade(inner, rows)
    run(0)
    inner.__kwdefaults__["k"] = 6
    assert run.entries[0].program.check(run.misses[0]) == 0


def test_arguments_that_are_cells():
    def f(x):
        return lambda: x

    run = HandMade(f, [Guard(K.EQUALS, Cell("x"), 5)], (Local("x"), Cell("x")))
    run(5)
    assert run(5) == ("hit", 5, 5)


# ---- the version shortcut ----


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)
        self.scale = 2.0
        self.table = {"a": [1]}

    def forward(self, x):
        return self.fc(x) * self.scale


def net_rows(net):
    me = Local("self")
    fc = Item(DictAttr(me, "_modules"), "fc")
    weight = Item(DictAttr(fc, "_parameters"), "weight")
    return [
        Guard(K.TYPE_IS, me, Net),
        Guard(K.EQUALS, DictAttr(me, "scale"), 2.0),
        Guard(K.EQUALS, DictAttr(me, "training"), True),
        Guard(K.LENGTH, DictAttr(me, "_forward_hooks"), 0),
        Guard(K.DICT_KEYS, DictAttr(me, "_modules"), ("fc",)),
        Guard(K.MISSING, DictAttr(me, "forward")),
        Guard(K.ID_IS, TypeAttr(TypeOf(me), "forward"), Net.__dict__["forward"]),
        Guard(K.EQUALS, Item(Item(DictAttr(me, "table"), "a"), 0), 1),
        Guard(K.TYPE_IS, fc, torch.nn.Linear),
        Guard(K.EQUALS, DictAttr(fc, "training"), True),
        Guard(K.LENGTH, DictAttr(fc, "_forward_pre_hooks"), 0),
        Guard(K.TENSOR, weight, tensor_spec(net.fc.weight)),
    ]


NET_CHANGES = {
    "attribute": lambda net: setattr(net, "scale", 3.0),
    "training": lambda net: net.eval(),
    "training of a child": lambda net: net.fc.eval(),
    "hook": lambda net: net.register_forward_hook(lambda *a: None),
    "hook of a child": lambda net: net.fc.register_forward_pre_hook(lambda *a: None),
    "new child": lambda net: net.add_module("more", torch.nn.ReLU()),
    "child replaced": lambda net: setattr(net, "fc", torch.nn.Linear(4, 3)),
    "child of another class": lambda net: setattr(net, "fc", torch.nn.Identity()),
    "child deleted": lambda net: delattr(net, "fc"),
    "class of the child assigned": lambda net: setattr(net.fc, "__class__", Net),
    "forward on the instance": lambda net: setattr(net, "forward", same),
    "deep in a container": lambda net: net.table["a"].__setitem__(0, 2),
    "container replaced": lambda net: net.table.update(a=[2]),
    "parameter replaced": lambda net: setattr(net.fc, "weight", torch.nn.Parameter(torch.ones(5))),
    "parameter frozen": lambda net: net.fc.weight.requires_grad_(False),
    "data of a parameter": lambda net: setattr(net.fc.weight, "data", torch.ones(2, 2)),
    "moved to another dtype": lambda net: net.double(),
    "whole dict replaced": lambda net: setattr(net, "__dict__", {**vars(net), "scale": 4.0}),
}


@pytest.mark.parametrize("name", NET_CHANGES)
def test_a_change_behind_the_version_shortcut_is_seen(name):
    net, x = Net(), torch.ones(3)
    run = HandMade(Net.forward, net_rows(net))
    run(net, x)
    for _ in range(3):  # the second and later runs go by versions
        assert run(net, x) == ("hit",)
    program, view = run.entries[0].program, run.misses[0]
    assert not program.owning
    NET_CHANGES[name](net)
    assert isinstance(program.check(view), int)
    assert isinstance(program.check(view), int)


class Scaled:
    def __init__(self):
        self.scale, self.other = 2.0, 1


def _attribute(plain, value):
    for _ in range(100):  # the interpreter has a fast instruction for it by now
        plain.scale = value


PLAIN_CHANGES = {
    "attribute": lambda plain: setattr(plain, "scale", 3.0),
    "attribute, in a loop": lambda plain: _attribute(plain, 3.0),
    "attribute deleted": lambda plain: delattr(plain, "scale"),
    "object.__setattr__": lambda plain: object.__setattr__(plain, "scale", 3.0),
    "item of the dict": lambda plain: plain.__dict__.__setitem__("scale", 3.0),
    "item deleted": lambda plain: plain.__dict__.pop("scale"),
    "update": lambda plain: plain.__dict__.update(scale=3.0),
    "or": lambda plain: plain.__dict__.__ior__({"scale": 3.0}),
    "cleared": lambda plain: plain.__dict__.clear(),
    "popitem": lambda plain: (plain.__dict__.popitem(), plain.__dict__.popitem()),
    "new name": lambda plain: setattr(plain, "fresh", 3.0),
    "setdefault": lambda plain: plain.__dict__.setdefault("fresh", 3.0),
    "many names": lambda plain: (
        [setattr(plain, f"n{i}", i) for i in range(40)] + [setattr(plain, "scale", 3.0)]
    ),
    "whole dict replaced": lambda plain: setattr(plain, "__dict__", {"scale": 4.0, "other": 1}),
    "whole dict deleted": lambda plain: delattr(plain, "__dict__"),
}


@pytest.mark.parametrize("name", PLAIN_CHANGES)
def test_a_change_of_a_plain_object_is_seen(name):
    """Values that lie in the object itself are written in more ways than those of a dict."""
    for _ in range(100):
        _attribute(Scaled(), 2.0)

    def f(plain):
        return plain.scale

    me = Local("plain")
    rows = [Guard(K.TYPE_IS, me, Scaled), Guard(K.EQUALS, DictAttr(me, "scale"), 2.0)]
    rows += [Guard(K.MISSING, DictAttr(me, "fresh"))]
    run, plain = HandMade(f, rows), Scaled()
    run(plain)
    for _ in range(3):
        assert run(plain) == ("hit",)
    program, view = run.entries[0].program, run.misses[0]
    plain.other = 5
    assert program.check(view) == ()
    PLAIN_CHANGES[name](plain)
    assert isinstance(program.check(view), int)
    assert isinstance(program.check(view), int)


def _version(mapping):
    return ctypes.c_uint64.from_address(id(mapping) + 3 * ctypes.sizeof(ctypes.c_void_p)).value


def test_each_write_of_an_attribute_is_a_new_version():
    """Then guards need not look at the attributes of an object that nobody has written to."""

    def f(plain):
        return plain.scale

    run, plain = HandMade(f, [Guard(K.EQUALS, DictAttr(Local("plain"), "scale"), 2.0)]), Scaled()
    run(plain)
    assert run(plain) == ("hit",)
    seen = {_version(plain.__dict__)}
    for value in (3.0, 4.0):
        _attribute(plain, value)
        seen.add(_version(plain.__dict__))
    del plain.scale
    seen.add(_version(plain.__dict__))
    assert len(seen) == 4


def test_the_dict_of_an_object_stays_as_it_is():
    """Also one that is walked while guards look at it."""

    def f(plain):
        return plain.scale

    run, plain = HandMade(f, [Guard(K.EQUALS, DictAttr(Local("plain"), "scale"), 2.0)]), Scaled()
    plain.third = held = object()
    mapping, names = plain.__dict__, []
    for name in mapping:
        run(plain)
        names.append(name)
    assert names == [*mapping] == ["scale", "other", "third"]
    assert (
        plain.__dict__ is mapping and plain.third is held and (plain.scale, plain.other) == (2.0, 1)
    )
    plain.fourth = 4
    assert [*mapping.values()] == [2.0, 1, held, 4]


def test_class_attribute_is_replaced():
    net, x = Net(), torch.ones(3)
    run = HandMade(Net.forward, net_rows(net))
    run(net, x)
    assert run(net, x) == ("hit",)
    program, view, before = run.entries[0].program, run.misses[0], Net.forward
    try:
        Net.forward = lambda self, x: x
        assert isinstance(program.check(view), int)
    finally:
        Net.forward = before
    assert program.check(view) == ()


def test_objects_take_turns():
    """The remembered versions belong to one object; another of equal state passes as well."""
    nets, x = [Net(), Net()], torch.ones(3)
    run = HandMade(Net.forward, net_rows(nets[0]), (Item(DictAttr(Item(DictAttr(Local("self"), "_modules"), "fc"), "_parameters"), "weight"),))  # fmt: skip
    run(nets[0], x)
    for net in [nets[0], nets[1], nets[1], nets[0], nets[1]]:
        assert run(net, x)[1] is net.fc.weight
    nets[1].scale = 7.0
    view = run.misses[0]
    other = _native.FrameView((view.code, view.function, view.globals, view.builtins, (nets[1], x)))
    program = run.entries[0].program
    assert isinstance(program.check(other), int)
    assert program.check(view) == (nets[0].fc.weight,)
    nets[1].scale = 2.0
    assert program.check(other) == (nets[1].fc.weight,)


def test_sources_that_run_python_may_change_anything():
    class Wild:
        def __init__(self):
            self.table = {"a": [1, 2], "b": [3]}

        @property
        def clears(self):
            self.table.clear()
            self.table["a"] = [1, 2]
            return 1

    def f(x):
        return None

    table = DictAttr(X, "table")
    rows = [
        Guard(K.EQUALS, Item(table, "a"), [1, 2]),
        Guard(K.EQUALS, Attr(X, "clears"), 1),
        Guard(K.LENGTH, Item(table, "a"), 2),
    ]
    run = HandMade(f, rows, (Item(table, "a"),))
    wild = Wild()
    for _ in range(50):
        run(wild)
    assert run(wild) == ("hit", [1, 2])


def test_a_program_met_again_while_it_runs():
    depth = []

    class Recursive:
        @property
        def name(self):
            if len(depth) < 3:
                depth.append(1)
                run(self)
                depth.pop()
            return "a"

    def f(x):
        return None

    run = HandMade(f, [Guard(K.EQUALS, Attr(X, "name"), "a")], (Attr(X, "name"),))
    thing = Recursive()
    run(thing)
    assert run(thing) == ("hit", "a")


def test_a_source_that_raises_leads_nowhere():
    class Angry:
        @property
        def name(self):
            raise RuntimeError("no")

    def f(x):
        return None

    run = HandMade(f, [Guard(K.MISSING, Attr(X, "name"))])
    run(Angry())
    assert run(Angry()) == ("hit",)


def test_malformed_rows_are_refused():
    with pytest.raises(ValueError):
        _native.Program([(5, -1, 1, False, "x")], [], [], [], [], False)
    with pytest.raises(ValueError):
        _native.Program([], [(99, -1, 0, False, None)], [], [], [], False)
    with pytest.raises(ValueError):
        _native.Program([], [], [3], [], [], False)
    with pytest.raises(Exception, match="no variable"):
        compile_guards([Guard(K.EQUALS, Local("nope"), 1)], (), same.__code__)


def test_programs_hold_objects_weakly():
    class Thing:
        pass

    thing, kind = Thing(), weakref.ref(Thing)
    run = HandMade(
        same, [Guard(K.ID_IS, Local("value"), thing), Guard(K.TYPE_IS, Local("value"), Thing)]
    )
    run.compiled(thing)
    view = run.misses.pop()
    assert run.entries[0].program.check(view) == ()
    run.rows = None
    ref = weakref.ref(thing)
    del thing, view, Thing
    gc.collect()
    assert ref() is None and kind() is None
    assert run.entries == []


def test_programs_and_regions_do_not_leak():
    import tracemalloc

    def cycle():
        net = Net()
        run = HandMade(Net.forward, net_rows(net))
        run(net, torch.ones(3))
        run(net, torch.ones(3))

    tracemalloc.start()
    sizes = []
    for _ in range(2):  # the first half fills CPython's free lists
        for _ in range(500):
            cycle()
        gc.collect()
        sizes.append((tracemalloc.get_traced_memory()[0], len(gc.get_objects())))
    tracemalloc.stop()
    assert sizes[1][0] - sizes[0][0] < 40_000
    assert sizes[1][1] - sizes[0][1] < 20


def test_the_collector_waits_for_the_end_of_a_program():
    """A dict is made when it is asked for; finalizers then would free what is borrowed, or come here again."""

    def f(x):
        return None

    run = HandMade(f, [Guard(K.TYPE_IS, DictAttr(X, "scale"), float)])
    run(Scaled())
    program = run.entries[0].program
    assert not program.owning
    views = [_native.FrameView((f.__code__, f, {}, {}, (Scaled(),))) for _ in range(50)]
    began = []

    def collects(phase, _):
        began.append(phase)

    thresholds = gc.get_threshold()
    gc.callbacks.append(collects)
    gc.set_threshold(1)
    try:
        # a loop of C: nothing else can make a collection due
        answers = [*map(program.check, views)]
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collects)
    assert answers == [()] * 50
    assert len(began) < 10
    assert gc.isenabled()
