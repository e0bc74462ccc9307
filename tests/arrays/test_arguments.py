"""Arrays of numpy as arguments and results: guards, shared memory, what is left to numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import argand
from argand.support import events
from tests.arrays.compared import difference


def line(count: int = 4, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(count, dtype=dtype)


def test_the_native_backend_computes_them() -> None:
    def function(a: np.ndarray, b: np.ndarray) -> Any:
        return np.tanh(a @ b.T).sum(axis=1), (a * 2).max()

    a = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    compiled = argand.compile(function, fullgraph=True)
    for _ in range(2):
        assert not difference(function(a, a[::-1].copy()), compiled(a, a[::-1].copy()))


def test_types_shapes_and_strides_are_guarded() -> None:
    compiled = argand.compile(lambda a: np.sin(a) * 2, fullgraph=True)
    for a in (
        line(),
        line(5),
        line(6, np.float64),
        line(4, np.int32),
        line(6).reshape(2, 3),
        line(6).reshape(2, 3).T,
    ):
        for _ in range(2):
            assert not difference(np.sin(a) * 2, compiled(a))


def test_a_size_that_changes_is_left_open() -> None:
    with events.collect() as seen:
        compiled = argand.compile(lambda a: (a + 1).sum(axis=0), fullgraph=True)
        for rows in range(2, 9):
            a = np.ones((rows, 3), np.float32)
            assert not difference((a + 1).sum(axis=0), compiled(a))
    assert seen.total("capture.graphs") == 2


def test_another_class_is_another_program() -> None:
    compiled = argand.compile(lambda a: a * 2)
    assert not difference(line() * 2, compiled(line()))
    assert compiled([1, 2]) == [1, 2, 1, 2]
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    assert type(compiled(masked)) is np.ma.MaskedArray


def test_an_argument_is_written_to() -> None:
    def function(a: np.ndarray) -> np.ndarray:
        a[0] = 7
        a += 1
        np.multiply(a, 2, out=a)
        return a

    a = line()
    compiled = argand.compile(function, fullgraph=True)
    assert compiled(a) is a
    assert a.tolist() == [16, 4, 6, 8]
    assert compiled(a) is a and a.tolist() == [16, 10, 14, 18]


def test_arrays_and_tensors_share_memory() -> None:
    def function(x: torch.Tensor) -> Any:
        a = x.numpy()
        a[0] = 5
        return x * 2, a, torch.from_numpy(a)

    x = torch.zeros(3)
    doubled, array, tensor = argand.compile(function, fullgraph=True)(x)
    assert x.tolist() == [5, 0, 0] and doubled.tolist() == [10, 0, 0]
    array[1] = 3
    assert x.tolist() == [5, 3, 0] and tensor.tolist() == [5, 3, 0]


def test_views_of_an_argument_are_views() -> None:
    a = line(6)
    part, turned = argand.compile(lambda a: (a[1:3], a.reshape(2, 3).T), fullgraph=True)(a)
    part[0] = 50
    assert a[1] == 50 and turned[1, 0] == 50


def test_a_number_is_a_copy() -> None:
    def function(a: np.ndarray) -> Any:
        first = a[0]
        a[0] = 9
        return first, a

    first, a = argand.compile(function, fullgraph=True)(line() + 1)
    assert type(first) is np.float32 and first == 1 and a[0] == 9


def test_arguments_that_overlap() -> None:
    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a += 1
        return b * 2

    for compiled in (function, argand.compile(function)):
        a = line(6)
        results = [compiled(a[:4], a[2:]) for _ in range(2)]
        assert results[-1].tolist() == [8, 10, 8, 10]


def test_one_array_twice() -> None:
    compiled = argand.compile(lambda a, b: (a is b, a + b))
    a = line()
    assert compiled(a, a)[0] and not compiled(a, a.copy())[0]


def test_errors_are_numpys() -> None:
    compiled = argand.compile(lambda a, b: a + b)
    with pytest.raises(ValueError, match="broadcast"):
        compiled(line(3), line(4))
    with pytest.raises(IndexError):
        argand.compile(lambda a, i: a[i])(line(3), np.array([5]))
    with pytest.raises(OverflowError):
        argand.compile(lambda a: a + 300)(line(3, np.uint8))
    with pytest.raises(TypeError):
        argand.compile(lambda a: a - a)(line(2, bool))


def test_an_errstate_that_raises_is_seen() -> None:
    compiled = argand.compile(lambda a: 1 / a)
    with np.errstate(divide="ignore"):
        assert compiled(line())[0] == np.inf
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        compiled(line())


def test_a_replaced_function_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(a: np.ndarray) -> Any:
        return np.sin(a)

    compiled = argand.compile(function)
    compiled(line())
    monkeypatch.setattr(np, "sin", np.cos)
    assert not difference(np.cos(line()), compiled(line()))


def test_what_torch_has_no_tensor_for() -> None:
    read_only = line()
    read_only.flags.writeable = False
    compiled = argand.compile(lambda a: a + a)
    for a in (
        line(4, np.uint16),
        line(4, np.longdouble),
        line()[::-1],
        read_only,
        np.array(["a"], object),
    ):
        for _ in range(2):
            found, expected = compiled(a), a + a
            assert found.dtype == expected.dtype and (found == expected).all()
    assert compiled(line(4, ">f4")).dtype == np.dtype("f4")


def test_random_numbers_stay_numpys() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        noise = np.random.rand(3).astype(np.float32)
        return x.sin() + torch.from_numpy(noise * 2)

    compiled = argand.compile(function)
    for call in (function, compiled):
        np.random.seed(0)
        results = [call(torch.ones(3)) for _ in range(3)]
    np.random.seed(0)
    assert all(torch.allclose(found, function(torch.ones(3))) for found in results)


def test_arrays_live_across_a_break() -> None:
    def function(a: np.ndarray) -> Any:
        b = np.sin(a) + a.sum()
        view = b[1:]
        argand.graph_break()
        view[0] = 4
        return b * 2, a.max(), b[0]

    assert not difference(function(line()), argand.compile(function)(line()))


def test_values_are_not_looked_at() -> None:
    """Texts, truths, comparisons of containers and C functions see numbers, never what a fake holds."""
    import copy
    import math

    programs: list[Any] = [
        lambda a: (str(a * 2), f"{a[0]}", repr(a + 1)),
        lambda a: 1 if a.sum() > 3 else 2,
        lambda a: [1 for _ in range(int(a[2]))],
        lambda a: (math.fsum(a + 1), sum(a), max(a), min(a), sorted(a * -1)),
        lambda a: [a[0], a[1]] == [a[0], a[1]],
        lambda a: a[1] in [a[0], a[2]],
        lambda a: copy.deepcopy(a) + 1,
        lambda a: ((a + 1).tolist(), (a * 2).tobytes(), bytes(a + 1)),
        lambda a: {a[0]: 1},
        lambda a: list(a) + [x * 2 for x in a],
        lambda a: (float(a[1]), int(a[2]), a[1].item(), round(a[1])),
        lambda a: dict(zip("abcd", a, strict=True)),
        lambda a: a.data.nbytes + a.nbytes,
        lambda a: memoryview(a * 2).tolist(),
        lambda a: torch.ones(4) * a[1] + torch.tensor(a * 2),
    ]
    for program in programs:
        compiled = argand.compile(program)
        for shift in range(2):
            assert not difference(program(line() + shift), compiled(line() + shift))


def test_numbers_of_numpy_as_arguments() -> None:
    def function(x: torch.Tensor, a: np.ndarray, factor: Any) -> Any:
        return x * float(factor), a * factor, a + np.float64(2)

    compiled = argand.compile(function)
    for factor in (np.float32(2), np.float64(2), np.int8(3), np.float32(4)):
        arguments = torch.ones(2), line(), factor
        assert not difference(function(*arguments), compiled(*arguments))


def test_gradients_stop_at_arrays() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.from_numpy(np.abs(x.detach().numpy()))

    x, y = (torch.tensor([1.0, -2.0, 3.0], requires_grad=True) for _ in range(2))
    function(x).sum().backward()
    argand.compile(function, fullgraph=True)(y).sum().backward()
    assert torch.equal(x.grad, y.grad)
    with pytest.raises(RuntimeError, match="requires grad"):
        argand.compile(lambda x: x.numpy())(y)
