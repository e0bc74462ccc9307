"""Builtins that other builtins call (`map(int, x.shape)`, `sorted(rows, key=len)`): the trace's rules hold for them too."""

import collections
import functools
import itertools
import math
import operator

import pytest
import torch

import argand
from argand.support import events

OWN = {"cache": False, "measure": False}


def reshaped(x):
    return x.sin().reshape(tuple(map(int, x.shape)))


def longest(x):
    return x.sin() * max(map(len, [x, x[:1]])) + max([x[:1], x], key=len)


def zeros(x):
    return x.sin() + x.new_zeros(*map(int, x.shape)) + sorted([x[:1], x], key=len)[1]


def products(x):
    total = math.prod(map(int, x.shape)) + sum(map(abs, x.shape))
    return x.sin() * total + functools.reduce(operator.mul, map(int, x.shape))


def sums(x):
    rows = list(map(sum, [x.shape, (1, 2)])) + list(itertools.starmap(max, [(2, 3)]))
    return x.sin() * rows[0] + rows[1] + rows[2]


@pytest.mark.parametrize("program", [reshaped, longest, zeros, products, sums])
def test_sizes_stay_open(program):
    call = argand.compile(program, fullgraph=True, options=OWN)
    with events.collect() as seen:
        for n in (3, 5, 7, 8):
            x = torch.randn(n, 4)
            torch.testing.assert_close(call(x), program(x))
    assert seen.total("compiles") == 2


class Named:
    def __init__(self, name, asked):
        self.name, self.asked = name, asked

    def __str__(self):
        self.asked.append(self.name)
        return self.name

    def __len__(self):
        self.asked.append(len(self.name))
        return len(self.name)

    def __abs__(self):
        return Named(self.name.strip("-"), self.asked)

    def __int__(self):
        return ord(self.name[0])


def test_methods_that_builtins_call_run_at_each_call():
    def program(x, named):
        texts = list(map(str, named)), sorted(map(str, map(abs, named)))
        order = [one.name for one in sorted(named, key=len)], max(named, key=str).name
        return x + sum(map(int, named)), texts, order, min(named, key=len).name

    call = argand.compile(program, options=OWN)
    for names in (("-bb", "a"), ("-bb", "a"), ("c", "-dd", "e")):
        told = []
        for function in (program, call):
            asked = []
            told.append((*function(torch.ones(2), [Named(n, asked) for n in names]), asked))
        assert torch.equal(told[0][0], told[1][0])
        assert told[0][1:] == told[1][1:]


def test_what_a_default_dict_keeps_is_what_it_was_given():
    def program(x):
        counts, lists = collections.defaultdict(int), collections.defaultdict(len)
        counts["a"] += x.shape[0]
        return x + counts["a"], counts, lists

    found = argand.compile(program, options=OWN)(torch.ones(3))
    assert found[1].default_factory is int and found[2].default_factory is len
    assert found[1] == {"a": 3} and torch.equal(found[0], torch.full((3,), 4.0))
