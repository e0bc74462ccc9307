"""Pooling and resampling, taken apart and fused, against torch's kernels."""

import pytest
import torch
import torch.nn.functional as F

from argand.native.compile import compile_graph
from argand.support import events
from tests.native.tracing import aten_graph, check

aten = torch.ops.aten


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("geometry", [(3, 2, 1), (2, 2, 0), (2, 1, 0)])
def test_max_pooling_gives_values_and_places(geometry, layout):
    x = torch.randn(2, 3, 9, 8).contiguous(memory_format=layout)
    x[0, 0, :4, :4] = -float("inf")  # a window without a largest element
    x[1, 1, 5, 5] = float("nan")
    x[1, 2] = 1.0  # the first of equal elements counts
    check(lambda x: F.max_pool2d(torch.relu(x) - x, *geometry, return_indices=True), x)
    check(lambda x: F.max_pool2d(x, *geometry, return_indices=True), x)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("sides", [(9, 10), (7, 12), (3, 3), (4, 5)])
@pytest.mark.parametrize(
    "window", [(3, 2, 0), (3, 2, 1), (2, 3, 1), (2, 2, 0), ((2, 3), (3, 2), 1)]
)
def test_windows_that_reach_over_the_edge(window, sides, layout):
    x = torch.randn(2, 3, *sides).contiguous(memory_format=layout)
    x[0, 0, 0, 0] = float("nan")
    x[1, 1] = -float("inf")
    check(lambda x: F.max_pool2d(x, *window, ceil_mode=True, return_indices=True), x)


def test_average_pooling_and_its_gradient():
    x, grad = torch.randn(2, 3, 8, 6), torch.randn(2, 3, 4, 3)
    check(
        lambda x: (
            F.avg_pool2d(x + 1, 2),
            F.avg_pool2d(x, 3, 1, 1),
            F.adaptive_avg_pool2d(x, (4, 3)),
        ),
        x,
    )
    check(
        lambda g, x: aten.avg_pool2d_backward(g, x, [2, 2], [], [0, 0], False, True, None), grad, x
    )


def test_resampling_and_its_gradient():
    x, grad = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 8, 15)
    check(
        lambda x: torch.cat(
            [F.interpolate(x, size=(8, 15)), F.interpolate(x * 2, size=(8, 15))], 1
        ),
        x,
    )
    check(lambda x: F.interpolate(x, scale_factor=2), x.bfloat16())
    check(lambda g: aten.upsample_nearest2d_backward(g, [8, 15], [2, 3, 4, 5]), grad)
    for corners in (False, True):
        check(
            lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=corners), x
        )


def test_small_kernels_are_ours_and_odd_ones_torchs():
    x = torch.randn(1, 2, 12, 12)

    def externs(function):
        with events.collect() as collector:
            compile_graph(aten_graph(function, x), [x])
        return collector.total("native.extern")

    assert (
        externs(
            lambda x: (
                F.max_pool2d(x, 3, 2, 1),
                F.avg_pool2d(x, 2),
                F.interpolate(x, scale_factor=2),
            )
        )
        == 0
    )
    assert externs(lambda x: (F.max_pool2d(x, 3, 2, 1, ceil_mode=True),)) == 0
    assert externs(lambda x: (F.max_pool2d(x, 3, 2, 1, dilation=2),)) == 1
    assert externs(lambda x: (F.interpolate(x, size=(13, 13)),)) == 1
