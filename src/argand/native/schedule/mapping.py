"""native.schedule.mapping: coordinates of a consumer become coordinates of what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from argand.native.ir.affine import Affine, Var, linear
from argand.native.ir.tensor import Node, NodeKind
from argand.native.ir.types import Shape, contiguous_strides
from argand.native.schedule.demand import Demand

Coordinates: TypeAlias = tuple[Affine, ...]

_ZERO = Affine()


def broadcast_coordinates(coordinates: Coordinates, shape: Shape) -> Coordinates:
    """Where an input of this shape is read by a pointwise op at ``coordinates``."""
    offset = len(coordinates) - len(shape)
    return tuple(_ZERO if size == 1 else coordinates[d + offset] for d, size in enumerate(shape))


def reads(
    demand: Demand, node: Node, coordinates: Coordinates, operand: Coordinates | None
) -> list[tuple[Node, Coordinates]]:
    """The inputs a computed node pulls from, each with the place it is read at."""
    inputs = demand.inputs(node)
    if node.kind is NodeKind.REDUCE:
        assert operand is not None
        return [(inputs[0], operand)]
    listed = inputs[1:] if node.kind is NodeKind.GATHER else inputs
    return [(i, broadcast_coordinates(coordinates, i.shape)) for i in listed]


def view_coordinates(
    view: Node, coordinates: Coordinates, extents: Mapping[Var, int]
) -> Coordinates:
    """Where a view at ``coordinates`` reads its input; NotAffine when a reshape needs a split."""
    if view.op == "view":
        forms: Any = view.attribute
        values = dict(enumerate(coordinates))
        return tuple(form.substitute(values) for form in forms)
    index = linear(coordinates, contiguous_strides(view.shape))
    result: list[Affine] = []
    sizes = view.inputs[0].shape
    for position in range(len(sizes) - 1, -1, -1):
        if sizes[position] == 1 or 0 in sizes:
            result.append(_ZERO)
            continue
        if all(size == 1 for size in sizes[:position]):
            result.append(index)
            index = _ZERO
            continue
        index, rest = index.divide(sizes[position], extents)
        result.append(rest)
    return tuple(reversed(result))


def through_views(
    node: Node, coordinates: Coordinates, extents: Mapping[Var, int]
) -> tuple[Node, Coordinates]:
    """The source under all views and where it is read."""
    while node.kind is NodeKind.VIEW:
        coordinates = view_coordinates(node, coordinates, extents)
        node = node.inputs[0]
    return node, coordinates


def factors(form: Affine, size: int, extents: Mapping[Var, int]) -> list[Var] | None:
    """The variables of a form that counts 0..size-1 in mixed radix, innermost first, or None."""
    step, found = 1, []
    for var, coefficient in sorted(form.terms, key=lambda term: term[1]):
        if coefficient != step:
            return None
        step *= extents[var]
        found.append(var)
    return found if form.constant == 0 and step == size else None
