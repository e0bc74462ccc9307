"""Integers of a call that are open: arithmetic of theirs raises what Python's raises, whoever reads the result."""

import pytest
import torch

import argand

DIVISIONS = {
    "//": lambda n: 10 // n,
    "%": lambda n: 10 % n,
    "divmod": lambda n: divmod(10, n),
    "by itself": lambda n: n // n,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", DIVISIONS)
def test_division_by_zero_raises_though_nobody_reads_the_quotient(name, dynamic):
    divide = DIVISIONS[name]

    def function(x, n):
        try:
            divide(n - 2)
        except ZeroDivisionError as error:
            return x, str(error)
        return x + n, ""

    compiled = argand.compile(function, backend="eager", dynamic=dynamic)
    for n in (5, 4, 7, 2, 3, 2):
        assert compiled(torch.zeros(1), n) == function(torch.zeros(1), n)


def test_division_by_zero_after_a_break_is_caught():
    """The numbers of a loop are open in its resume function."""

    def function(x, ys):
        quotients = []
        try:
            for y in ys:
                print(end="")  # breaks the graph
                quotients.append(1 // (y - 2))
        except ZeroDivisionError:
            x = x - 1
        return x, quotients

    compiled = argand.compile(function, backend="eager")
    for ys in ([1, 2, 3], [5, 4, 3, 2]):
        assert compiled(torch.zeros(1), ys) == function(torch.zeros(1), ys)
