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


def test_kernels_over_the_same_input_are_one():
    def several(x, y):
        return x.sum(-1), x.amax(-1), (x * y).sum(-1)

    assert len(kernels(several, R(40, 130), R(40, 130))) == 1
    assert len(kernels(lambda x: (x.exp(), x + 1, x.t() * 2), R(40, 130))) == 1
    (pieces, *_) = kernels(lambda x: (x.sum(), x.amax(), x.square().mean()), R(512, 512).double())
    assert pieces.count("+=") == 3
    x = R(300, 60).double()
    assert len(kernels(lambda x, y: ((x * y).sum(0), x.sum(0)), x, x + 1)) == 1


def test_kernels_that_need_each_other_or_other_rows_stay_apart():
    assert len(kernels(lambda x: (x.sum(0), x.sum(1)), R(40, 130))) == 2
    assert len(kernels(lambda x: x - x.sum(0).tanh().flip(0) + x.t().sum(), R(40, 40))) > 1


def test_decisions_name_what_is_shared():
    with events.collect() as heard:
        kernels(lambda x: (x.sum(-1), x.amax(-1)), R(40, 130))
    assert "fuse sum beside amax: both read input of (40, 130)" in "\n".join(heard.texts("fusion"))


def test_sums_of_columns_beside_a_result_read_rows_after_rows():
    """A gradient and the bias's gradient: down a column, each row would be a page of its own."""

    def program(gradient, saved):
        found = gradient * saved.exp()
        return found, found.sum(0)

    inputs = torch.rand(512, 1024), torch.rand(512, 1024)
    first, *_ = kernels(program, *inputs)
    assert "scratch f32*1024" in first.splitlines()[0]
