"""What every generated program starts with: globals, classes and functions to use."""

PRELUDE = """\
import io
from collections import defaultdict, deque, namedtuple
from contextlib import contextmanager
from functools import partial

import torch

import argand

COUNTER = 0
SCALE = 2.0
LOG = []
BUFFER = io.StringIO()
SETTINGS = {"a": 1, "b": 2}
Pair = namedtuple("Pair", "left right")


class Box:
    def __init__(self, value, tensor):
        self.value = value
        self.tensor = tensor
        self.items = []

    def bump(self, by=1):
        self.value = (self.value + by) % 97
        return self.value

    @property
    def double(self):
        return self.value * 2

    def __call__(self, t):
        return t * self.value + self.tensor


class Manager:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, value, trace):
        LOG.append(("exit", self.name, None if kind is None else kind.__name__))
        return self.swallow


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((1,), 0.5))
        self.register_buffer("total", torch.zeros(1))
        self.calls = 0

    def forward(self, t, times=1):
        self.calls += 1
        self.total += t.detach().sum()
        for _ in range(times):
            t = t * self.weight
        return t if self.training else t.detach()


LAYER = Layer()


class Stack(list):
    def push(self, value):
        self.append(value)
        return self


@contextmanager
def noting(name):
    LOG.append(("begin", name))
    try:
        yield len(LOG)
    finally:
        LOG.append(("end", name))


def scale(t, by=2.0, *rest, shift=0.0, **options):
    return t * by + shift + len(rest) - len(options)


def describe(t):
    print("describe", tuple(t.shape), file=BUFFER)
    return t + 1


def choose(t, u):
    if t.sum() > u.sum():
        return t - u
    return u


def count_up(n):
    total = 0
    for i in range(n):
        total += i
        yield total


def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def tally(by):
    global COUNTER
    COUNTER = (COUNTER + by) % 89
    return COUNTER


"""
