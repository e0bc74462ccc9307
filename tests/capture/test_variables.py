"""Variables, cells, deletions and `locals()` are as in Python; found by CPython's own tests."""

import sys

import pytest
import torch

import argand

FRESH = sys.version_info >= (3, 13)  # PEP 667: each `locals()` is a snapshot of its own


def both(function, *args):
    """The answers of a function as it is and compiled, between operations on tensors: called twice."""

    def program(x, *args):
        y = x * 2
        result = function(*args)
        return y + x, result

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    answers = []
    for _ in range(2):
        tensor, answer = compiled(torch.ones(2), *args)
        assert tensor.tolist() == [3.0, 3.0]
        answers.append(answer)
    return function(*args), answers


def locals_with_cells():
    late = 1
    kept = 2

    def inner():
        first = kept
        return dict(locals())

    early = 3
    inner.name = "x"
    return (
        list(inner()),
        inner()["kept"],
        [name for name in locals() if name != "inner"],
        early + late,
    )


def locals_twice():
    a = 1
    first = locals()
    b = 2
    second = locals()
    return first is second, "b" in first, second["b"], a + b


def locals_written():
    a = 1
    held = locals()
    held["a"], held["more"] = 5, 6
    again = locals()
    return a, again["a"], "more" in again


def locals_in_a_class():
    class Made:
        x = 1
        names = sorted(name for name in locals() if not name.startswith("__"))
        y = 2

    return Made.names


def comprehension_over_a_cell():
    base = 10
    function = lambda: base
    values = [base + 0 for base in range(3)]
    return values, function(), base


def comprehension_with_functions():
    made = [lambda: item for item in range(3)]
    return [function() for function in made]


def comprehension_over_a_free_variable():
    name = 7

    def inner():
        values = [name + 0 for name in range(2)]
        return values, name_of()

    def name_of():
        return name

    return inner()


def free_variable_after_a_comprehension():
    base = 3

    def inner():
        found = [base + 1 for base in (base, 4)]
        return found, base, (lambda: base)()

    return inner(), base


def free_variable_after_a_comprehension_that_raised():
    base = 3

    def inner():
        try:
            return [1 // base for base in (base, 0)]
        except ZeroDivisionError:
            return base

    return inner(), base


def comprehension_and_a_break():
    found = [lambda: item for item in range(3)]
    print(end="")
    rest = [lambda: item for item in range(2)]
    return [function() for function in found + rest]


def break_in_a_comprehension():
    base = 3
    function = lambda: base
    values = [(base, print(end="")) for base in range(3)]
    return values, function()


def break_after_an_outer_cell():
    base = 3
    function = lambda: base
    print(end="")
    values = [base + 0 for base in range(3)]
    base += 1
    return values, function()


MADE = None


def global_made_and_deleted():
    global MADE_INSIDE
    MADE_INSIDE = 1
    found = "MADE_INSIDE" in globals()
    del MADE_INSIDE
    try:
        MADE_INSIDE  # noqa: B018
    except NameError as error:
        return found, str(error), "MADE_INSIDE" in globals()


def missing_global_deleted():
    global NEVER_THERE
    try:
        del NEVER_THERE
    except NameError as error:
        return str(error)


class Holder:
    pass


HOLDER = Holder()


def attribute_made_and_deleted():
    HOLDER.fresh = 1
    found = hasattr(HOLDER, "fresh")
    del HOLDER.fresh
    return found, hasattr(HOLDER, "fresh"), vars(HOLDER)


def unset_variables():
    texts = []

    def free():
        return outer

    for action in (free, lambda: _unset_local(), lambda: _deleted_local(), lambda: _unset_cell()):
        try:
            action()
        except NameError as error:
            texts.append((type(error).__name__, str(error)))
    outer = 1
    return texts


def _unset_local():
    if not HOLDER:
        value = 1
    return value


def _deleted_local():
    if not HOLDER:
        value = 1
    del value


def _unset_cell():
    def reads():
        return value

    if not HOLDER:
        value = 1
    return value, reads


def shadowed_super():
    class Other:
        msg = "other"

    class Base:
        msg = "base"

    class Derived(Base):
        def real(self):
            return super().msg

        def fake(self):
            super = Other
            return super().msg

    return Derived().real(), Derived().fake()


def wrong_supers():
    texts = []

    class A:
        def no_arguments():
            super().x

        def deleted(self):
            del self
            super().x

    for action in (A.no_arguments, A().deleted, lambda self=1: super()):
        try:
            action()
        except (RuntimeError, NameError) as error:
            texts.append((type(error).__name__, str(error)))
    return texts


def flags():
    return sys.flags.optimize, sys.version_info[0]


PROGRAMS = [
    locals_with_cells, locals_twice, locals_written, locals_in_a_class, comprehension_over_a_cell,
    comprehension_with_functions, comprehension_over_a_free_variable, comprehension_and_a_break,
    free_variable_after_a_comprehension, free_variable_after_a_comprehension_that_raised,
    break_in_a_comprehension, break_after_an_outer_cell, global_made_and_deleted, missing_global_deleted,
    attribute_made_and_deleted, unset_variables, shadowed_super, wrong_supers, flags,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_python(program):
    wanted, found = both(program)
    assert found == [wanted, wanted]


def test_snapshots_of_locals():
    _, (found, _) = both(locals_twice)
    assert found == ((False, False, 2, 3) if FRESH else (True, True, 2, 3))
