"""Sizes of results, symbolic, against the sizes torch gives for other samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from argand.ops.fakes import FakeMode
from argand.sizes.expressions import SizeInt
from argand.sizes.refusals import Stop
from argand.sizes.table import SizeTable

Program = Callable[[torch.Tensor], Any]
PROGRAMS: dict[str, Program] = {
    "conv": lambda x: F.conv2d(x, x.new_empty(8, 3, 3, 3), stride=2, padding=1),
    "conv_transpose": lambda x: F.conv_transpose2d(x, x.new_empty(3, 8, 2, 2), stride=2),
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool_ceil": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "pad": lambda x: F.pad(x, (1, 2, 3, 0)),
    "reflect": lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"),
    "cat": lambda x: torch.cat([x, x.new_empty(1, 3, 5, x.size(3))], 2),
    "slice": lambda x: x[:, :, 1:-1, 5:],
    "slice_step": lambda x: x[:, :, ::2, :-3:3],
    "slice_end": lambda x: x[:, :, : 1 << 12],
    "arange": lambda x: torch.arange(2, x.size(2), 3),
    "unfold": lambda x: x.unfold(3, 4, 2),
    "diagonal": lambda x: x.diagonal(1, 2, 3),
    "up": lambda x: F.interpolate(x, scale_factor=2.0),
    "down": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
    "im2col": lambda x: F.unfold(x, 3, padding=1),
    "fft": lambda x: torch.fft.rfft(x),
    "expand": lambda x: x[:, :1].expand(-1, 7, -1, -1).reshape(7, -1),
    "repeat": lambda x: x.repeat(2, 1, 3, 1).flatten(1),
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_shapes_of_results_are_explained(name: str) -> None:
    program = PROGRAMS[name]
    table = SizeTable()
    shape = (1, 3, table.symbol("h", 20), table.symbol("w", 24))
    with torch.no_grad(), FakeMode(table):
        found = program(torch.empty(shape)).shape
    expressed = [table.express(n) for n in found]
    assert any(isinstance(n, SizeInt) for n in expressed)
    for height, width in ((20, 24), (21, 31), (64, 65)):
        values = dict(zip(table.samples, (height, width), strict=True))
        wanted = program(torch.empty(1, 3, height, width)).shape
        assert [n.expr.evaluate(values) if isinstance(n, SizeInt) else n for n in expressed] == [
            *wanted
        ], (name, expressed)


def test_a_slice_relies_on_where_it_ends() -> None:
    table = SizeTable()
    size = table.symbol("s", 20)
    with FakeMode(table):
        torch.empty(size)[:512]
    assert all(fact.holds({next(iter(table.samples)): 511}) for fact in table.facts)
    assert not all(fact.holds({next(iter(table.samples)): 513}) for fact in table.facts)
    with pytest.raises(Stop, match="the samples need"), FakeMode(table):
        torch.empty(size)[:50]  # 20 <= 50, but the sample is larger


def test_divisible_sizes_have_divisible_samples() -> None:
    table = SizeTable()
    size = table.symbol("s", 32)
    with pytest.raises(Stop, match="the samples need") as caught:
        table.decide("==", size % 8, 0)
    again = SizeTable(facts=[caught.value.reason.fact])
    size = again.symbol("s", 32)
    assert size % 8 == 0 and str(again.express(int(size) // 2)) == "(s // 2)"
    twin = again.twin()
    assert all(sample % 8 == 0 for sample in twin.samples.values())
