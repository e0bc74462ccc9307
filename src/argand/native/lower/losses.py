"""native.lower.losses: the loss that looks up the score of each sample's class.

Taken apart into aten ops it would be a gather, whose index out of range is another error than that of a class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from argand.native.ir.affine import Affine
from argand.native.ir.tensor import Lookup, Node
from argand.native.ir.types import DType
from argand.native.lower.context import Lowering, LoweringContext, NotLowered, in_float
from argand.runtime.marks import OutOfRange

_NONE, _MEAN = 0, 1  # the numbers of torch's Reduction


def _pick(c: LoweringContext, table: Node, classes: Node, axis: int) -> Node:
    """The element of each sample's class along an axis."""
    forms: list[Affine | Lookup] = [Affine.of(d) for d in range(len(table.shape) - 1)]
    forms.insert(axis, Lookup(1, OutOfRange.TARGET))
    return c.gather((table, classes), classes.shape, table.dtype, tuple(forms))


def _nll_loss(
    c: LoweringContext,
    scores: Node,
    target: Node,
    weight: Node | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Node, Node]:
    if 0 in scores.shape or target.dtype is not DType.I64:
        raise NotLowered
    axis = 0 if len(scores.shape) == 1 else 1
    counted = c.op("ne", target, ignore_index)
    classes = c.where(counted, target, 0)
    if weight is None:
        weights = c.build.cast(counted, c.dtype)
    else:
        weights = c.where(counted, c.node(_pick(c, weight, classes, 0)), 0)
    picked = _pick(c, scores, classes, axis)
    # An ignored sample is no sample: where, not a product, so that its nan or inf stays out.
    losses = c.where(counted, c.op("mul", c.op("neg", picked), weights), 0)
    if reduction == _NONE and len(scores.shape) > 1:
        return losses, c.build.constant(0.0, c.dtype)
    dims = tuple(range(len(target.shape)))
    summed, total = (
        c.build.reduce("sum", part, dims) if dims else part for part in (losses, weights)
    )
    return (c.op("div", summed, total) if reduction == _MEAN else summed), total


TABLE: Final[Mapping[str, Lowering]] = {
    "aten.nll_loss_forward.default": in_float(_nll_loss),
    "aten.nll_loss2d_forward.default": in_float(_nll_loss),
}
