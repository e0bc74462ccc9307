"""Containers of objects, from outside and made in a trace: order, identity and methods of Python's, found by ``make cpython``."""

import collections
import copy
import weakref

import pytest
import torch

import argand


class Plain:
    pass


class Valued:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        return self.number == other.number


class Compared:
    def __lt__(self, other):
        return "lt"

    def __gt__(self, other):
        return "gt"


class Inheriting(Compared):
    pass


class Long:
    def __init__(self, answer):
        self.answer = answer

    def __len__(self):
        return self.answer


STATE = {"bad": False}


class Refusing:
    def __hash__(self):
        return 0

    def __eq__(self, other):
        if STATE["bad"]:
            raise ZeroDivisionError
        return self is other


def order_of_an_ordered_dict():
    made = collections.OrderedDict.fromkeys("abc")
    made.move_to_end("a")
    argand.graph_break()
    return list(made), list(made.items())


def a_factory_that_is_replaced():
    made = collections.defaultdict(dict, {1: 1})
    first = copy.deepcopy(made).default_factory
    made.default_factory = list
    return first, copy.deepcopy(made).default_factory


def keys_of_a_weak_dict():
    made = {Plain(): 1, Plain(): 2}
    weak = weakref.WeakKeyDictionary()
    weak.update(made)
    return [weak[key] for key in made]


def the_right_operand_first():
    return Compared() < Inheriting(), Inheriting() < Compared()


def lengths_that_are_none():
    heard = []
    for answer in (-1, "x", True, 2):
        try:
            heard.append(len(Long(answer)))
        except (TypeError, ValueError) as error:
            heard.append((type(error), str(error)))
    return heard


def updates_that_compare():
    STATE["bad"] = False
    first, second = {Refusing()}, {Refusing(), Refusing()}
    STATE["bad"] = True
    try:
        first.update(second)
    except ZeroDivisionError:
        return "raised"
    finally:
        STATE["bad"] = False


class Hidden:
    def __getattr__(self, name):
        raise AttributeError


def names_in_an_error_of_attributes():
    try:
        return Hidden().missing
    except AttributeError as error:
        return error.name, type(error.obj)


def lines(error):
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append(trace.tb_lineno - trace.tb_frame.f_code.co_firstlineno)
        trace = trace.tb_next
    return found


def raises_again():
    try:
        raise ValueError
    except ValueError:
        raise


def lines_of_a_bare_raise():
    try:
        raises_again()
    except ValueError as error:
        return lines(error)


def counting():
    given = yield 1
    yield given


def a_method_of_a_generator():
    send = counting().send
    argand.graph_break()
    return send(None), send(5)


PROGRAMS = [
    a_method_of_a_generator,
    order_of_an_ordered_dict, a_factory_that_is_replaced, keys_of_a_weak_dict, the_right_operand_first,
    lengths_that_are_none, updates_that_compare, names_in_an_error_of_attributes, lines_of_a_bare_raise,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_python_does(program):
    def between(x):
        y = x * 2
        found = program()
        return y + x, found

    compiled = argand.compile(between, backend="eager", options={"strict": True})
    wanted = program()
    for _ in range(2):
        sums, found = compiled(torch.ones(2))
        assert sums.tolist() == [3.0, 3.0]
        assert found == wanted


@pytest.mark.parametrize("kind", [Plain, lambda: Valued(1)], ids=["plain", "valued"])
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in_a_tuple"])
def test_a_key_is_the_key(kind, inside):
    """Objects that are keys of a dict from outside are these objects, not others like them."""
    key = kind()
    table = {(key, 1) if inside else key: 1}

    def program(x, table):
        for found in table:
            pass
        return x * 2, found

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    for _ in range(2):
        _, found = compiled(torch.ones(2), table)
        assert (found[0] if inside else found) is key


def test_a_key_of_the_same_value_is_another():
    def program(x, table):
        for found in table:
            found.seen = True
        return x * 2

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    for _ in range(3):
        key = Valued(1)
        compiled(torch.ones(2), {key: 1})
        assert key.seen


def test_an_ordered_dict_with_objects_as_keys():
    first, second = Plain(), Plain()
    table = collections.OrderedDict({first: 1, second: 2})

    def program(x, table):
        found = next(iter(table))
        table.move_to_end(found)
        return x * 2, found

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    assert [compiled(torch.ones(2), table)[1] for _ in range(3)] == [first, second, first]


def test_a_factory_from_outside_is_replaced():
    table = collections.defaultdict(int)

    def program(x, table):
        table.default_factory = list
        return x * 2

    argand.compile(program, backend="eager", options={"strict": True})(torch.ones(2), table)
    assert table["missing"] == []
