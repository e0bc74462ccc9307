"""Modules that bind a name when it is first asked for, as `torch.ops` does."""

import types

import torch

import argand


class Lazy(types.ModuleType):
    def __getattr__(self, name):
        if name != "double":
            raise AttributeError(name)
        self.double = lambda x: x * 2
        return self.double


lazy = Lazy("lazy")


def test_a_name_that_is_bound_by_the_trace():
    @argand.compile(fullgraph=True, options={"cache": False})
    def program(x):
        return lazy.double(x) + hasattr(lazy, "triple")

    x = torch.randn(3)
    assert torch.equal(program(x), x * 2)
    lazy.triple = 3
    assert torch.equal(program(x), x * 2 + 1)
