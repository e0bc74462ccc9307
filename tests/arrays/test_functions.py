"""Functions of numpy on arrays, in a graph and by numpy itself: classes, types, shapes, strides and values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from argand.capture.rules.arrays.table import ELEMENTWISE
from tests.arrays.compared import DTYPES, captured, difference, numbers, tame

# numpy's and torch's own, which tell of what the programs here do on purpose
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("function", ELEMENTWISE, ids=lambda function: function.__name__)
def test_elementwise(function: Any) -> None:
    """Each row over all types: an answer of the graph is numpy's, whatever else is left to numpy."""
    outcomes = set()
    for number, dtype in enumerate(DTYPES):
        first = numbers(dtype, (3, 4), number)
        if function.nin == 1:
            outcomes.add(captured(lambda a: function(a), first))
            continue
        outcomes.add(captured(lambda a, b: function(a, b), first, numbers("float32", (4,), 7)))
        outcomes.add(captured(lambda a, b: function(a, b), first, numbers(dtype, (2, 3, 4), 8)))
        outcomes.add(captured(lambda a: function(a, 2), first))
        outcomes.add(captured(lambda a: function(2.5, a), first))
    assert outcomes <= {"one graph", "left"}
    assert "one graph" in outcomes


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda a: (
        a.sum(),
        a.sum(axis=0),
        np.sum(a, axis=(0, 1)),
        a.sum(axis=-1, keepdims=True),
    ),
    "sum_as": lambda a: np.sum(a, axis=0, dtype=np.float64),
    "prod": lambda a: (a.prod(axis=0), np.prod(a, axis=1, keepdims=True)),
    "mean": lambda a: (a.mean(), a.mean(axis=1), np.mean(a, axis=0, keepdims=True)),
    "std": lambda a: (
        a.std(),
        np.std(a, axis=0),
        a.std(axis=1, ddof=1),
        np.var(a, axis=1, keepdims=True),
    ),
    "extremes": lambda a: (
        a.max(),
        a.min(axis=0),
        np.max(a, axis=1, keepdims=True),
        np.amin(a, axis=(0, 1)),
    ),
    "positions": lambda a: (a.argmax(), np.argmin(a, axis=0), np.argmax(a, axis=1, keepdims=True)),
    "truths": lambda a: (a.any(), np.all(a, axis=0), a.any(axis=1, keepdims=True)),
    "cumulated": lambda a: (
        np.cumsum(a),
        np.cumsum(a, axis=0),
        a.cumsum(axis=1),
        np.cumprod(a, axis=0),
    ),
    "ptp": lambda a: np.ptp(a, axis=0),
    "norm": lambda a: (np.linalg.norm(a, axis=1), np.linalg.norm(a), np.linalg.norm(a, 1, axis=0)),
}
SHAPES: dict[str, Callable[..., Any]] = {
    "reshape": lambda a: (a.reshape(4, 3), a.reshape((2, -1)), np.reshape(a, 12), a.T.reshape(12)),
    "ravel": lambda a: (a.ravel(), a.T.ravel(), a.flatten(), np.ravel(a)),
    "turns": lambda a: (
        a.T,
        a.transpose(1, 0),
        np.transpose(a),
        np.swapaxes(a, 0, 1),
        np.moveaxis(a, 0, -1),
    ),
    "dims": lambda a: (
        np.expand_dims(a, 1),
        np.squeeze(a[None]),
        a[:, None, :1].squeeze(axis=1),
        a[..., None],
    ),
    "joins": lambda a: (
        np.concatenate([a, a * 2], axis=1),
        np.stack([a, a]),
        np.vstack([a, a]),
        np.hstack([a, a]),
    ),
    "flat_join": lambda a: np.concatenate([a, a], axis=None),
    "cuts": lambda a: (np.split(a, 3), np.split(a, [1, 2], axis=1)),
    "moves": lambda a: (
        np.roll(a, 1),
        np.roll(a, 1, axis=1),
        np.tile(a, (2, 1)),
        np.repeat(a, 2, axis=0),
    ),
    "triangles": lambda a: (np.tril(a), np.triu(a, 1)),
    "diff": lambda a: (np.diff(a), np.diff(a, axis=0)),
    "where": lambda a: (
        np.where(a > 0, a, 0),
        np.where(a > 0, 1.5, a),
        np.where(a > 0, a, a.astype(np.float64)),
    ),
    "clip": lambda a: (np.clip(a, 0, 2), a.clip(1, 3), np.clip(a, None, 2), np.clip(a, 1, a)),
    "round": lambda a: (np.round(a), a.round()),
    "sort": lambda a: (np.sort(a), np.sort(a, axis=0), np.argsort(a, axis=1, kind="stable")),
    "types": lambda a: (
        a.astype(np.float64),
        a.astype("float32"),
        a.astype(bool),
        a.astype(np.int32),
    ),
    "likes": lambda a: (
        np.zeros_like(a),
        np.ones_like(a, dtype=np.int16),
        np.full_like(a, 3),
        np.copy(a),
    ),
    "asarray": lambda a: (
        np.asarray(a),
        np.array(a),
        np.asarray(a, dtype=np.float64),
        np.asarray([1, 2]),
    ),
    "factories": lambda a: (
        a + np.ones(4),
        a * np.arange(4),
        a + np.eye(3, 4),
        np.zeros((2, 2)),
        np.linspace(0, 1, 5),
    ),
    "products": lambda a: (
        a @ a.T,
        np.dot(a, a.T),
        a.dot(a[0]),
        np.matmul(a, a[1]),
        np.outer(a[0], a[1]),
    ),
    "inner": lambda a: (a[0] @ a[1], np.einsum("ij,kj->ik", a, a), np.einsum("ij,ij->", a, a)),
    "indices": lambda a: (
        a[0],
        a[1, 2],
        a[1:, ::2],
        a[:, [0, 2]].copy(),
        a[np.array([2, 0])],
        a[-1, ...],
        a[0, 0, ...],
    ),
    "numbers": lambda a: (
        a[0, 0] + 1,
        a[0, 0] * a,
        np.sin(a[0, 0]),
        a.sum() / 2,
        a[0, 0] > 0,
        -a[0, 1],
    ),
    "operators": lambda a: (a + a, a - 1.5, 2 * a, a / 2, a**2, -a, abs(a), a > 0, a == a, +a),
    "whole_operators": lambda a: (a // 2, a % 3, a & 1, a | 2, a ^ a, ~a, a << 1, a >> 1),
    "attributes": lambda a: (
        a.shape,
        a.ndim,
        a.size,
        a.itemsize,
        a.dtype,
        a.T.shape,
        len(a),
        a.dtype == np.float32,
    ),
    "iteration": lambda a: [row + i for i, row in enumerate(a)],
    "classes": lambda a: (
        isinstance(a, np.ndarray),
        type(a),
        type(a[0, 0]),
        isinstance(a[0, 0], np.floating),
    ),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    """Over all types."""
    outcomes = {
        dtype: captured(REDUCTIONS[name], tame(dtype, (3, 4), i)) for i, dtype in enumerate(DTYPES)
    }
    assert set(outcomes.values()) <= {"one graph", "left"}, outcomes
    assert outcomes["float32"] == outcomes["float64"] == "one graph"


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    """Over all types."""
    outcomes = {
        dtype: captured(SHAPES[name], tame(dtype, (3, 4), i)) for i, dtype in enumerate(DTYPES)
    }
    assert set(outcomes.values()) <= {"one graph", "left"}, outcomes
    assert outcomes["int64" if name.startswith("whole") else "float32"] == "one graph"


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min", "any", "all"])
def test_extremes_of_odd_numbers(name: str) -> None:
    """Not-a-numbers, infinities and equal numbers."""
    for dtype in DTYPES:
        for seed in range(3):
            outcome = captured(lambda a: getattr(a, name)(axis=0), numbers(dtype, (5, 6), seed))
            assert outcome in {"one graph", "left"}, (dtype, outcome)


@pytest.mark.parametrize(
    "operation", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt"]
)
def test_promotion(operation: str) -> None:
    """An array of each type beside one of each other, and beside numbers of Python's and of numpy's."""
    function = getattr(operator, operation)
    others: list[Any] = [tame(dtype, (4,), 3) + np.dtype(dtype).type(1) for dtype in DTYPES]
    others += [3, 2.5, True, np.float32(1.5), np.float64(2), np.int8(3), np.int64(4)]
    for dtype in DTYPES:
        for other in others:
            outcome = captured(lambda a, b: function(a, b), tame(dtype, (3, 4), 1), other)
            assert outcome in {"one graph", "left"}, (dtype, other, outcome)


def test_difference_sees() -> None:
    """The comparison tells types, classes and values apart."""
    one = np.ones(2, np.float32)
    assert (
        difference(one, one.astype(np.float64))
        and difference(one, one + 1)
        and difference(one, [1.0, 1.0])
    )
    assert difference(np.float32(1), np.array(1, np.float32)) and not difference(one, one.copy())
