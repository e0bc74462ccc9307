"""Comprehensions whose variables are cells, with graph breaks before, in and after them: values, calls and cells are Python's.

From 3.12 on a comprehension has the slots of its function's variables, so a variable and its cell are two things at once there.
"""

import pytest
import torch

import argand


def writes_after_a_comprehension(x, xs, say):
    def g():
        nonlocal y
        y = y + 1
        return y

    say("before", x)
    y = x + 3
    r = [(lambda: (y, x.sum())) for y in xs if say("in", y)]
    say("after", x)
    return [each() for each in r], g(), y


def hides_a_cell(x, xs, say):
    y = x + 1
    g = lambda: y
    say("before", x)
    r = [y * g() for y in xs if say("in", y)]
    return r, y, g()


def reads_a_cell_of_the_frame(x, xs, say):
    y = x + 1

    def g(more):
        nonlocal y
        y = y * more
        return y.sum()

    r = [(lambda: y)() + g(y) for y in xs if say("in", y)]
    return r, y, g(2)


def holds_both(x, xs, say):
    y = x + 1
    g = lambda: y
    r = [[y for y in xs if say("in", y)] + [(lambda: y)()] for y in [1, 2]]
    return r, y, g()


def in_each_other(x, xs, say):
    k = x * 2
    r = [[(lambda: (y, z, k)) for z in xs if say("in", y, z)] for y in xs]
    return [each() for row in r for each in row], k


def hides_a_free_variable(x, xs, say):
    y = x + 5

    def inner(x):
        get = lambda: y
        r = [y for y in xs if say("in", y)]
        return r, get(), y

    return inner(x)


def raises_inside(x, xs, say):
    y = x + 1
    g = lambda: y
    try:
        r = [(lambda: y)() // (y - 2) for y in [1, 2, 3] if say("in", y)]
    except ZeroDivisionError:
        r = None
    return r, y, g()


class Base(torch.nn.Module):
    def forward(self, x, xs, say):
        return [x + k for k in xs if say("base", k)]


class Derived(Base):
    def forward(self, x, xs, say):
        y = x * 2
        g = lambda: (self, y)
        r = [y for y in xs if say("in", y)] + super().forward(x, xs, say)
        return r, y, g()[1]


PROGRAMS = (
    *(writes_after_a_comprehension, hides_a_cell, reads_a_cell_of_the_frame, holds_both),
    *(in_each_other, hides_a_free_variable, raises_inside, Derived()),
)


def run(function, xs, broken):
    log = []

    def say(*what):
        log.append(tuple(float(v.sum()) if isinstance(v, torch.Tensor) else v for v in what[1:]))
        if what[0] in broken:
            print(end="")  # breaks the graph
        return True

    return function(torch.arange(3.0), xs, say), log


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [*map(plain, value)] if isinstance(value, (list, tuple)) else value


def named(program):
    return getattr(program, "__name__", "in_a_method")


@pytest.mark.parametrize("broken", ["before", "in", "before in after"])
@pytest.mark.parametrize("program", PROGRAMS, ids=named)
def test_as_in_python(program, broken):
    compiled = argand.compile(program, backend="eager", options={"strict": True})
    for xs in ([1, 2], [4, 2], [], [3]):
        expected = plain(run(program, list(xs), broken.split()))
        assert plain(run(compiled, list(xs), broken.split())) == expected


@pytest.mark.parametrize("program", PROGRAMS, ids=named)
def test_each_break_is_resumed(program):
    explained = argand.explain(program)(torch.arange(3.0), [1, 2], lambda *_: print(end="") is None)
    assert explained.breaks
    assert "cannot be resumed" not in str(explained)


def test_a_cell_in_a_cell_is_pythons():
    """Where CPython gives a comprehension's variable the cell of a free one, what happens to it is left alone."""

    def outer(x, xs):
        y = x + 5

        def inner(x):
            r = [(lambda: y) for y in xs]
            return [each() for each in r], type(y)

        return inner(x)

    compiled = argand.compile(outer, backend="eager")
    for xs in ([1, 2], [], [3]):
        assert compiled(torch.arange(3.0), xs) == outer(torch.arange(3.0), xs)
