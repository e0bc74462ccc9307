"""Plans whose sizes are known only at run time."""

import pytest
import torch

from argand.runtime.launch import (
    Call,
    Fresh,
    Integer,
    KernelStep,
    Made,
    Number,
    Product,
    Ref,
    Slot,
    Sym,
    View,
)
from tests.launch import kernels
from tests.launch.plans import Plan

F32 = torch.float32
ROWS, COLUMNS, COUNT = Sym(0), Sym(1), Sym(2)
SHAPE = (Number("size", 0, 0), Number("size", 0, 1), Number("mul", ROWS, COLUMNS))


def increment(source, target, total):
    return KernelStep(kernels.address(), (source, target), total, 1 << 30)


def test_one_plan_for_many_shapes():
    buffers = (
        Slot(0, (ROWS, COLUMNS), (COLUMNS, 1), F32),
        Fresh((ROWS, COLUMNS), (COLUMNS, 1), F32),
        View(2, (COLUMNS, ROWS), (1, COLUMNS)),
        Integer(COUNT),
    )
    steps = (increment(0, 1, COUNT), increment(1, 2, COUNT))
    numbers = (*SHAPE, Number("mul", COUNT, 4))
    plan = Plan(1, buffers, steps, (2, 3, 4), arena_bytes=Sym(3), numbers=numbers)
    for shape in ((2, 3), (5, 1), (40, 50), (0, 7), (1, 1)):
        x = torch.randn(shape)
        out, turned, count = plan([x])
        assert torch.equal(out, x + 1 + 1) and torch.equal(turned, (x + 1 + 1).t())
        assert count == x.numel() and out.stride() == x.stride()


def test_products_of_symbolic_shapes():
    inner = Sym(1)
    numbers = (Number("size", 0, 0), Number("size", 0, 1), Number("size", 1, 1))
    columns = Sym(2)
    step = Product(
        0,
        1,
        3,
        ROWS,
        columns,
        inner,
        inner,
        columns,
        columns,
        bias=2,
        beta=1.0,
        bias_strides=(0, 1),
    )
    plan = Plan(3, (Fresh((ROWS, columns), (columns, 1), F32),), (step,), (3,), numbers=numbers)
    for m, k, n in ((2, 3, 4), (1, 1, 1), (7, 5, 3), (3, 0, 4), (0, 2, 2)):
        a, b, bias = torch.randn(m, k), torch.randn(k, n), torch.randn(n)
        torch.testing.assert_close(plan([a, b, bias])[0], torch.addmm(bias, a, b))


def test_numbers_in_calls_and_kernels():
    numbers = (Number("size", 0, 0), Number("input", 1), Number("floordiv", Sym(0), Sym(1)))
    steps = (
        Call(torch.reshape, (Ref(0), [Sym(2), Sym(1)]), {}, (2,)),
        increment(2, 3, Sym(0)),
        KernelStep(kernels.address("add_size"), (3,), 1, 1, (Sym(2),)),
    )
    buffers = (Made((Sym(2), Sym(1)), (Sym(1), 1), F32), Fresh((Sym(0),), (1,), F32))
    plan = Plan(2, buffers, steps, (2, 3), numbers=numbers)
    reshaped, out = plan([torch.zeros(6), 3])
    assert reshaped.shape == (2, 3) and out.tolist() == [3, 1, 1, 1, 1, 1]
    with pytest.raises(ZeroDivisionError):
        plan([torch.zeros(6), 0])


@pytest.mark.parametrize(
    ("kind", "left", "right", "expected"),
    [
        ("add", 7, -3, 4),
        ("sub", 7, 10, -3),
        ("mul", -4, 5, -20),
        ("floordiv", -7, 2, -4),
        ("floordiv", 7, -2, -4),
        ("mod", -7, 3, 2),
        ("mod", 7, -3, -2),
        ("min", 3, -3, -3),
        ("max", 3, -3, 3),
    ],
)
def test_arithmetic_is_pythons(kind, left, right, expected):
    numbers = (Number("input", 0), Number("input", 1), Number(kind, Sym(0), Sym(1)))
    assert Plan(2, (Integer(Sym(2)),), (), (2,), numbers=numbers)([left, right]) == (expected,)


def test_strides_of_inputs():
    numbers = (Number("stride", 0, 0), Number("stride", 0, 1))
    plan = Plan(1, (Integer(Sym(0)), Integer(Sym(1))), (), (1, 2), numbers=numbers)
    assert plan([torch.ones(3, 4).t()]) == (1, 4)


def test_wrong_symbols_are_refused():
    with pytest.raises(ValueError, match="no number 3"):
        Plan(1, (Fresh((Sym(3),), (1,), F32),), (), (), numbers=SHAPE)
    with pytest.raises(ValueError, match="no number 1"):
        Plan(1, (), (), (), numbers=(Number("size", 0, 0), Number("add", Sym(1), 1)))
    with pytest.raises(ValueError, match="malformed number"):
        Plan(1, (), (), (), numbers=(Number("size", 4, 0),))
    with pytest.raises(TypeError, match="has no dimension 1"):
        Plan(1, (), (), (), numbers=SHAPE)([torch.ones(2)])
