"""Launch plans on devices, with launchers that are Python functions: the rows are those that the C object runs."""

import pytest
import torch
from torch.ops import aten

from argand.runtime import launch
from argand.runtime.devices.plan import DevicePlan, NoDevicePlan
from argand.runtime.plan_rows import plan_rows
from tests.devices.standin import Notes, device


def doubled(buffers, sizes, points):
    buffers[1].copy_(2 * buffers[0])


def plan(inputs, buffers, steps, returns, launchers=None, **rest):
    rows = plan_rows(inputs, tuple(buffers), tuple(steps), returns, **rest)
    notes = Notes()
    return DevicePlan(rows, launchers or {"doubled": doubled}, device(notes)), notes


def kernel(*buffers, total=1, sizes=()):
    return launch.KernelStep("doubled", buffers, total, 1, sizes)


F32 = torch.float32


def test_a_kernel_fills_a_fresh_result():
    run, _ = plan(1, [launch.Fresh((2, 3), (3, 1), F32)], [kernel(0, 1)], (1,))
    x = torch.randn(2, 3)
    given = [x]
    assert torch.equal(run(given)[0], 2 * x)
    assert given == []


def test_intermediate_values_lie_in_the_arena():
    buffers = [launch.Slot(64, (4,), (1,), F32), launch.Fresh((4,), (1,), F32)]
    run, _ = plan(1, buffers, [kernel(0, 1), kernel(1, 2)], (2,), arena_bytes=80)
    assert torch.equal(run([torch.ones(4)])[0], torch.full((4,), 4.0))


def test_calls_of_torch_get_views_and_numbers():
    numbers = (launch.Number("size", 0, 0), launch.Number("mul", launch.Sym(0), 2))
    buffers = [
        launch.View(0, (launch.Sym(0),), (2,), 1),
        launch.Made(),
        launch.Integer(launch.Sym(1)),
    ]
    steps = [launch.Call(aten.add.Tensor, (launch.Ref(1), 5), {}, (2,))]
    run, _ = plan(1, buffers, steps, (2, 3), numbers=numbers)
    x = torch.arange(6.0).view(3, 2)
    result, number = run([x])
    assert torch.equal(result, x[:, 1] + 5)
    assert number == 6


def test_a_result_of_other_strides_is_copied_to_those_promised():
    buffers = [launch.Made((2, 3), (1, 2), F32)]
    steps = [launch.Call(aten.add.Tensor, (launch.Ref(0), 1), {}, (1,))]
    run, _ = plan(1, buffers, steps, (1,))
    assert run([torch.ones(2, 3)])[0].stride() == (1, 2)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("batch", [(1, 1), (2, 3)])
def test_products_are_torchs(turned, biased, batch):
    b0, b1 = batch
    left, right, bias = torch.randn(b0, b1, 4, 5), torch.randn(b0, b1, 5, 6), torch.randn(6)
    held = left.transpose(-1, -2).contiguous() if turned else left
    step = launch.Product(
        *(0, 1, 3, 4, 6, 5, 4 if turned else 5, 6, 6),
        transpose_left=turned,
        alpha=2.0,
        beta=3.0 if biased else 0.0,
        batch=batch,
        left_steps=(b1 * 20, 20),
        right_steps=(b1 * 30, 30),
        out_steps=(b1 * 24, 24),
        bias=2 if biased else None,
        bias_strides=(0, 1),
    )
    buffers = [launch.Fresh((b0, b1, 4, 6), (b1 * 24, 24, 6, 1), F32)]
    run, _ = plan(3, buffers, [step], (3,))
    expected = 2 * (left @ right) + (3 * bias if biased else 0)
    torch.testing.assert_close(run([held, right, bias])[0], expected)


def test_marks_are_checked_after_the_last_step():
    def marks(buffers, sizes, points):
        buffers[0][0] = 7

    buffers = [launch.Marks(), launch.Fresh((1,), (1,), F32)]
    run, notes = plan(0, buffers, [kernel(1 - 1, 1)], (1,), launchers={"doubled": marks})
    run([])
    assert notes.lines == ["checked 7"]


def test_what_a_device_does_not_have_is_refused():
    with pytest.raises(NoDevicePlan, match="doubled has no kernel"):
        plan(1, [launch.Fresh((1,), (1,), F32)], [kernel(0, 1)], (1,), launchers={"other": doubled})
