"""native.passes.simplify: algebra that changes no bit of any result, NaN and signed zeros included.

Before:  %1 = neg(%0);  %2 = neg(%1);  %3 = exp(%2)
After:   %1 = exp(%0)

Each right side has fewer or cheaper nodes than its left, so one bottom-up round reaches the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from argand.native.ir.builder import Builder
from argand.native.ir.tensor import Graph, Node
from argand.native.ir.types import DType
from argand.native.passes.rewrite import rewrite


class Rule(NamedTuple):
    """A law, on the ops it starts from."""

    name: str
    law: str
    ops: tuple[str, ...]
    apply: Callable[[Builder, Node], Node | None]


def _is(node: Node, value: float) -> bool:
    return node.op == "constant" and node.attribute == value


def _sized(build: Builder, node: Node, like: Node) -> Node:
    return node if node.shape == like.shape else build.expand(node, like.shape)


def _unit(build: Builder, node: Node) -> Node | None:
    left, right = node.inputs
    if _is(right, 1):
        return _sized(build, left, node)
    return _sized(build, right, node) if node.op == "mul" and _is(left, 1) else None


def _subtract_zero(build: Builder, node: Node) -> Node | None:
    zero = node.inputs[1]
    positive = _is(zero, 0) and math.copysign(1, float(zero.attribute)) > 0  # type: ignore[arg-type]
    return _sized(build, node.inputs[0], node) if positive else None


def _add_zero(build: Builder, node: Node) -> Node | None:
    left, right = node.inputs
    if node.dtype is None or node.dtype.is_float:
        return None  # -0.0 + 0.0 is 0.0
    if _is(right, 0):
        return _sized(build, left, node)
    return _sized(build, right, node) if _is(left, 0) else None


def _twice(build: Builder, node: Node) -> Node | None:
    inner = node.inputs[0]
    return inner.inputs[0] if inner.op == node.op else None


def _once(build: Builder, node: Node) -> Node | None:
    inner = node.inputs[0]
    return inner if inner.op == node.op else None


def _same_arms(build: Builder, node: Node) -> Node | None:
    condition, yes, no = node.inputs
    if yes is no:
        return _sized(build, yes, node)
    if condition.op == "constant":
        return _sized(build, yes if condition.attribute else no, node)
    return None


def _divide_by_power_of_two(build: Builder, node: Node) -> Node | None:
    left, right = node.inputs
    if right.op != "constant" or node.dtype not in (DType.F32, DType.F64):
        return None
    value = float(right.attribute)  # type: ignore[arg-type]
    if not value or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    if not 2.0**-100 < abs(value) < 2.0**100:
        return None  # the reciprocal must be a normal number
    return build.pointwise("mul", left, build.constant(1 / value, node.dtype, right.shape))


_WIDER: Final = {
    DType.F16: (DType.F32, DType.F64),
    DType.BF16: (DType.F32, DType.F64),
    DType.F32: (DType.F64,),
    DType.BOOL: tuple(DType),
    DType.U8: (DType.I16, DType.I32, DType.I64, DType.F32, DType.F64),
    DType.I8: (DType.I16, DType.I32, DType.I64, DType.F32, DType.F64),
    DType.I16: (DType.I32, DType.I64, DType.F32, DType.F64),
    DType.I32: (DType.I64, DType.F64),
}


def _cast_there_and_back(build: Builder, node: Node) -> Node | None:
    middle = node.inputs[0]
    if middle.op != "cast" or node.dtype is None or middle.dtype is None:
        return None
    start = middle.inputs[0]
    if start.dtype is None or middle.dtype not in _WIDER.get(start.dtype, ()):
        return None
    return build.cast(start, node.dtype) if start.dtype is node.dtype else None


_IDEMPOTENT: Final = ("abs", "floor", "ceil", "trunc", "rint")
RULES: Final = (
    Rule("unit", "x * 1 == x / 1 == x", ("mul", "div"), _unit),
    Rule("subtract_zero", "x - 0 == x", ("sub",), _subtract_zero),
    Rule("add_zero", "x + 0 == x for integers", ("add",), _add_zero),
    Rule("twice", "-(-x) == x, ~~x == x", ("neg", "not"), _twice),
    Rule("once", "|(|x|)| == |x|; rounded numbers round to themselves", _IDEMPOTENT, _once),
    Rule(
        "same_arms", "select(c, x, x) == x; a constant condition chooses", ("select",), _same_arms
    ),
    Rule("divide", "x / 2^k == x * 2^-k", ("div",), _divide_by_power_of_two),
    Rule(
        "cast_back", "a cast to a wider type and back is nothing", ("cast",), _cast_there_and_back
    ),
)
_BY_OP: Final = {op: tuple(r for r in RULES if op in r.ops) for r in RULES for op in r.ops}


def _all(name: str) -> bool:
    return True


def simplify(graph: Graph, applies: Callable[[str], bool] = _all) -> Graph:
    """Apply every rule once, bottom up; ``applies`` says which ones, by name."""

    def rule(build: Builder, node: Node) -> Node | None:
        for row in _BY_OP.get(node.op, ()):
            found = row.apply(build, node) if applies(row.name) else None
            if found is not None:
                return found
        return None

    return rewrite(graph, rule)
