"""native.lower.attention: attention over short sequences as two products and a softmax between them.

Torch's flash kernel never has all scores in memory, which is what long sequences need. Scores that fit into the caches are computed
faster by products of our own (decision 0030): the softmax is one kernel over rows that it finds there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import torch

from argand.native.ir.tensor import ExternCall, Node, TensorArgument, TensorMeta
from argand.native.ir.types import DType, contiguous_strides
from argand.native.lower.context import Lowering, LoweringContext, NotLowered
from argand.sizes.expressions import SizeInt

MOST_SCORES: Final = 1 << 20  # 4 MB: with more, softmax waits for memory
NARROWEST: Final = 16  # keys and elements of a head below which panels of products are mostly empty
_LARGEST: Final = 3.4028234663852886e38  # of float32
FEWEST: Final = 16  # queries; fewer read keys and values once, which the flash kernel does as well


def _attention(
    c: LoweringContext,
    query: Node,
    key: Node,
    value: Node,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Node | None = None,
    scale: float | None = None,
) -> tuple[Node, Node]:
    """Attention and the logarithm of its sums, which a backward pass reads."""
    if dropout or causal:
        raise NotLowered
    if _is_single(query, key, value, attn_mask):
        return _single(c, (query, key, value), attn_mask, scale)
    if attn_mask is not None or not _is_short(query, key, value):
        raise NotLowered
    build, (batch, heads, queries, size), keys = c.build, query.shape, key.shape[2]
    fakes = c.arguments[:3]
    steps = [tuple(fake.stride()) for fake in fakes]
    turned = build.permute(key, (0, 1, 3, 2))
    shape = (batch, heads, queries, keys)
    scores = _product(
        c, (query, turned), (steps[0], _swapped(steps[1])), shape, contiguous_strides(shape)
    )
    scaled = c.op("mul", scores, 1 / math.sqrt(size) if scale is None else float(scale))
    largest = build.reduce("amax", scaled, (3,))
    powers = c.op("exp", c.op("sub", scaled, build.keep_dims(largest, shape, (3,))))
    total = build.reduce("sum", powers, (3,))
    share = c.op("div", 1.0, total)  # one quotient for a row
    weights = c.op("mul", powers, build.keep_dims(share, shape, (3,)))
    out = _product(
        c,
        (weights, value),
        (contiguous_strides(shape), steps[2]),
        query.shape,
        c.result[0].stride(),
    )
    return out, c.op("add", largest, c.op("log", total))


def _single(
    c: LoweringContext, operands: tuple[Node, Node, Node], mask: Node | None, scale: float | None
) -> tuple[Node, Node]:
    """One query: scores are sums in loops over keys where they lie; what makes keys fuses."""
    build, (query, key, value) = c.build, operands
    scores = build.reduce("sum", c.op("mul", query, key), (3,))
    scores = build.keep_dims(scores, key.shape, (3,))  # along dimension 2 from here on
    size = query.shape[3]
    scores = c.op("mul", scores, 1 / math.sqrt(size) if scale is None else float(scale))
    if mask is not None:
        scores = c.op("add", scores, build.permute(mask, (0, 1, 3, 2)))
    largest = build.keep_dims(build.reduce("amax", scores, (2,)), scores.shape, (2,))
    largest = c.op("max", largest, -_LARGEST)  # without any key all powers are 0, and so is the sum
    powers = c.op("exp", c.op("sub", scores, largest))
    total = build.keep_dims(build.reduce("sum", powers, (2,)), scores.shape, (2,))
    share = c.op("div", 1.0, c.op("max", total, 1.0))  # the largest power alone is 1
    weights = build.permute(c.op("mul", powers, share), (0, 1, 3, 2))
    layouts = (contiguous_strides(weights.shape), tuple(c.arguments[2].stride()))
    out = _product(c, (weights, value), layouts, query.shape, c.result[0].stride())
    return out, build.reduce("sum", c.op("add", largest, c.op("log", total)), (3,))


def _is_single(query: Node, key: Node, value: Node, mask: Node | None) -> bool:
    """Whether there is one query, as when a model writes: scores are few whatever the keys are."""
    if {query.dtype, key.dtype, value.dtype} != {DType.F32} or isinstance(query.shape[3], SizeInt):
        return False
    if mask is not None and (mask.dtype is not DType.F32 or len(mask.shape) != 4):
        return False
    one = not isinstance(query.shape[2], SizeInt) and query.shape[2] == 1
    return one and key.shape[:2] == query.shape[:2] and value.shape == key.shape


def _is_short(query: Node, key: Node, value: Node) -> bool:
    sizes = (*query.shape, *key.shape, *value.shape)
    if any(isinstance(n, SizeInt) for n in sizes) or {query.dtype, key.dtype, value.dtype} != {
        DType.F32
    }:
        return False
    (batch, heads, queries, size), (other, groups, keys, _) = query.shape, key.shape
    if (other, groups) != (batch, heads) or value.shape != key.shape:
        return False
    few = queries < FEWEST or min(keys, size) < NARROWEST
    return not few and batch * heads * queries * keys <= MOST_SCORES


def _swapped(strides: tuple[int, ...]) -> tuple[int, ...]:
    return (*strides[:2], strides[3], strides[2])


def _product(
    c: LoweringContext,
    operands: tuple[Node, Node],
    layouts: tuple[tuple[int, ...], tuple[int, ...]],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> Node:
    """A product of four-dimensional operands, where they lie."""
    spec = TensorMeta(shape, tuple(strides), torch.float32, DType.F32)
    arguments = (TensorArgument(0), TensorArgument(1))
    call = ExternCall(torch.ops.aten.bmm.default, arguments, {}, layouts, (spec,), True)
    extern = c.build.node("extern", operands, (), None, call)
    return c.build.node("item", (extern,), shape, DType.F32, 0)


TABLE: Final[Mapping[str, Lowering]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention
}
