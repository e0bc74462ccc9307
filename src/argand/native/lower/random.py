"""native.lower.random: operators that draw random numbers, each from a seed of torch's generator.

The seed is drawn by torch in every call (so torch.manual_seed makes runs equal), the numbers are a
function of the seed and of the element's place (codegen.math.random). They are not eager's
numbers; the option ``fallback_random`` keeps torch's own kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from argand.native.ir.tensor import ExternCall, Node, TensorSpec
from argand.native.ir.types import DType, contiguous_strides
from argand.native.lower.context import Context, Lowering, NotLowered, Scalar
from argand.native.lower.views import iota

_SEED: Final = TensorSpec((1,), (1,), torch.int64, DType.I64)


def _draw(c: Context, kind: str, dtype: DType) -> Node:
    """Random numbers in the shape of the result; a call of its own, so never merged with another."""
    arguments = (-(2**63), 2**63 - 1, (1,))
    call = ExternCall(
        torch.ops.aten.randint.low, arguments, {"dtype": torch.int64}, (), (_SEED,), True
    )
    extern = c.build.node("extern", (), (), None, call)
    seed = c.build.reshape(c.build.node("item", (extern,), (1,), DType.I64, 0), ())
    index = c.build.constant(0, DType.I64, c.shape)
    for dim, step in enumerate(contiguous_strides(c.shape)):
        index = c.op("add", index, c.op("mul", iota(c, c.shape, dim), step))
    return c.build.node(kind, (seed, index), c.shape, dtype)


def _wide(c: Context) -> DType:
    if not c.dtype.is_float:
        raise NotLowered
    return DType.F64 if c.dtype is DType.F64 else DType.F32


def _factory(kind: str) -> Lowering:
    def lower(c: Context, *_: Any, generator: object = None, **__: Any) -> Node:
        if generator is not None:
            raise NotLowered
        return _draw(c, kind, _wide(c))

    return lower


def _bernoulli(c: Context, x: Node, p: Scalar, generator: object = None) -> Node:
    if generator is not None or not 0 <= p <= 1:
        raise NotLowered
    return c.op("lt", _draw(c, "uniform", DType.F32), float(p))


def _native_dropout(c: Context, x: Node, p: float, train: bool | None) -> tuple[Node, Node]:
    if train is False or not c.dtype.is_float or not 0 <= p < 1:
        raise NotLowered
    kept = c.op("ge", _draw(c, "uniform", DType.F32), float(p))
    return c.where(kept, c.op("mul", x, 1 / (1 - p)), 0.0), kept


TABLE: Final[Mapping[str, Lowering]] = {
    "aten.rand.default": _factory("uniform"),
    "aten.rand_like.default": _factory("uniform"),
    "aten.randn.default": _factory("normal"),
    "aten.randn_like.default": _factory("normal"),
    "aten.bernoulli.p": _bernoulli,
    "aten.native_dropout.default": _native_dropout,
}
