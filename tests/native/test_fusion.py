"""What shares a kernel: loops that must come out as one, against eager."""

import torch
import torch.nn.functional as F

from argand.support import events
from argand.support.options import Options
from tests.native.tracing import check

R = torch.randn


def kernels(function, *inputs):
    """The kernels of a program whose results are right."""
    with events.collect() as heard:
        check(function, *inputs, options=Options(cache=False))
    return heard.texts("schedule")


def test_rows_read_by_a_reduction_and_after_it_are_one_loop():
    def gradient(x, scale):
        """As the backward of a norm: two reductions of rows that are read again."""
        y = x * scale
        first = y - (y * x).sum(-1, keepdim=True) * x
        return first + (y * 2).mean(-1, keepdim=True)

    (text,) = kernels(gradient, R(40, 130), R(130))
    assert text.count("for d1:130") == text.count("for ")


def test_values_chosen_by_position_stay_in_one_kernel():
    def gradient(logs, target):
        chosen = torch.where(torch.arange(70) == target[:, None], 1.0, 0.0)
        return chosen - logs.exp() * chosen.sum(-1, keepdim=True)

    (text,) = kernels(gradient, R(40, 70), torch.randint(70, (40,)))
    assert text.count("for ") == 2


def test_cross_entropy_writes_no_row():
    def loss(x, target):
        return F.cross_entropy(x, target)

    first, second = kernels(loss, R(40, 130), torch.randint(130, (40,)))
    assert "store" not in first[: first.rindex("for ")]
    check(loss, R(40, 130), torch.where(torch.rand(40) < 0.5, torch.randint(130, (40,)), -100))
