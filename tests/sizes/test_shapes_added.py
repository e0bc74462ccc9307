"""Shapes made of shapes with open sizes: torch.Size's own methods take numbers only, the program's do not fail for that."""

import pytest
import torch

import argand
from argand.support import events


def before(x):
    return x.expand(torch.Size([2]) + x.shape)


def beside(x):
    return x.new_zeros(torch.Size([2]) + (x.shape[0],))


def handled(x):
    try:
        shape = torch.Size([2]) + x.shape
    except TypeError:
        return x * 100
    return x.expand(shape).sum(0)


def grown(x):
    shape = torch.Size()
    for size in x.shape:
        shape += (size,)
    return x.sin(), shape, (1,) + x.shape, x.shape + x.shape


def generated(x):
    return (
        x.sin(),
        torch.Size(size + 1 for size in x.shape),
        torch.Size(map(int, x.shape)),
        torch.Size(),
    )


@pytest.mark.parametrize("program", [before, beside, handled, grown, generated])
def test_shapes_are_added_and_made(program):
    call = argand.compile(program, fullgraph=True, options={"cache": False, "measure": False})
    with events.collect() as seen:
        for n in (3, 5, 7, 4):
            x = torch.randn(n, 4)
            torch.testing.assert_close(call(x), program(x))
    assert seen.total("compiles") == 2


@pytest.mark.parametrize("make", [lambda n: n, lambda n: (n, 1.5), lambda n: [n, "a"]])
def test_what_is_no_shape_is_an_error_as_in_eager(make):
    call = argand.compile(lambda x: torch.Size(make(x.shape[0])))
    for n in (3, 5):
        with pytest.raises(TypeError) as wanted:
            torch.Size(make(n))
        with pytest.raises(TypeError) as found:
            call(torch.ones(n))
        assert str(found.value) == str(wanted.value)
