"""Decompositions against eager: values, shapes and dtypes, over calls that torch's op database makes.

As a script it runs the whole database: ``python -m ops.test_decompositions`` in tests/.
"""

from __future__ import annotations

import collections
import sys
import warnings
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import argand
from argand.ops.decompositions import decompositions
from argand.ops.fakes import FakeMode

from .sweep import Compare, any_special, sweep

RANDOM = {"native_dropout"}
# Sums of other order, other formulas for the same function: a few units in the last place.
TOLERANCE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (2e-5, 5e-5),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (2e-3, 2e-3),
}


class Expand(TorchDispatchMode):
    """Decomposes everything to the end, as the compiler will; an op must not come back to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[Any] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        assert func not in self.open, f"{func} decomposes into itself"
        if func in decompositions():
            self.open.append(func)
            try:
                with self:
                    result = decompositions()[func](*args, **kwargs)
            finally:
                self.open.pop()
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)


class CompareValues(Compare):
    """Runs each op's decomposition beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.per_op: collections.Counter[str] = collections.Counter()
        self.kept: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        function = decompositions().get(func) if func in decompositions() else None
        name = func.name()[6:]
        if function is None or any_special(args) or self.per_op[name] > 400:
            return func(*args, **kwargs)
        self.per_op[name] += 1
        copies = copied(args)
        real = func(*args, **kwargs)
        try:
            with Expand() as expand:
                expand.open.append(func)
                ours = function(*copies, **kwargs)
            if ours is NotImplemented:
                self.kept[name] += 1
                return real
            if name not in RANDOM:
                try:
                    check(ours, real)
                except AssertionError:
                    check_no_worse(ours, real, func(*widened(args), **kwargs))
                check(copies, args, layout=False)  # what the op writes on the side
            self.right[name] += 1
        except Exception as error:
            self.wrong[name].append((args, kwargs, error))
        return real


def copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if 0 in value.stride():
            return value.clone()
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(copied, value))
    return value


def strides(tensor: torch.Tensor) -> list[int]:
    """Those that matter."""
    sizes = zip(tensor.shape, tensor.stride())
    return [step for size, step in sizes if size > 1] if tensor.numel() else []


def check(ours: Any, real: Any, layout: bool = True) -> None:
    if isinstance(real, (list, tuple)):
        assert len(ours) == len(real)
        for part, expected in zip(ours, real):
            check(part, expected, layout)
    elif isinstance(real, torch.Tensor):
        assert ours.shape == real.shape, (ours.shape, real.shape)
        assert ours.dtype == real.dtype, (ours.dtype, real.dtype)
        assert not layout or strides(ours) == strides(real), (
            ours.shape,
            ours.stride(),
            real.stride(),
        )
        rtol, atol = TOLERANCE.get(real.dtype, (1e-5, 1e-5))
        torch.testing.assert_close(
            ours, real, rtol=rtol, atol=atol, equal_nan=True, check_stride=False
        )


def widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16):
        return value.float()
    if value in (torch.bfloat16, torch.float16):
        return torch.float32
    return type(value)(map(widened, value)) if isinstance(value, (list, tuple)) else value


def check_no_worse(ours: Any, real: Any, exact: Any) -> None:
    """Half-precision kernels that round in the middle: ours must be as near to the truth."""
    if isinstance(real, (list, tuple)):
        for parts in zip(ours, real, exact):
            check_no_worse(*parts)
    elif isinstance(real, torch.Tensor):
        assert real.dtype in (torch.bfloat16, torch.float16) and ours.dtype == real.dtype
        rtol, atol = TOLERANCE[real.dtype]
        allowed = (real.float() - exact).abs() + atol + rtol * exact.abs()
        assert bool(((ours.float() - exact).abs() <= allowed).logical_or(exact.isnan()).all())


def compare(dtypes: list[str], limit: int, layouts: list[str]) -> CompareValues:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    mode = CompareValues()
    sweep("", dtypes, limit, layouts, mode)
    return mode


def report(mode: CompareValues, show: int) -> str:
    lines = []
    for name, cases in sorted(mode.wrong.items()):
        lines.append(f"{name}: {len(cases)} wrong, {mode.right[name]} right")
        for args, kwargs, error in cases[:show]:
            shapes = [(tuple(a.shape), a.dtype) if isinstance(a, torch.Tensor) else a for a in args]
            lines.append(
                f"    {shapes} {kwargs}\n        {type(error).__name__}: {str(error)[:300]}"
            )
    return "\n".join(lines)


@pytest.mark.parametrize("dtypes", [["f32"], ["bf16", "i64"]])
def test_decompositions_equal_eager(dtypes: list[str]) -> None:
    mode = compare(dtypes, 3, ["same", "transposed"] if dtypes == ["f32"] else ["same"])
    assert not mode.wrong, report(mode, 2)
    assert sum(mode.right.values()) > 300


def test_the_mapping_names_ops_that_exist() -> None:
    table = decompositions()
    overloads = list(table)
    assert len(overloads) == len(table) > 150
    assert all(func in table and callable(table[func]) for func in overloads)
    assert torch.ops.aten.mm.default not in table


def test_decompositions_run_on_fakes() -> None:
    with FakeMode():
        x = torch.zeros(4, 8, dtype=torch.bfloat16)
        result, mean, _ = decompositions()[torch.ops.aten.native_layer_norm.default](
            x, [8], None, None, 1e-5
        )
        assert result.dtype == torch.bfloat16 and mean.shape == (4, 1)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "NAdam", "Adamax"])
def test_optimizers_decompose_and_stay_equal(kind: str) -> None:
    options = {"momentum": 0.9} if kind == "SGD" else {}

    def train(mode: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        weights = [torch.randn(3, 4, requires_grad=True), torch.randn(5, requires_grad=True)]
        optimizer = getattr(torch.optim, kind)(weights, lr=0.1, foreach=True, **options)
        for _ in range(3):
            for weight in weights:
                weight.grad = weight.detach().sin()
            with mode:
                optimizer.step()
        return weights

    types = Compare()
    expected = train(types)
    assert not types.wrong and not any("foreach" in name for name in types.missing)
    for ours, eager in zip(train(Expand()), expected):
        torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("other", [torch.uint16, torch.int64, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_xlogy_computes_in_the_common_type(dtype, other):
    x, y = torch.tensor([0, 1, 2, 3]).to(dtype), torch.tensor([0, 1, 2, 5]).to(other)
    argand.reset()
    for left, right in ((x, y), (y, x)):
        result = argand.compile(
            lambda a, b: torch.xlogy(a, b), options={"measure": False, "cache": False}
        )(left, right)
        torch.testing.assert_close(result, torch.xlogy(left, right))


if __name__ == "__main__":
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    whole = compare(sys.argv[1].split(","), limit, ["same", "transposed"])
    print(report(whole, 2))
    unreached = {f.name()[6:] for f in decompositions()} - set(whole.right) - set(whole.wrong)
    print("not reached:", *sorted(unreached))
    print("kept:", dict(whole.kept))
    print(sum(whole.right.values()), "right,", sum(map(len, whole.wrong.values())), "wrong")
