"""The launcher: buffers of every kind, errors, threads, and what it holds on to."""

import ctypes
import gc
import sys
import threading
import weakref

import pytest
import torch

from argand.runtime import _native, launch
from argand.runtime.launch import (
    Call,
    Constant,
    Free,
    Fresh,
    KernelStep,
    Made,
    PythonValue,
    Ref,
    Slot,
    View,
)
from tests.launch import kernels
from tests.launch.plans import Plan

F32 = torch.float32


def increment(source, target, total, grain=1 << 40):
    return KernelStep(kernels.address(), (source, target), total, grain)


def test_numbers_of_dtypes_are_torchs():
    library = ctypes.CDLL("libtorch_cpu.so", mode=4)
    for dtype, number in launch.DTYPE_NUMBERS.items():
        name = str(dtype).removeprefix("torch.")
        assert getattr(library, f"aoti_torch_dtype_{name}")() == number, name


def test_fresh_output_with_strides():
    plan = Plan(1, (Fresh((2, 3), (1, 2), F32),), (increment(0, 1, 6),), (1,))
    x = torch.arange(6.0)
    (out,) = plan([x])
    assert out.stride() == (1, 2) and out.storage_offset() == 0
    torch.testing.assert_close(out, torch.tensor([[1.0, 3, 5], [2, 4, 6]]))
    (again,) = plan([x])
    assert again.data_ptr() != out.data_ptr()
    again.resize_(100)  # as with any tensor of eager


def test_arena_between_kernels_and_a_constant():
    buffers = (
        Fresh((4,), (1,), F32),
        Slot(0, (4,), (1,), F32),
        Slot(64, (4,), (1,), F32),
        Constant(torch.arange(4.0)),
    )
    steps = (increment(3, 1, 4), increment(1, 2, 4), increment(2, 0, 4))
    (out,) = Plan(0, buffers, steps, (0,), arena_bytes=128)([])
    torch.testing.assert_close(out, torch.arange(4.0) + 3)


def test_kernel_reads_its_sizes():
    steps = (increment(0, 1, 1), KernelStep(kernels.address("add_size"), (1,), 1, 1, (40,)))
    (out,) = Plan(1, (Fresh((1,), (1,), F32),), steps, (1,))([torch.ones(1)])
    assert out.item() == 42


def test_views_and_values_and_inputs_are_returned():
    x = torch.arange(12.0).view(3, 4)[1:]
    buffers = (
        View(0, (2, 2), (4, 1), 1),
        Fresh((8,), (1,), F32),
        View(2, (2, 4), (4, 1)),
        PythonValue("v"),
    )
    plan = Plan(1, buffers, (increment(0, 2, 8),), (0, 1, 2, 3, 4, 0))
    same, view, fresh, fresh_view, value, again = plan([x])
    assert same is x and again is x and value == "v"
    torch.testing.assert_close(view, x[:, 1:3])
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    torch.testing.assert_close(fresh_view, (x + 1).view(2, 4))
    assert fresh_view.data_ptr() == fresh.data_ptr()


def test_call_on_arena_memory_and_on_results():
    buffers = (Slot(0, (2, 2), (2, 1), F32), Made((2, 2), (2, 1), F32), Fresh((4,), (1,), F32))
    steps = (
        increment(0, 1, 4),
        Call(torch.mm, (Ref(1), Ref(1)), {}, (2,)),
        increment(2, 3, 4),
        Free((2,)),
    )
    x = torch.eye(2)
    (out,) = Plan(1, buffers, steps, (3,), arena_bytes=64)([x])
    torch.testing.assert_close(out, ((x + 1) @ (x + 1) + 1).flatten())


def test_call_writes_to_out():
    buffers = (Fresh((2, 2), (2, 1), F32),)
    steps = (Call(torch.mm, (Ref(0), Ref(0)), {"out": Ref(1)}),)
    (out,) = Plan(1, buffers, steps, (1,))([torch.full((2, 2), 2.0)])
    torch.testing.assert_close(out, torch.full((2, 2), 8.0))


def test_inputs_that_are_not_tensors():
    plan = Plan(2, (Made(),), (Call(torch.Tensor.add, (Ref(0), Ref(1)), {}, (2,)),), (2, 1))
    out, number = plan([torch.ones(2), 5])
    assert number == 5 and out.tolist() == [6, 6]


def test_parameters_do_not_start_autograd():
    weight = torch.nn.Parameter(torch.ones(2, 2))
    (out,) = Plan(1, (Made(),), (Call(torch.mm, (Ref(0), Ref(0)), {}, (1,)),), (1,))([weight])
    assert not out.requires_grad and torch.is_grad_enabled()


def test_consumed_inputs_die_early():
    seen = []
    tensor = torch.ones(2)
    alive = weakref.ref(tensor)
    steps = (Free((0,)), Call(lambda: seen.append(alive() is None)))
    plan = Plan(1, (), steps, ())
    plan.consumes = True
    inputs = [tensor]
    del tensor
    plan(inputs)
    assert seen == [True] and inputs == []


def test_an_error_in_a_call_is_the_callers():
    plan = Plan(1, (Made(),), (Call(torch.mm, (Ref(0), Ref(0)), {}, (1,)),), (1,))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        plan([torch.ones(2, 3)])
    assert torch.is_grad_enabled()


