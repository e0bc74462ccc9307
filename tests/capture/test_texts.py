"""Texts of what holds tensors tell what the tensors hold: nothing of them is made while the trace runs."""

# ruff: noqa: UP030, UP031, UP032  (these ways of making texts are what is tried)
import collections
import dataclasses
import types

import pytest
import torch

import argand

OWN = {"cache": False, "measure": False}
Pair = collections.namedtuple("Pair", "first second")
OUTSIDE = {"kept": torch.ones(2), "all": types.SimpleNamespace(kept=[torch.zeros(2)])}


@dataclasses.dataclass
class Row:
    value: torch.Tensor
    name: str = "row"


class Shown:
    def __init__(self, one, two):
        self.one, self.two = one, two

    def __repr__(self):
        return "{}({}, {two!r:>5})".format(type(self).__name__, self.one, two=self.two)


class Odd(Exception):
    pass


TEXTS = {
    "list": lambda x: str([x + 1]),
    "dict": lambda x: repr({"a": x + 1}),
    "set": lambda x: f"{ {1, 2} }{ {x.dtype: [x.sum()]} }",
    "tuple": lambda x: f"{(x + 1, 2)}",
    "format": lambda x: "{} {:>3}".format(x + 1, 7),
    "formatted list": lambda x: "{0[0]}".format([x + 1]),
    "keyword": lambda x: "{a}".format(a=x + 1),
    "attribute": lambda x: "{a.value}".format(a=Row(x + 1)),
    "mapping": lambda x: "{a}".format_map({"a": x + 1}),
    "percent": lambda x: "%s %d" % ([x + 1], 3),
    "percent dict": lambda x: "%(a)s" % {"a": x + 1},
    "joined": lambda x: ",".join(map(str, [x + 1, 2])),
    "error": lambda x: str(ValueError("a", x + 1)),
    "own error": lambda x: repr(Odd(x + 1)),
    "group": lambda x: repr(ExceptionGroup("m", [Odd(x + 1)])),
    "dataclass": lambda x: str(Row(x + 1)),
    "made dataclass": lambda x: str(dataclasses.make_dataclass("Made", ["value"])(x + 1)),
    "namespace": lambda x: str(types.SimpleNamespace(a=x + 1)),
    "named tuple": lambda x: str(Pair(x + 1, x.shape)),
    "deque": lambda x: str(collections.deque([x + 1])),
    "ordered": lambda x: str(collections.OrderedDict(a=x + 1)),
    "default": lambda x: str(collections.defaultdict(list, a=[x + 1])),
    "proxy": lambda x: str(types.MappingProxyType({"a": x + 1})),
    "values": lambda x: str({"a": x + 1}.values()),
    "slice": lambda x: str(slice(x.sum(), None)),
    "own": lambda x: repr(Shown(x + 1, 2)),
    "distribution": lambda x: repr(torch.distributions.Normal(x.sum(), 1.0)),
    "support": lambda x: repr(torch.distributions.Uniform(-x, x + 1).support),
    "module": lambda x: repr(torch.nn.Linear(2, 2)),
    "plain": lambda x: f"{[x.shape, x.dtype, 1.5]} {tuple(x.shape)} {'%5.1f' % 2}",
    "outside": lambda x: str(OUTSIDE),
    "outside formatted": lambda x: f"{OUTSIDE['all']}",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_tells_what_is_there_at_each_call(name):
    def program(x):
        return x * 2, TEXTS[name](x * 0.5)

    call = argand.compile(program, options=OWN)
    for k, n in enumerate((2, 2, 3)):
        OUTSIDE["kept"].fill_(k)
        OUTSIDE["all"].kept[0].fill_(-k)
        x = torch.arange(float(n)) + k
        wanted, found = program(x), call(x)
        assert torch.equal(wanted[0], found[0]) and wanted[1] == found[1]


NUMBERS = {
    "format": lambda n: n.__format__(".2f"),
    "str": lambda n: n.__str__(),
    "round": lambda n: n.__round__(1),
    "equal": lambda n: n.__eq__(1.0),
    "hash": lambda n: n.__hash__(),
    "integer": lambda n: n.is_integer(),
    "real": lambda n: n.real,
    "asked": lambda n: (hasattr(n, "is_integer"), getattr(n, "imag", None), hasattr(n, "foo")),
    "tried": lambda n: n.foo,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_attributes_of_a_number_that_the_graph_computes(name):
    def program(x):
        number = (x * 0.5).sum().item()
        try:
            return x * 2, NUMBERS[name](number)
        except AttributeError as missing:
            return x * 3, str(missing)

    call = argand.compile(program, options=OWN)
    for k in (1.0, 2.5, 3.0):
        wanted, found = program(torch.full((2,), k)), call(torch.full((2,), k))
        assert torch.equal(wanted[0], found[0]) and wanted[1] == found[1]
