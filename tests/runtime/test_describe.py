"""A failed guard is told in the user's words, with both values."""

import collections

import pytest
import torch

import argand
from argand.runtime import _native, describe, state
from argand.runtime.guard_programs import compile_guards
from argand.runtime.guards import Guard, GuardKind, Relation, tensor_spec
from argand.runtime.sources import (
    Attr,
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
from argand.support.errors import Location

K = GuardKind
X, Y = Local("x"), Local("y")
HERE = Location("model.py", 31)


def two(x, y):
    return x


def view_of(x, y=None):
    return _native.FrameView((two.__code__, two, globals(), vars(__builtins__) if not isinstance(__builtins__, dict) else __builtins__, (x, y)))  # fmt: skip


def told(guard, x, y=None):
    program = compile_guards([guard], (), two.__code__)
    failure = describe.explain(program, view_of(x, y))
    assert failure is not None and failure.hint
    return str(failure)


class Thing:
    def __init__(self, **names):
        vars(self).update(names)


def test_the_example_of_the_issue():
    guard = Guard(K.EQUALS, DictAttr(X, "scale"), 2.0, HERE)
    assert told(guard, Thing(scale=3.0)) == "`x.scale` was 2.0, is 3.0 [model.py:31]"


TENSOR = torch.zeros(4, 6)


@pytest.mark.parametrize(
    ("guard", "x", "text"),
    [
        (Guard(K.EQUALS, X, 1), 2, "`x` was 1, is 2"),
        (Guard(K.EQUALS, Item(X, "a"), 1), {}, "`x['a']` is not set any more"),
        (Guard(K.TYPE_IS, X, int), "a", "`type(x)` was int, is str"),
        (Guard(K.LENGTH, X, 2), [1], "`len(x)` was 2, is 1"),
        (Guard(K.DICT_KEYS, X, ("a",)), {"b": 1}, "`list(x)` was ['a'], is ['b']"),
        (Guard(K.HAS_ATTR, X, "a"), Thing(), "`hasattr(x, 'a')` was True, is False"),
        (Guard(K.NO_ATTR, X, "a"), Thing(a=1), "`hasattr(x, 'a')` was False, is True"),
        (Guard(K.DICT_CONTAINS, X, "a"), {}, "`'a' in x` was True, is False"),
        (Guard(K.DICT_MISSING, X, "a"), {"a": 1}, "`'a' in x` was False, is True"),
        (Guard(K.MISSING, Item(X, "a")), {"a": 5}, "`x['a']` was not set, is 5"),
        (Guard(K.ID_IS, X, two), 5, "`x` was <function two at"),
        (Guard(K.TENSOR, X, tensor_spec(TENSOR)), 5, "`x` was a tensor, is 5"),
        (Guard(K.TENSOR, X, tensor_spec(TENSOR)), TENSOR[:2], "`x.shape[0]` was 4, is 2"),
        (
            Guard(K.TENSOR, X, tensor_spec(TENSOR)),
            TENSOR.double(),
            "`x.dtype` was torch.float32, is torch.float64",
        ),
        (
            Guard(K.TENSOR, X, tensor_spec(TENSOR)),
            torch.zeros(6, 4).t(),
            "`x.stride()` was (6, 1), is (1, 4)",
        ),
        (Guard(K.TENSOR, X, tensor_spec(TENSOR)), torch.zeros(4), "`x.dim()` was 2, is 1"),
        (
            Guard(K.TENSOR, X, tensor_spec(TENSOR)),
            torch.nn.Parameter(TENSOR),
            "`type(x)` was Tensor, is Parameter",
        ),
        (
            Guard(K.TENSOR, X, tensor_spec(TENSOR)),
            TENSOR.clone().requires_grad_(),
            "`x.requires_grad` was False, is True",
        ),
        (
            Guard(K.RELATION, X, Relation("==", ((1, (SizeOf(X, 0),)),), ((5, ()),), "s0 == 5")),
            TENSOR,
            "`s0 == 5` no longer holds",
        ),
    ],
)
def test_every_kind(guard, x, text):
    assert told(guard, x).startswith(text)


def test_kinds_of_two_sources():
    assert "`x` and `y` shared no object" in told(Guard(K.NOT_ALIASED, X, (Y,)), TENSOR, TENSOR)
    assert "`x` and `y` shared no memory" in told(Guard(K.NO_OVERLAP, X, (Y,)), TENSOR, TENSOR[0])
    assert "`x is y` was True, is False" in told(Guard(K.SAME_OBJECT, X, Y), 1, 2)


def test_global_state():
    guard = Guard(K.GLOBAL_STATE, None, state.snapshot())
    program = compile_guards([guard], (), two.__code__)
    assert describe.explain(program, view_of(1)) is None
    with torch.no_grad():
        failure = describe.explain(program, view_of(1))
    assert str(failure) == "`torch.is_grad_enabled()` was True, is False"


def test_sources_read_like_the_users_expression():
    me = Local("self")
    fc = Item(DictAttr(me, "_modules"), "fc")
    texts = {
        Item(DictAttr(fc, "_parameters"), "weight"): "self.fc.weight",
        Item(DictAttr(fc, "_modules"), "0"): "self.fc[0]",
        Item(Attr(me, "table"), "key"): "self.table['key']",
        TypeAttr(TypeOf(me), "forward"): "type(self).forward",
        SizeOf(X, 1): "x.shape[1]",
        Closure(Global("f"), 0): "f.__closure__[0].cell_contents",
        Defaults(Global("f"), 0): "f.__defaults__[0]",
        KwDefaults(Global("f"), "k"): "f.__kwdefaults__['k']",
        Const(collections.deque): "deque",
        DictOf(me): "self.__dict__",
        Cell("c"): "c",
    }
    assert {source: str(source) for source in texts} == texts


def outer(free):
    def inner(x, d=4, *, k=5):
        return (free, x, d, k)

    return inner


def test_evaluate_agrees_with_the_program():
    inner = outer(2)
    this = FrameFunction()
    sources = (
        X,
        Cell("free"),
        Global("HERE"),
        Defaults(this, 0),
        KwDefaults(this, "k"),
        Closure(this, 0),
        ClosureCell(this, 0),
        this,
        Item(Attr(X, "pair"), 0),
        DictAttr(X, "pair"),
        DictOf(X),
        TypeAttr(TypeOf(X), "__init__"),
        SizeOf(Const(TENSOR), 1),
    )
    program = compile_guards([], sources, inner.__code__)
    thing = Thing(pair=(1, 2))
    cells = tuple(inner.__closure__)
    view = _native.FrameView((inner.__code__, inner, globals(), {}, (thing, 4, 5, *cells)))
    assert program.check(view) == tuple(describe.evaluate(source, view) for source in sources)


def test_values_that_cannot_be_shown():
    class Angry:
        def __repr__(self):
            raise RuntimeError

    assert "test_values" in describe.show(Angry())
    assert len(describe.show("x" * 500)) <= 60
    assert describe.show(_native.NULL) == "not set"


def test_telling_what_changed_runs_no_code_of_the_user():
    """An argument that was a list is an object with items of its own now: nobody but the program asks for them."""
    asked = []

    class Rows:
        def __getitem__(self, key):
            asked.append(key)
            return 3.0

    program = argand.compile(lambda x, rows: x * rows[0], backend="eager")
    x = torch.ones(2)
    program(x, [2.0])
    assert program(x, Rows()).tolist() == [3.0, 3.0]
    assert asked == [0]


def test_the_globals_of_a_module_are_told_by_its_name():
    assert str(Const(vars(torch.utils._pytree))) == "globals of torch.utils._pytree"
