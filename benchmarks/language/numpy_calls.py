"""benchmarks.language.numpy_calls: numpy on captured values, arrays and numpy scalars as arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.language.program import Compile, program, scenario


def array() -> tuple[np.ndarray]:
    """An array of floats."""
    return (np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),)


def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Two arrays."""
    return array()[0], array()[0][::-1].copy()


@program()
def through_numpy(x: Tensor) -> Tensor:
    """A tensor, numpy's sine, a tensor."""
    return torch.from_numpy(np.sin(x.numpy())) * 2


@program()
def as_tensor(x: Tensor) -> Tensor:
    """torch.as_tensor of an array."""
    return torch.as_tensor(np.exp(x.numpy()) + 1)


@program(array)
def array_argument(a: np.ndarray) -> np.ndarray:
    """Arrays in, arrays out."""
    return np.sin(a) + a**2


@program(arrays)
def two_arrays(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two arguments."""
    return np.maximum(a, b) * np.where(a > 0, a, b)


@program(arrays)
def array_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A matrix product."""
    return a @ b.T


@program(array)
def array_reductions(a: np.ndarray) -> tuple[Any, ...]:
    """Sums, means, extrema."""
    return a.sum(axis=0), np.mean(a, axis=1, keepdims=True), a.max(axis=1), np.argmax(a, axis=0)


@program(array)
def array_shapes(a: np.ndarray) -> np.ndarray:
    """Shapes and axes."""
    return np.concatenate([a.reshape(4, 3), np.transpose(a)], axis=1)


@program(array)
def array_to_tensor(a: np.ndarray) -> Tensor:
    """An array argument becomes a tensor."""
    return torch.from_numpy(a).softmax(-1)


@program(array)
def array_index(a: np.ndarray) -> np.ndarray:
    """Indices and slices."""
    return a[1:, ::2] + a[0, 0]


@program(array)
def array_written(a: np.ndarray) -> np.ndarray:
    """An array of the inside that is written to."""
    b = np.zeros_like(a)
    b[1:] = a[:-1]
    return b


@program(array)
def array_argument_written(a: np.ndarray) -> np.ndarray:
    """An argument that is written to."""
    a += 1
    return a * 2


@program(array)
def array_types(a: np.ndarray) -> np.ndarray:
    """Types of numpy."""
    return a.astype(np.float64) + np.arange(4, dtype=np.float64)


@program(array)
def array_comparison(a: np.ndarray) -> np.ndarray:
    """Masks."""
    return (a > 0) & (np.abs(a) < 0.5)


@program(array)
def array_factories(a: np.ndarray) -> np.ndarray:
    """Arrays that are made inside."""
    return a + np.ones((3, 1), dtype=np.float32) * np.eye(3, 4, dtype=np.float32)


@program(array)
def array_linalg(a: np.ndarray) -> np.ndarray:
    """Something of linalg."""
    return np.linalg.norm(a, axis=1)


@program(array)
def array_stack(a: np.ndarray) -> np.ndarray:
    """Stacks and broadcasts."""
    return np.stack([a, a * 2]).sum(axis=0) + np.expand_dims(a[0], 0)


@program(array)
def array_clip(a: np.ndarray) -> np.ndarray:
    """clip, round, sign, sqrt."""
    return np.clip(a, -0.5, 0.5) + np.sqrt(np.abs(a)) * np.sign(a)


@program(array)
def array_einsum(a: np.ndarray) -> np.ndarray:
    """einsum."""
    return np.einsum("ij,kj->ik", a, a)


@program(array)
def array_cumulative(a: np.ndarray) -> np.ndarray:
    """cumsum and diff."""
    return np.cumsum(a, axis=1)[:, 1:] - np.diff(a, axis=1)


@program(lambda: (torch.ones(3), np.float32(2.5)))
def scalar_argument(x: Tensor, factor: Any) -> Tensor:
    """A numpy scalar."""
    return x * float(factor)


@program(lambda: (torch.ones(3), np.float64(2.5)), lambda: (torch.ones(3), np.float64(3.5)))
def scalar_argument_changes(x: Tensor, factor: Any) -> Tensor:
    """A numpy scalar that changes."""
    return x * factor


@program(lambda: (torch.ones(3), np.int64(2)))
def integer_argument(x: Tensor, n: Any) -> Tensor:
    """A numpy integer as a size."""
    return x.expand(int(n), 3) + 1


@program()
def constant_array(x: Tensor) -> Tensor:
    """An array that is a constant of the program."""
    return x * torch.from_numpy(np.array([1.0, 2.0, 3.0, 4.0], dtype=np.float32))


@program()
def numpy_shapes(x: Tensor) -> Tensor:
    """numpy on sizes only."""
    return x.reshape(int(np.prod(x.shape))) * np.pi


@program()
def numpy_dtype(x: Tensor) -> Tensor:
    """Questions to numpy's types."""
    return x * float(np.finfo(np.float32).eps) + np.float32(1.5).item()


@scenario
def random_left_to_python(compile_: Compile) -> Any:
    """np.random draws what eager draws."""

    @compile_
    def run(x: Tensor) -> Tensor:
        return x + float(np.random.rand())

    return [run(torch.ones(2)) for _ in range(3)]


@scenario
def random_array(compile_: Compile) -> Any:
    """np.random fills an array."""

    @compile_
    def run(x: Tensor) -> Tensor:
        noise = torch.from_numpy(np.random.rand(2).astype(np.float32))
        return x.sin() + noise

    return [run(torch.ones(2)) for _ in range(3)]


@scenario
def decorated_numpy_function(compile_: Compile) -> Any:
    """A function of numpy alone: nearest centres."""

    def nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
        distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=-1)
        return np.argmin(distances, axis=1)

    points = np.arange(24, dtype=np.float32).reshape(12, 2) % 7
    return [compile_(nearest)(points, points[:3]) for _ in range(2)]


@program(lambda: (torch.randn(4, 4),), train=True)
def detached_numpy(x: Tensor) -> Tensor:
    """A detour that needs no gradient."""
    scale = torch.from_numpy(np.abs(x.detach().numpy()))
    return x * scale


@program(array)
def array_attributes(a: np.ndarray) -> Any:
    """shape, ndim, size, dtype, T."""
    return a.T * a.ndim + a.size, a.shape, a.dtype == np.float32


@program(array)
def array_tolist(a: np.ndarray) -> Any:
    """Numbers out of an array."""
    return (a * 2).tolist()
