"""Tensors that a call leaves at another size than it found them: the first compile has the size open."""

import pytest
import torch

import argand
from argand.support import events


class Box:
    def __init__(self, rows):
        self.kept = rows


def attribute(box, new):
    box.kept = torch.cat([box.kept, new])
    return box.kept.sum(0)


def item(rows, new):
    rows[0] = torch.cat([rows[0], new])
    return rows[0].sum(0)


def named(rows, new):
    rows["kept"] = torch.cat([rows["kept"], new])
    return rows["kept"].sum(0)


def shrinks(box, new):
    box.kept = box.kept[:-1] + new
    return box.kept.sum(0)


HOLDERS = {
    attribute: (Box, lambda box: box.kept),
    item: (lambda rows: [rows], lambda rows: rows[0]),
    named: (lambda rows: {"kept": rows}, lambda rows: rows["kept"]),
    shrinks: (Box, lambda box: box.kept),
}


@pytest.mark.parametrize("function", HOLDERS)
def test_one_compile_for_all_sizes(function):
    argand.reset()
    make, read = HOLDERS[function]
    mine, theirs = make(torch.ones(9, 4)), make(torch.ones(9, 4))
    compiled = argand.compile(function, options={"cache": False})
    with events.collect() as heard:
        for step in range(5):
            new = torch.full((1, 4), float(step))
            assert torch.equal(compiled(mine, new), function(theirs, new))
            assert torch.equal(read(mine), read(theirs))
    assert heard.total("capture.graphs") == 1


def test_a_cell_too():
    def make():
        kept = torch.ones(3, 4)

        def grow(new):
            nonlocal kept
            kept = torch.cat([kept, new])
            return kept.sum(0)

        return grow

    argand.reset()
    mine, theirs = argand.compile(make(), options={"cache": False}), make()
    with events.collect() as heard:
        for step in range(5):
            new = torch.full((1, 4), float(step))
            assert torch.equal(mine(new), theirs(new))
    assert heard.total("capture.graphs") == 1


def test_what_keeps_its_size_stays_fixed():
    def replace(box, new):
        box.kept = box.kept + new
        return box.kept.sum(0)

    argand.reset()
    compiled, box = argand.compile(replace, options={"cache": False}), Box(torch.ones(3, 4))
    with events.collect() as heard:
        compiled(box, torch.ones(1, 4))
        compiled(box, torch.ones(1, 4))
    assert heard.total("capture.graphs") == 1 and heard.total("capture.retry") == 0


def test_fixed_where_the_user_said_so():
    argand.reset()
    compiled, box = (
        argand.compile(attribute, dynamic=False, options={"cache": False}),
        Box(torch.ones(3, 4)),
    )
    with events.collect() as heard:
        compiled(box, torch.ones(1, 4))
        compiled(box, torch.ones(1, 4))
    assert heard.total("capture.graphs") == 2
