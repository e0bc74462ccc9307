"""Torch's kernels as plan steps: every layout BLAS takes, and those it does not, equal eager."""

import pytest
import torch

from argand.native import extern
from argand.runtime.launch import Call, Fresh, Made, Product
from tests.launch.plans import Plan

aten = torch.ops.aten


def run(target, tensors, *scalars, out=None, out_strides=None, **kwargs):
    """One operator on tensors, through a plan; (result, step)."""
    expected = target(*tensors, *scalars, **kwargs) if out is None else out
    operands = [
        extern.Operand(i, tuple(t.shape), t.stride(), t.dtype) for i, t in enumerate(tensors)
    ]
    strides = out_strides or expected.stride()
    result = extern.Operand(len(tensors), tuple(expected.shape), strides, expected.dtype)
    args = (*operands, *scalars)
    into = extern.preallocates(target, args, kwargs, (result,))
    layout = (result.sizes, result.strides, result.dtype)
    steps = extern.make_extern(target, args, kwargs, (result,))
    plan = Plan(len(tensors), (Fresh(*layout) if into else Made(*layout),), steps, (result.id,))
    (actual,) = plan(list(tensors))
    assert actual.stride() == strides or actual.numel() <= 1 or 1 in actual.shape
    torch.testing.assert_close(actual, expected)
    return actual, steps[0]


def layouts(rows, columns, dtype=torch.float32):
    """Matrices of one shape in several strides; the last is one that BLAS cannot read."""
    yield torch.randn(rows, columns, dtype=dtype)
    yield torch.randn(columns, rows, dtype=dtype).t()
    yield torch.randn(rows, columns + 3, dtype=dtype)[:, 1 : columns + 1]
    yield torch.randn(columns + 2, rows, dtype=dtype).t()[:, 2:]
    yield torch.randn(rows, 2 * columns, dtype=dtype)[:, ::2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 4, 6), (6, 4, 1), (5, 1, 4), (1, 1, 1)])
def test_mm_in_every_layout(shape, dtype):
    m, k, n = shape
    for left in layouts(m, k, dtype):
        for right in layouts(k, n, dtype):
            run(aten.mm.default, (left, right))


def test_contiguous_mm_is_a_blas_call():
    _, step = run(aten.mm.default, (torch.randn(3, 4), torch.randn(4, 5)))
    assert isinstance(step, Product)


def test_mm_into_a_column_major_result():
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    _, step = run(aten.mm.default, (a, b), out_strides=(1, 3))
    assert isinstance(step, Product)


@pytest.mark.parametrize("bias", [(5,), (1, 5), (3, 5), (3, 1), (1,), ()])
def test_addmm_with_every_bias(bias):
    tensors = (torch.randn(bias), torch.randn(3, 4), torch.randn(4, 5))
    _, step = run(aten.addmm.default, tensors)
    assert isinstance(step, Product)
    run(aten.addmm.default, tensors, alpha=0.5, beta=2)
    run(aten.addmm.default, tensors, alpha=-1)


def test_addmm_into_a_column_major_result():
    tensors = (torch.randn(5), torch.randn(3, 4), torch.randn(4, 5))
    run(aten.addmm.default, tensors, out_strides=(1, 3))


def test_beta_zero_ignores_the_bias():
    bias = torch.full((5,), torch.nan)
    actual, _ = run(aten.addmm.default, (bias, torch.ones(3, 4), torch.ones(4, 5)), beta=0)
    assert not actual.isnan().any()


@pytest.mark.parametrize("batch", [1, 2, 33])
def test_bmm_and_baddbmm(batch):
    a, b = torch.randn(batch, 3, 4), torch.randn(batch, 5, 4).transpose(1, 2)
    _, step = run(aten.bmm.default, (a, b))
    assert isinstance(step, Product)
    run(aten.bmm.default, (a.expand(batch, 3, 4), torch.randn(1, 4, 5).expand(batch, 4, 5)))
    for bias in (torch.randn(batch, 3, 5), torch.randn(1, 5), torch.randn(batch, 1, 5)):
        run(aten.baddbmm.default, (bias, a, b), alpha=2)


def test_empty_products_go_to_torch():
    _, step = run(aten.mm.default, (torch.randn(3, 0), torch.randn(0, 5)))
    assert isinstance(step, Call)
    run(aten.mm.default, (torch.randn(0, 4), torch.randn(4, 5)))
    run(aten.bmm.default, (torch.randn(0, 3, 4), torch.randn(0, 4, 5)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64])
def test_other_types_go_to_torch(dtype):
    a, b = torch.randint(0, 5, (3, 4)).to(dtype), torch.randint(0, 5, (4, 5)).to(dtype)
    _, step = run(aten.mm.default, (a, b))
    assert isinstance(step, Call)


def test_large_addmm_fills_in_parallel():
    tensors = (torch.randn(700), torch.randn(300, 20), torch.randn(20, 700))
    run(aten.addmm.default, tensors)


def test_strides_the_compiler_believed_in():
    x = torch.randn(2, 3, 4, 5)
    run(aten.relu.default, (x,), out_strides=(60, 1, 15, 3))


def test_lists_of_tensors_and_many_results():
    x, y = torch.randn(2, 3), torch.randn(4, 3)
    operands = [extern.Operand(i, (n, 3), (3, 1), x.dtype) for i, n in enumerate((2, 4))]
    out = extern.Operand(2, (6, 3), (3, 1), x.dtype)
    values = extern.Operand(3, (6, 2), (2, 1), x.dtype)
    steps = (
        *extern.make_extern(aten.cat.default, (operands, 0), {}, (out,)),
        *extern.make_extern(aten.topk.default, (out, 2), {"largest": False}, (values, None)),
    )
    buffers = (Made((6, 3), (3, 1), x.dtype), Made((6, 2), (2, 1), x.dtype))
    (actual,) = Plan(2, buffers, steps, (3,))([x, y])
    torch.testing.assert_close(actual, torch.cat([x, y]).topk(2, largest=False).values)


def test_bmm_of_attention_heads_needs_no_copy():
    """[batch, tokens, heads, width] seen as [batch, heads, tokens, width]: no 3-d view exists."""
    x, y = torch.randn(3, 5, 4 * 6), torch.randn(3, 5, 4 * 6)
    heads = (3, 4, 5, 6)
    strides = (5 * 24, 6, 24, 1)
    left = extern.Operand(0, heads, strides, torch.float32)
    right = extern.Operand(1, (3, 4, 6, 5), (5 * 24, 6, 1, 24), torch.float32)
    scores = extern.Operand(2, (12, 5, 5), (25, 5, 1), torch.float32)
    values = extern.Operand(1, heads, strides, torch.float32)
    out = extern.Operand(3, heads, strides, torch.float32)
    steps = (
        *extern.make_extern(aten.bmm.default, (left, right), {}, (scores,)),
        *extern.make_extern(aten.bmm.default, (scores, values), {}, (out,)),
    )
    assert all(isinstance(step, Product) for step in steps)
    buffers = (
        Fresh((12, 5, 5), (25, 5, 1), torch.float32),
        Fresh((3, 5, 24), (120, 24, 1), torch.float32),
    )
    (actual,) = Plan(2, buffers, steps, (3,))([x, y])
    q, k = (t.view(3, 5, 4, 6).transpose(1, 2) for t in (x, y))
    expected = (q @ k.transpose(2, 3) @ k).transpose(1, 2).reshape(3, 5, 24)
    torch.testing.assert_close(actual, expected)
