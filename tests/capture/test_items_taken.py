"""What takes items of an iterator and then breaks the graph: Python, which does it all, finds the items that were taken."""

import itertools
import math

import pytest
import torch

import argand

OWN = {"cache": False, "measure": False}


@argand.disable
def shown(*args, **kwargs):
    return args, kwargs


GIVEN = {
    "map": lambda x: shown(*map(str, [1, 2])),
    "iterator": lambda x: shown(0, *iter([1, 2]), sep="-"),
    "zip": lambda x: shown(*zip([1, 2], [3, 4], strict=True)),
    "enumerate": lambda x: shown(*enumerate("ab"), **dict(zip("cd", x.shape, strict=False))),
    "sizes": lambda x: shown(*(size for size in x.shape), *reversed([1, 2])),
    "begun": lambda x: (lambda it: (next(it), shown(*it), list(it)))(iter([1, 2, 3])),
    "printed": lambda x: print(*map(str, [1, 2]), sep="+"),
}

TAKEN = {
    "any": lambda x: (it := iter([x[0] > 5, x[1] > 0, x[0] > 0])) and (any(it), len(list(it))),
    "sorted": lambda x: sorted(iter([x[0], x[1]])),
    "sum": lambda x: math.fsum(iter([x[0], x[1]])),
    "product": lambda x: math.prod(map(int, iter([x[0], x[1]]))),
    "filter": lambda x: list(filter(None, iter([x[0] > 5, x[1] > 0]))),
    "filtered": lambda x: next(filter(None, iter([x[0] > 5, x[1] > 0])), "none"),
    "compress": lambda x: list(itertools.compress([1, 2], iter([x[0] > 5, x[1] > 0]))),
    "within": lambda x: (it := iter([x[0], x[1], x[0]])) and (1.0 in it, list(it)),
    "inside": lambda x: x[0] in iter([1.0, 7.0]),
    "least": lambda x: min(zip([x[0], x[1]], [1, 2], strict=True)),
    "bytes": lambda x: bytes(iter([x[0].long().abs(), x[1].long().abs()])),
    "range": lambda x: list(range(*iter([x[0].long().abs()]))),
    "islice": lambda x: (it := iter(x > 0)) and (list(itertools.islice(it, 1)), any(it), list(it)),
    "takewhile": lambda x: list(itertools.takewhile(lambda v: v > 0, iter([x[0], x[1]]))),
}

HELD = {
    "list": lambda x: x[0] in [1.0, 2.0],
    "tuple": lambda x: (x[0] in (1,), x[0] not in (7.0, 8)),
    "truth": lambda x: (x[0] > 5) in [True],
    "number in tensors": lambda x: (1.0 in [x[0]], [x[0]].count(1.0), [3.0, 1.0, 7.0].index(x[0])),
    "no number": lambda x: (x in [None, "a"], x in [None, x], "a" in [x, "a"]),
    "filter": lambda x: list(filter(None, [x[0] > 5, x[1] > 0])),
    "compress": lambda x: list(itertools.compress("ab", [x[0] > 5, x[1] > 0])),
    "any": lambda x: (any([x[0] > 5, 0]), all((x[0] > 0, True))),
}


@pytest.mark.parametrize("name", [*GIVEN, *TAKEN, *HELD])
def test_nothing_is_lost(name, capsys):
    part = {**GIVEN, **TAKEN, **HELD}[name]

    def program(x):
        return x * 2, part(x)

    call = argand.compile(program, options=OWN)
    for x in (torch.tensor([1.0, 2.0]), torch.tensor([7.0, -1.0]), torch.tensor([1.0, 2.0])):
        wanted, printed = str(program(x)), capsys.readouterr().out
        found = str(call(x))
        assert (found, capsys.readouterr().out) == (wanted, printed)
