"""native.ir.strides: read a chain of views directly as a strided piece of memory."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, final

from argand.native.ir.tensor import Node, NodeKind
from argand.native.ir.types import Shape, at_least, contiguous_strides, divides
from argand.support.dataclass import dataclass


@final
@dataclass(frozen=True, slots=True, eq=False)
class Strided:
    """Elements of ``leaf``'s memory: ``offset + sum(stride * coordinate)``."""

    leaf: Node
    strides: Shape
    offset: int


def source_of(node: Node) -> Node:
    """The node under all views."""
    while node.kind is NodeKind.VIEW:
        node = node.inputs[0]
    return node


def strided(node: Node, leaf_strides: Callable[[Node], Shape | None]) -> Strided | None:
    """How a view reads the memory of its source; None when that needs a copy or has no memory."""
    chain: list[Node] = []
    while node.kind is NodeKind.VIEW:
        chain.append(node)
        node = node.inputs[0]
    strides = leaf_strides(node)
    if strides is None:
        return None
    offset = 0
    for view in reversed(chain):
        if view.op == "reshape":
            found = _reshape_strides(view.inputs[0].shape, strides, view.shape)
            if found is None:
                return None
            strides = found
            continue
        forms: Any = view.attribute
        steps = [0] * len(view.shape)
        for form, stride in zip(forms, strides, strict=True):
            offset += form.constant * stride
            for dim, coefficient in form.terms:
                steps[dim] += coefficient * stride
        strides = tuple(steps)
    return Strided(node, strides, offset)


def _reshape_strides(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Strides of a reshape that needs no copy, or None."""
    if 0 in wanted:
        return contiguous_strides(wanted)
    old = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    result = [0] * len(wanted)
    dim = len(wanted) - 1
    # Walk runs of old dimensions that lie densely behind each other, filling new ones from the end.
    while old:
        size, step = old.pop()
        base, run = step, size
        while old and old[-1][1] == run * base:
            run *= old.pop()[0]
        left = run
        while left > 1 and dim >= 0:
            if not divides(wanted[dim], left):
                return None
            result[dim] = base
            base *= wanted[dim]
            left //= wanted[dim]
            dim -= 1
        if left != 1:
            return None
    return tuple(result) if all(wanted[d] == 1 for d in range(dim + 1)) else None


def same_layout(shape: Shape, first: Shape, second: Shape) -> bool:
    """Whether two stride tuples address the same elements; sizes 0 and 1 do not matter."""
    return 0 in shape or all(
        a == b for size, a, b in zip(shape, first, second, strict=True) if size != 1
    )


def with_unit_steps(shape: Shape, strides: Shape) -> Shape:
    """The strides with those of sizes of one as torch's `unsqueeze` has them, where a chain of views lost them.

    No element is found by them, but torch's kernels hand them on to their results.
    """
    steps = list(strides)
    for dim in reversed(range(len(shape))):
        if shape[dim] == 1 and steps[dim] == 0:
            steps[dim] = steps[dim + 1] * shape[dim + 1] if dim + 1 < len(shape) else 1
    return tuple(steps)


def _steps(shape: Shape, strides: Shape, fits: Callable[[int, int], bool]) -> bool:
    """Whether each stride fits the memory that the dimensions inside of it span."""
    step = 1
    for stride, size in sorted(
        (stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1
    ):
        if not fits(stride, step):
            return False
        step = stride * size
    return True


def apart(shape: Shape, strides: Shape) -> bool:
    """Whether no two elements share memory."""
    return _steps(shape, strides, at_least)


def dense(shape: Shape, strides: Shape) -> bool:
    """Whether the strides are those of a permuted contiguous tensor: writable without holes."""
    return _steps(shape, strides, operator.eq)
