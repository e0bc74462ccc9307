"""Corners of the language that CPython's own tests showed: each program runs inlined between tensor work.

They were found by ``make cpython``; here is the least of each, so that it stays right.
"""

import collections
import collections.abc
import enum
import functools
import operator
import sys
import traceback
import types
import weakref

import pytest
import torch

import argand


def deletes_through_a_metaclass():
    class Meta(type):
        def __delattr__(cls, name):
            if name == "kept":
                raise AttributeError("kept")
            super().__delattr__(name)

    class Kind(metaclass=Meta):
        kept, gone = 1, 2

    before = hasattr(Kind, "gone")
    del Kind.gone
    return before, hasattr(Kind, "gone"), Kind.kept


def deletes_of_an_enum():
    class Season(enum.Enum):
        SPRING = 1

        def spam(self):
            return 1

    before = hasattr(Season, "spam")
    del Season.spam
    try:
        del Season.SPRING
    except AttributeError as error:
        return before, hasattr(Season, "spam"), type(error)


def deletes_by_hooks():
    heard = []

    class Plain:
        shared = 0

        def __delattr__(self, name):
            heard.append(name)
            object.__delattr__(self, name)

    class Hooked:
        @property
        def name(self):
            heard.append("get")
            return 1

        @name.deleter
        def name(self):
            heard.append("delete")

        @property
        def fixed(self):
            heard.append("get fixed")
            return 1

    plain, hooked = Plain(), Hooked()
    plain.x = 1
    del plain.x
    for owner, name in ((plain, "x"), (plain, "shared"), (hooked, "name"), (hooked, "fixed")):
        try:
            delattr(owner, name)
        except AttributeError as error:
            heard.append(str(error))
    return heard


class Kept:
    inherited = 1


KEPT = Kept()


def deletes_what_only_the_class_has():
    try:
        del KEPT.inherited
    except AttributeError:
        return hasattr(KEPT, "inherited")


class Base(Kept):
    pass


def deletes_what_only_a_base_has():
    try:
        del Base.inherited
    except AttributeError:
        return hasattr(Base, "inherited")


def compares_by_the_other():
    calls = []

    class Left:
        def __eq__(*args):
            calls.append("Left.__eq__")
            return NotImplemented

    class Right:
        def __eq__(*args):
            calls.append("Right.__eq__")
            return NotImplemented

        def __ne__(*args):
            calls.append("Right.__ne__")
            return NotImplemented

    found = Left() != Right()
    return found, calls


def reads_through_a_descriptor_of_hooks():
    class Descriptor:
        counter = 0

        def __get__(self, owner, kind=None):
            def getter(name):
                self.counter += 1
                raise AttributeError(name)

            return getter

    descriptor = Descriptor()

    class Kind:
        __getattribute__ = descriptor

    try:
        Kind().attr
    except AttributeError:
        return descriptor.counter


def writes_to_a_member_of_an_enum():
    class Color(enum.Enum):
        CYAN = 1
        MAGENTA = 2

    before = [member.value for member in Color]
    Color.MAGENTA._value_ = 9
    return before, [member.value for member in Color]


def evaluates_with_names():
    def check(expression, *args):
        return eval(compile(expression, "<check>", "eval"), None, None)

    return check("args[1] is None", 1, 2), check("args[1] is None", 1, None)


def wrapped_classmethods():
    class Wrapper:
        def __init__(self, func):
            self.func = func

        def __call__(self, cls):
            if hasattr(self.func, "__get__"):
                return self.func.__get__(cls, cls)()
            return self.func(cls)

        def __get__(self, instance, owner=None):
            return types.MethodType(self, type(instance) if owner is None else owner)

    class Kind:
        @Wrapper
        @classmethod
        def outer(cls):
            return cls

        @classmethod
        @Wrapper
        def inner(cls):
            return cls

    return Kind.outer() is Kind, Kind().outer() is Kind, Kind.inner() is Kind


def makes_a_classmethod_of_no_function():
    made = classmethod(1)
    try:
        return made.__get__(1)()
    except TypeError as error:
        return str(error)


TOO_FEW = {
    "getattr": lambda: getattr(1),
    "__delattr__": lambda: object().__delattr__(),
    "__setattr__": lambda: object().__setattr__("x"),
    "dict.__contains__": lambda: {}.__contains__(),
    "__reduce_ex__": lambda: object().__reduce_ex__(),
    "isinstance": lambda: isinstance(1),
    "super": lambda: super(1, 2),
    "len": lambda: len(),
    "slice": lambda: slice(),
    "operator": lambda: operator.add(1),
    "partial": lambda: functools.partial(),
    "map": lambda: map(len),
    "zip": lambda: zip([1], strict=2, other=3),
    "range": lambda: range(),
    "type": lambda: type("a", "b"),
    "sorted": lambda: sorted(),
    "min": lambda: min(),
    "next": lambda: next(),
    "iter": lambda: iter(),
    "hasattr": lambda: hasattr(1),
    "setattr": lambda: setattr(1, "x"),
}


def calls_with_too_few_arguments(name="getattr"):
    try:
        TOO_FEW[name]()
    except TypeError as error:
        return str(error)


def a_bool_that_is_none():
    class Kind:
        def __bool__(self):
            return self

    heard = []
    for question in (bool, lambda x: 1 if x else 2, lambda x: not x):
        try:
            question(Kind())
        except TypeError as error:
            heard.append(str(error))
    return heard