def test_malformed_plans_are_refused():
    with pytest.raises(ValueError, match="no buffer 7"):
        Plan(1, (), (), (7,))
    with pytest.raises(ValueError, match="no buffer -1"):
        Plan(1, (), (Free((-1,)),), ())
    with pytest.raises(TypeError, match="takes 1 inputs, not 0"):
        Plan(1, (), (), ())([])
    with pytest.raises(TypeError, match="one list"):
        Plan(1, (), (), ())(torch.ones(1))
    with pytest.raises(RuntimeError, match="before it exists"):
        Plan(0, (Made(),), (), (0,))([])
    with pytest.raises(RuntimeError, match="another shape"):
        Plan(1, (Made((3,), (1,), F32),), (Call(torch.abs, (Ref(0),), {}, (1,)),), (1,))(
            [torch.ones(2)]
        )
    with pytest.raises(RuntimeError, match="another shape or type"):
        Plan(1, (Made((2,), (1,), F32),), (Call(torch.abs, (Ref(0),), {}, (1,)),), (1,))(
            [torch.ones(2, dtype=torch.int32)]
        )


def test_empty_tensors():
    plan = Plan(1, (Fresh((0, 3), (3, 1), F32),), (increment(0, 1, 0),), (1,))
    (out,) = plan([torch.empty(0, 3)])
    assert out.shape == (0, 3)


def test_split_over_threads_changes_nothing():
    x = torch.randn(100_003)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            for grain in (1, 1000, 1 << 30):
                plan = Plan(
                    1, (Fresh((x.numel(),), (1,), F32),), (increment(0, 1, x.numel(), grain),), (1,)
                )
                assert torch.equal(plan([x])[0], x + 1)
    finally:
        torch.set_num_threads(before)


def test_two_threads_in_one_plan():
    size = 3000
    buffers = (
        Fresh((size,), (1,), F32),
        *(Slot(64 * size * i, (size,), (1,), F32) for i in range(4)),
        Made((size,), (1,), F32),
    )
    steps = (
        increment(0, 2, size, 10),
        increment(2, 3, size, 10),
        Call(torch.neg, (Ref(3),), {}, (6,)),
        increment(6, 4, size, 10),
        increment(4, 1, size, 10),
    )
    plan = Plan(1, buffers, steps, (1,), arena_bytes=64 * size * 4)
    wrong = []

    def work(seed):
        x = torch.full((size,), float(seed))
        for _ in range(300):
            (out,) = plan([x])
            if not bool((out == -(seed + 2.0) + 2.0).all()):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_nothing_leaks():
    x, marker = torch.ones(4), object()
    constant = torch.zeros(4)
    buffers = (
        Fresh((4,), (1,), F32),
        Slot(0, (4,), (1,), F32),
        Constant(constant),
        Made(),
        PythonValue(marker),
        View(0, (2,), (1,)),
    )
    steps = (
        increment(0, 2, 4),
        Call(torch.add, (Ref(2), Ref(3)), {}, (4,)),
        Call(torch.cat, ([Ref(2), Ref(4)],), {}, (-1,)),
        increment(4, 1, 4),
    )
    plan = Plan(1, buffers, steps, (1, 5, 6), arena_bytes=64)
    plan([x])
    _native.release_arenas()
    held = _native.arena_statistics()["bytes_held"]
    counts = [sys.getrefcount(o) for o in (x, constant, marker)]
    gc.collect()
    before = {id(o) for o in gc.get_objects() if type(o) is torch.Tensor}
    for _ in range(500):
        plan([x])
    gc.collect()
    assert [sys.getrefcount(o) for o in (x, constant, marker)] == counts
    # Tensors of other tests may die meanwhile: only what came is looked at.
    assert not [o for o in gc.get_objects() if type(o) is torch.Tensor and id(o) not in before]
    assert _native.arena_statistics()["bytes_held"] == held + 64
    assert _native.release_arenas() >= 64
    kept = weakref.ref(constant)
    del plan, buffers, constant
    gc.collect()
    assert kept() is None


def test_plan_keeps_its_code_and_is_collectable():
    class Owner:
        pass

    owner = Owner()
    plan = Plan(0, (), (), (), keep=owner)
    owner.plan = plan
    alive = weakref.ref(owner)
    del owner
    assert plan.keep is alive()
    del plan
    gc.collect()
    assert alive() is None


def test_arena_grows_to_the_largest_and_stays_one():
    _native.release_arenas()
    start = _native.arena_statistics()["bytes_held"]
    for size in (100, 100_000, 1000, 50_000):
        plan = Plan(1, (Slot(0, (1,), (1,), F32),), (increment(0, 1, 1),), (), arena_bytes=size)
        plan([torch.ones(1)])
    statistics = _native.arena_statistics()
    assert statistics["free_blocks"] == 1
    assert 100_000 <= statistics["bytes_held"] - start < 110_000


def test_profile_times_each_step():
    steps = (increment(0, 1, 4), Call(torch.neg, (Ref(1),), {}, (2,)), Free((1,)))
    plan = Plan(1, (Fresh((4,), (1,), F32), Made()), steps, (2,))
    (out,), times = plan.profile([torch.ones(4)])
    assert out.tolist() == [-2.0] * 4
    assert len(times) == 3 and all(time >= 0 for time in times) and times[1] > 0
    with pytest.raises(TypeError, match="one list"):
        plan.profile(3)
