"""Stride and promotion rules against eager, on random layouts and dtypes."""

import itertools

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from argand.ops import layout
from argand.ops.fakes import infer

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
aten = torch.ops.aten


@st.composite
def tensors(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor that broadcasts to shape: permuted, with gaps, expanded, or with dims left out."""
    kept = shape[draw(st.integers(0, len(shape))) :]
    sizes = [draw(st.sampled_from([size, 1])) for size in kept]
    order = draw(st.permutations(range(len(sizes))))
    gap = draw(st.sampled_from([1, 1, 2]))
    stored = torch.ones([sizes[dim] * gap for dim in order], dtype=dtype)
    tensor = stored.permute([order.index(dim) for dim in range(len(sizes))])
    tensor = tensor[tuple(slice(None, None, gap) for _ in sizes)]
    return tensor.expand(kept) if draw(st.booleans()) else tensor


@st.composite
def operands(draw: st.DrawFn, count: int) -> list[torch.Tensor]:
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    return [draw(tensors(shape, draw(st.sampled_from(DTYPES)))) for _ in range(count)]


def metadata(tensor: torch.Tensor) -> tuple[object, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


@settings(max_examples=300, deadline=None, derandomize=True)
@given(operands(2))
def test_binary_ops(pair: list[torch.Tensor]) -> None:
    for func in (
        aten.mul.Tensor,
        aten.add.Tensor,
        aten.div.Tensor,
        aten.lt.Tensor,
        aten.atan2.default,
    ):
        assert metadata(infer(func, tuple(pair), {})) == metadata(func(*pair)), func


@settings(max_examples=200, deadline=None, derandomize=True)
@given(operands(3))
def test_where_and_numbers(triple: list[torch.Tensor]) -> None:
    condition, one, other = triple
    args = (condition > 0, one, other)
    assert metadata(infer(aten.where.self, args, {})) == metadata(aten.where.self(*args))
    for number in (2, 2.5, True):
        args = (one, number)
        assert metadata(infer(aten.mul.Tensor, args, {})) == metadata(aten.mul.Tensor(*args))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(operands(1), st.sampled_from([torch.float32, torch.int64, None]))
def test_unary_ops_and_copies(single: list[torch.Tensor], dtype: torch.dtype | None) -> None:
    (x,) = single
    for func in (aten.exp.default, aten.sign.default, aten.clone.default, aten.zeros_like.default):
        assert metadata(infer(func, (x,), {})) == metadata(func(x)), func
    kwargs = {} if dtype is None else {"dtype": dtype}
    assert metadata(infer(aten._to_copy.default, (x,), kwargs)) == metadata(
        aten._to_copy.default(x, **kwargs)
    )


def test_promotion_is_torchs() -> None:
    values = [
        *(torch.ones(2, dtype=dtype) for dtype in [*DTYPES, torch.float16, torch.complex64]),
        *(torch.ones((), dtype=dtype) for dtype in [*DTYPES, torch.float16, torch.complex64]),
        *(True, 2, 2.5, 2j),
    ]
    for one, other in itertools.product(values, values):
        if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
            assert layout.promote(one, other) == torch.result_type(one, other), (one, other)


@pytest.mark.parametrize("default", [torch.float64, torch.float32])
def test_integers_compute_in_the_default_dtype(default: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        x = torch.ones(2, dtype=torch.int64)
        assert infer(aten.exp.default, (x,), {}).dtype == default
        assert infer(aten.mul.Tensor, (x, 1.5), {}).dtype == default
        assert infer(aten.full.default, ([2], 1.5), {}).dtype == default
    finally:
        torch.set_default_dtype(before)


def test_large_fakes_leave_no_heap_behind():
    """malloc keeps what lies below something alive; then a process cannot be forked."""

    def data_bytes():
        line = next(line for line in open("/proc/self/status") if line.startswith("VmData"))
        return int(line.split()[1]) << 10

    before = data_bytes()
    large = layout.new((1 << 32,), (1,), dtype=torch.uint8)
    above = torch.empty(1 << 20)
    del large
    assert data_bytes() < before + (1 << 30), above.numel()