def a_class_while_its_order_is_made():
    heard = []

    class Meta(type):
        def mro(cls):
            heard.append(cls.__mro__)
            return type.mro(cls)

    class Kind(metaclass=Meta):
        pass

    return len(heard), len(Kind.__mro__)


def a_method_without_a_class_to_look_in():
    class Kind:
        def name(self):
            return "Kind"

    class Sub(Kind):
        def name(self):
            return super().name() + " sub"

    bare = super(Sub)
    return Sub().name(), bare.__self__, bare.__get__(Sub()).name()


def executes_text_with_its_own_flags():
    namespace = {}
    exec("x: int", namespace)
    exec("from __future__ import annotations\nx: int", namespace.setdefault("later", {}))
    return namespace["__annotations__"], namespace["later"]["__annotations__"]


def asks_abstract_classes_after_a_write():
    Kind = type("Kind", (), {"__hash__": None})
    before = isinstance(Kind(), collections.abc.Sized), isinstance(Kind(), collections.abc.Hashable)
    Kind.__len__ = lambda self: 0
    Kind.__hash__ = lambda self: 0
    return (
        before,
        isinstance(Kind(), collections.abc.Sized),
        isinstance(Kind(), collections.abc.Hashable),
    )


def ends_of_generators():
    def none():
        yield 1

    def some():
        yield 1
        return 2

    heard = []
    for kind in (none, some):
        made = kind()
        next(made)
        try:
            next(made)
        except StopIteration as error:
            heard.append(error.args)
    return heard


def writes_to_what_c_code_made():
    Point = collections.namedtuple("Point", "x y")
    before = Point.x.__doc__
    Point.x.__doc__ = "docstring"
    return before, Point.x.__doc__


def a_class_of_a_module_that_is_no_name():
    Point = collections.namedtuple("Point", "x y", module=collections)
    return Point.__module__ is collections, Point(1, 2).x, Point.__name__


def a_traceback_after_a_break():
    def inner():
        argand.graph_break()
        raise ValueError

    try:
        inner()
    except ValueError as error:
        return [entry.name for entry in traceback.extract_tb(error.__traceback__)][-1]


def names_of_the_frame_after_a_break():
    argand.graph_break()
    return sys._getframe().f_code.co_name


class Letters(set):
    pass


LETTERS = Letters("abc")


def a_set_of_a_class_of_its_own():
    return "a" in LETTERS, len(LETTERS), sorted(LETTERS)


class Target:
    pass


def weak_references_to_what_lives():
    target = Target()
    reference, proxy = weakref.ref(target), weakref.proxy(target)
    table = weakref.WeakKeyDictionary({target: 1})
    target.name = "x"
    argand.graph_break()
    return (
        reference() is target,
        proxy.name,
        table[target],
        len(table),
        weakref.getweakrefcount(target) > 0,
    )


class Interrupts:
    def __iter__(self):
        raise KeyboardInterrupt("of the program")


def interrupts_of_the_program():
    try:
        list(Interrupts())
    except KeyboardInterrupt as error:
        return error.args


class Emptying:
    """A key that empties the dict it is looked up in."""

    def __init__(self, table):
        self.table = table

    def __hash__(self):
        return 1

    def __eq__(self, other):
        self.table.clear()
        return True


def lookups_that_change_the_dict():
    table = {}
    table[Emptying(table)] = 1
    try:
        return table[Emptying(table)]
    except KeyError:
        return len(table)


class Counting:
    def __init__(self, heard):
        self.heard = heard

    def __hash__(self):
        return 1

    def __eq__(self, other):
        self.heard.append("eq")
        return True


def comparisons_of_lookups():
    heard = []
    table = {Counting(heard): 1}
    found = (
        table[Counting(heard)],
        Counting(heard) in table,
        table.get(Counting(heard)),
        table.pop(Counting(heard)),
    )
    keys = {Counting(heard)}
    keys.add(Counting(heard))
    return found, len(keys), heard


PROGRAMS = [
    interrupts_of_the_program, lookups_that_change_the_dict, comparisons_of_lookups,
    deletes_through_a_metaclass, deletes_of_an_enum, deletes_by_hooks, deletes_what_only_the_class_has,
    deletes_what_only_a_base_has, compares_by_the_other, reads_through_a_descriptor_of_hooks,
    writes_to_a_member_of_an_enum, evaluates_with_names, wrapped_classmethods, makes_a_classmethod_of_no_function,
    a_bool_that_is_none, a_class_while_its_order_is_made, a_method_without_a_class_to_look_in,
    executes_text_with_its_own_flags, asks_abstract_classes_after_a_write, ends_of_generators,
    writes_to_what_c_code_made, a_class_of_a_module_that_is_no_name, a_traceback_after_a_break,
    names_of_the_frame_after_a_break, a_set_of_a_class_of_its_own, weak_references_to_what_lives,
]  # fmt: skip
PROGRAMS += [functools.partial(calls_with_too_few_arguments, name) for name in TOO_FEW]


def name_of(program):
    return getattr(program, "__name__", None) or f"too_few_{program.args[0]}"


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_as_python_does(program):
    wanted = program()

    def between(x):
        y = x * 2
        found = program()
        return y + x, found

    compiled = argand.compile(between, backend="eager", options={"strict": True})
    for _ in range(2):
        sums, found = compiled(torch.ones(2))
        assert sums.tolist() == [3.0, 3.0]
        assert found == wanted
