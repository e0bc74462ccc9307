"""Kernels that check their loads and stores: a bad index is an error with kernel, buffer and element, not a crash."""

import dataclasses

import pytest
import torch

import argand
from argand.native.compile import compile_graph
from argand.native.ir import loops as ir
from argand.native.passes import table
from argand.native.schedule.nest import LoopNest, build_nests
from argand.support.options import Options
from tests.native.tracing import aten_graph, check

CHECKED = Options(checked_kernels=True, verify="", cache=False)


def moved(block, kind, by):
    """Every load or store of a block some elements further."""
    found = []
    for s in block:
        if isinstance(s, ir.Loop):
            s = dataclasses.replace(s, body=moved(s.body, kind, by))
        elif isinstance(s, kind):
            s = dataclasses.replace(s, index=s.index.shift(by))
        found.append(s)
    return tuple(found)


@pytest.fixture
def wrong(monkeypatch):
    """Makes the loops wrong behind the scheduler, where no verifier looks."""

    def make(kind, by):
        def build(schedule):
            nests = build_nests(schedule)
            work = []
            for nest in nests.work:
                if isinstance(nest, LoopNest):
                    kernel = dataclasses.replace(
                        nest.kernel, body=moved(nest.kernel.body, kind, by)
                    )
                    nest = dataclasses.replace(nest, kernel=kernel)
                work.append(nest)
            return dataclasses.replace(nests, work=tuple(work))

        rows = [
            row._replace(run=lambda value, setting: build(value))
            if row.name == "build_nests"
            else row
            for row in table.PASSES
        ]
        monkeypatch.setattr(table, "PASSES", tuple(rows))

    return make


@pytest.mark.parametrize("length", [5, 64, 1000])
@pytest.mark.parametrize(
    "kind, by", [(ir.Load, 1), (ir.Store, 1), (ir.Load, -1), (ir.Store, -2), (ir.Store, 10**12)]
)
def test_an_access_outside_of_its_buffer_is_named(wrong, kind, by, length):
    wrong(kind, by)
    x = torch.randn(length)
    compiled = compile_graph(aten_graph(lambda x: x.exp() + 1, x), [x], CHECKED)
    with pytest.raises(RuntimeError, match=r"kernel0 leaves its buffer b[01]: element -?\d+"):
        compiled([x])


def test_rows_on_the_stack_are_checked(wrong):
    wrong(ir.Store, 1)
    x = torch.randn(40, 33)
    compiled = compile_graph(aten_graph(lambda x: x.softmax(-1), x), [x], CHECKED)
    with pytest.raises(RuntimeError, match=r"kernel0 leaves its buffer b-?\d"):
        compiled([x])


def test_right_kernels_say_nothing():
    x, w, i = torch.randn(8, 33), torch.randn(10, 6), torch.tensor([1, 2, 9])
    check(
        lambda x: (x.softmax(-1), x.t().contiguous() + 1, x.sum(0), x[2:5, ::3] * 2, x.argmax(1)),
        x,
        options=CHECKED,
    )
    check(lambda w, i: w[i] * 2, w, i, options=CHECKED)
    check(lambda x: torch.cat([x, x.half().float()], 1).flip(0), x, options=CHECKED)
    compiled = argand.compile(
        lambda x: (x.exp().softmax(-1), x.t() * 2), dynamic=True, options={"checked_kernels": True}
    )
    for rows in (4, 7, 9):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(compiled(x)[0], x.exp().softmax(-1))
