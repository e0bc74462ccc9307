"""tests.arrays.compared: a function of numpy's, run by numpy and as a graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

import argand

DTYPES: Final = (
    "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
)
_TOLERANCE: Final = {"float16": 3e-3, "float32": 3e-5, "complex64": 3e-5}


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """An array with the numbers that go wrong: limits, zeros with signs, infinities, nan."""
    kind, random = np.dtype(dtype), np.random.default_rng(seed)
    count = int(np.prod(shape))
    if kind.kind == "c":
        return (
            (random.normal(size=count) + 1j * random.normal(size=count)).astype(kind).reshape(shape)
        )
    pool: list[Any] = [0, 1]
    if kind.kind in "iu":
        pool = [0, 1, 2, 3, 7, 100, np.iinfo(kind).max, np.iinfo(kind).min]
        pool += [-1, -3] if kind.kind == "i" else []
    if kind.kind == "f":
        pool = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.3, np.nan, np.inf, -np.inf, 100.0, 1e-3, 0.1]
    return (
        np.array([pool[i] for i in random.integers(0, len(pool), count)])
        .astype(kind)
        .reshape(shape)
    )


def tame(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """An array of small numbers, for sums."""
    random = np.random.default_rng(seed)
    values = random.normal(size=shape) * (1 if np.dtype(dtype).kind in "fc" else 5)
    return abs(values).astype(dtype) if np.dtype(dtype).kind == "u" else values.astype(dtype)


def difference(expected: Any, found: Any) -> str:
    """What differs: classes, types, shapes, strides, values; empty if nothing does."""
    if type(expected) is not type(found):
        return f"class {type(expected).__name__}, not {type(found).__name__}"
    if isinstance(expected, list | tuple):
        return next((text for text in map(difference, expected, found) if text), "")
    if isinstance(expected, torch.Tensor):
        return difference(expected.numpy(), found.numpy())
    if not isinstance(expected, np.ndarray | np.generic):
        return "" if expected == found else f"{expected}, not {found}"
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return f"{expected.dtype}{expected.shape}, not {found.dtype}{found.shape}"
    steps = zip(expected.shape, expected.strides, found.strides, strict=True)
    if expected.size and any(n > 1 and first != second for n, first, second in steps):
        return f"strides {expected.strides}, not {found.strides}"
    tolerance = 0 if expected.dtype.kind in "biu" else _TOLERANCE.get(expected.dtype.name, 1e-10)
    close = np.allclose(
        expected, found, rtol=tolerance, atol=tolerance, equal_nan=expected.dtype.kind in "fc"
    )
    return "" if close else f"{expected}, not {found}"


def captured(function: Callable[..., Any], *args: Any, backend: str = "eager") -> str:
    """ "one graph", "left" for a break, or what differs from numpy."""
    argand.reset()
    with np.errstate(all="ignore"):
        try:
            expected: Any = function(*copy.deepcopy(args))
        except Exception as error:
            expected = error
        try:
            given = copy.deepcopy(args)
            found = argand.compile(function, backend=backend, fullgraph=True)(*given)
        except argand.CaptureError:
            return "left"
        except Exception as error:
            return "" if type(error) is type(expected) else f"{expected!r}, not {error!r}"
    if isinstance(expected, Exception):
        return f"{expected!r}, not {found!r}"
    return difference(expected, found) or "one graph"
