"""benchmarks.gpu.interpreter: Triton's interpreter, for kernels on CPU tensors.

``TRITON_INTERPRET=1`` must be set before Triton is imported: ``start`` sees to it. Three of its ways are mended here: a
reduction by a function of our own is done half by half instead of element by element (hours become seconds), ``tl.fma``
rounds once, as every GPU does, and what a comparison of two numbers gives is no number of their type.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np


def start() -> None:
    """Import Triton with its interpreter on."""
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.runtime import interpreter

    interpreter.InterpreterBuilder.binary_op = _binary(interpreter)  # type: ignore[method-assign]
    interpreter.ReduceOps.generic_reduce = _reduce_by_halves  # type: ignore[method-assign]
    interpreter.InterpreterBuilder.create_fma = _fma(interpreter.TensorHandle)  # type: ignore[method-assign]


def _reduce_by_halves(self: Any, inputs: Any) -> list[Any]:
    """All elements along an axis, which is a power of two long, by ``combine_fn`` on whole halves."""
    tensors, axis = self.unravel(inputs, self.axis)
    kinds = [tensor.dtype for tensor in tensors]
    parts = [np.moveaxis(tensor.handle.data, axis, 0) for tensor in tensors]
    while parts[0].shape[0] > 1:
        half = parts[0].shape[0] // 2
        left, right = [part[:half] for part in parts], [part[half:] for part in parts]
        wrapped = [
            self.to_tensor(np.ascontiguousarray(d), k)
            for side in (left, right)
            for d, k in zip(side, kinds, strict=True)
        ]
        joined = self.combine_fn.fn(*wrapped)
        parts = [one.handle.data for one in (joined if isinstance(joined, tuple) else (joined,))]
    results = [np.expand_dims(part[0], axis) if self.keep_dims else part[0] for part in parts]
    return [self.to_tensor(result, kind) for result, kind in zip(results, kinds, strict=True)]


def _binary(interpreter: Any) -> Any:
    plain, int1 = interpreter.InterpreterBuilder.binary_op, interpreter.tl.int1

    def binary_op(self: Any, left: Any, right: Any, op: Any) -> Any:
        result = plain(self, left, right, op)
        return (
            interpreter.TensorHandle(result.data, int1) if result.data.dtype == np.bool_ else result
        )

    return binary_op


def _fma(handle: Any) -> Any:
    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        wide = np.float64 if x.data.dtype == np.float32 else np.longdouble
        exact = x.data.astype(wide) * y.data.astype(wide) + z.data.astype(wide)
        return handle(exact.astype(x.data.dtype), z.dtype.scalar)

    return create_fma
