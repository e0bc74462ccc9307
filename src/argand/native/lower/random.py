"""native.lower.random: draws as pointwise functions of a seed and the number of the element.

One call of torch per run draws the seeds of all random ops of the graph, so runs are reproducible
under ``torch.manual_seed``, and numbers do not depend on threads (codegen.math.random). They are not
eager's numbers; the option ``fallback_random`` calls torch's kernels, which give those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from argand.native.ir.tensor import Node
from argand.native.ir.types import DType, Shape, numel
from argand.native.lower.context import Lowering, LoweringContext, NotLowered
from argand.native.lower.views import iota


def _draw(
    c: LoweringContext, kind: str, shape: Shape, dtype: DType, generator: object = None
) -> Node:
    """Fresh random numbers; each draw of a graph has a seed of its own."""
    size = numel(shape)
    if c.options.fallback_random or generator is not None or size == 0:
        raise NotLowered
    if dtype.is_half or not dtype.is_float:
        raise NotLowered  # rounding to a half type could give 1.0
    seed = c.build.node("seed", (), (), DType.I64, c.build.count("seed"))
    index = c.build.reshape(iota(c, (size,), 0), shape)
    return c.build.node(kind, (seed, index), shape, dtype)


def _factory(kind: str) -> Lowering:
    def lower(c: LoweringContext, *_: object, generator: object = None, **__: object) -> Node:
        return _draw(c, kind, c.shape, c.dtype, generator)

    return lower


def _bernoulli(c: LoweringContext, x: Node, p: float, *, generator: object = None) -> Node:
    chance = c.build.constant(p, DType.F32)
    return c.node(c.op("lt", _draw(c, "uniform", c.shape, DType.F32, generator), chance))


def _dropout(c: LoweringContext, x: Node, p: float, train: bool | None = None) -> tuple[Node, Node]:
    if train is False or not c.dtype.is_float:
        raise NotLowered
    mask = c.op("lt", _draw(c, "uniform", x.shape, DType.F32), 1.0 - p)
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    return c.op("mul", c.op("mul", c.node(x), c.node(mask)), scale), mask


def _between(kind: str) -> Lowering:
    """uniform(x, low, high) and normal(x, mean, std): a draw, scaled and shifted."""

    def lower(
        c: LoweringContext,
        x: Node,
        first: float = 0.0,
        second: float = 1.0,
        *,
        generator: object = None,
    ) -> Node:
        scale = second - first if kind == "uniform" else second
        draw = _draw(c, kind, c.shape, c.dtype, generator)
        return c.op("add", c.op("mul", draw, scale), first)

    return lower


TABLE: Final[Mapping[str, Lowering]] = {
    **{f"aten.{n}.default": _factory("uniform") for n in ("rand", "rand_like")},
    **{f"aten.{n}.default": _factory("normal") for n in ("randn", "randn_like")},
    "aten.bernoulli.p": _bernoulli,  # where tensors are the chances, torch's kernel looks whether they are any
    "aten.native_dropout.default": _dropout,
    "aten.uniform.default": _between("uniform"),
    "aten.normal_functional.default": _between("normal"),
}
