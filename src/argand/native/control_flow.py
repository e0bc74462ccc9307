"""native.control_flow: conditions and loops as steps of a launch plan.

In: a node of an aten graph whose operator takes graphs, and these compiled. Out: ``Flow``, the target of an extern call,
which becomes one ``launch.Nested`` step: C runs the plans of the graphs on memory of the plan around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch
import torch.fx
from typing_extensions import override

from argand.ops.control_flow import COND, SCAN, WHILE_LOOP
from argand.ops.layout import contiguous
from argand.runtime import launch
from argand.runtime.plans import NestedPlan
from argand.support.dataclass import dataclass

# kinds of buffers that a branch may give back: fresh, constant, made by a call
_SUITABLE: Final = (0, 2, 3)
CompileBody = Callable[[torch.fx.GraphModule], NestedPlan]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """A condition or a loop over compiled bodies."""

    kind: launch.NestedKind
    bodies: tuple[NestedPlan, ...]
    carries: int = 0
    reversed: tuple[bool, ...] = ()  # of each operand that is sliced: from the end

    @override
    def __str__(self) -> str:
        return self.kind.name.lower()

    def step(self, args: Sequence[Any], outputs: Sequence[Any]) -> launch.Nested:
        """The step; ``args`` are the condition (or None) and then the inputs of the bodies."""
        condition, operands = args[0], list(args[1:])
        carried, count = self.carries, 0
        sliced = operands[carried : carried + len(self.reversed)]
        rest = operands[carried + len(sliced) :]
        if sliced:
            count = sliced[0].sizes[0]
        rows = [_slice(value, back) for value, back in zip(sliced, self.reversed, strict=True)]
        first = range(carried)
        inputs = (*(_place(launch.PlaceKind.CARRY, k) for k in first), *rows, *map(_whole, rest))
        results = [_result(value, k, self) for k, value in enumerate(outputs)]
        carries = [
            launch.Carry(
                operands[k].id, outputs[k].id, _bytes(operands[k].sizes, operands[k].dtype)
            )
            for k in first
        ]
        return launch.Nested(
            kind=self.kind,
            bodies=self.bodies,
            inputs=inputs,
            outputs=tuple(results),
            carries=tuple(carries),
            condition=0 if condition is None else condition.id,
            count=count,
        )

    def scratch(self, shape: tuple[int, ...], number: int) -> tuple[int, ...]:
        """The sizes of the memory for a result that nobody reads: every round of a loop may use the same."""
        return (
            shape[1:] if self.kind is launch.NestedKind.LOOP and number >= self.carries else shape
        )


def _place(
    kind: launch.PlaceKind, number: int = 0, start: Any = 0, step: Any = 0, size: Any = 0
) -> launch.Place:
    return launch.Place(kind, number, start, step, size)


def _bytes(sizes: Sequence[int], dtype: torch.dtype) -> Any:
    return math.prod(sizes) * dtype.itemsize


def _slice(value: Any, back: bool) -> launch.Place:
    step = value.strides[0] * value.dtype.itemsize
    if not back:
        return _place(launch.PlaceKind.BUFFER, value.id, 0, step)
    return _place(launch.PlaceKind.BUFFER, value.id, (value.sizes[0] - 1) * step, -1 * step)


def _whole(value: Any) -> launch.Place:
    if isinstance(value, int):
        return _place(launch.PlaceKind.NUMBER, 0, value)
    return _place(launch.PlaceKind.BUFFER, value.id)


def _result(value: Any, number: int, flow: Flow) -> launch.Place:
    if number < flow.carries:
        return _place(launch.PlaceKind.CARRY, number, size=_bytes(value.sizes, value.dtype))
    if flow.kind is not launch.NestedKind.LOOP:
        return _place(launch.PlaceKind.BUFFER, value.id, size=_bytes(value.sizes, value.dtype))
    if value.one_row:
        return _place(launch.PlaceKind.BUFFER, value.id, size=_bytes(value.sizes, value.dtype))
    row = _bytes(value.sizes[1:], value.dtype)
    return _place(launch.PlaceKind.BUFFER, value.id, 0, row, row)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """An operand in another layout than its own: carries are dense, what is read from its end lies as the turned one."""

    source: torch.fx.Node
    strides: tuple[int, ...]


class Arguments(NamedTuple):
    """A call of an operator in order: what it is, the condition or None, and the inputs of its bodies."""

    flow: Flow
    condition: Any
    operands: list[Any]


def _dense(node: torch.fx.Node) -> Laid:
    return Laid(node, contiguous(tuple(node.meta["val"].shape)))


def _flipped(node: Any) -> bool:
    return (
        isinstance(node, torch.fx.Node)
        and node.target is torch.ops.aten.flip.default
        and list(node.args[1]) == [0]
    )


def arguments_of(
    node: torch.fx.Node, values: Mapping[Any, Any], compile_body: CompileBody
) -> Arguments | None:
    """A node in the form of a step; None when a body cannot be run on pointers, and torch runs the operator."""
    args: Any = node.args
    if node.target is COND:
        condition, graphs, operands, flow = (
            args[0],
            args[1:3],
            list(args[3]),
            launch.NestedKind.COND,
        )
        carried, backs = 0, []
    elif node.target is SCAN:
        condition, graphs, flow = None, args[:1], launch.NestedKind.LOOP
        backs = [_flipped(x) for x in args[2]]
        xs = [
            Laid(x.args[0], x.meta["val"].stride()) if back else x
            for x, back in zip(args[2], backs, strict=True)
        ]
        carried, operands = len(args[1]), [*map(_dense, args[1]), *xs, *args[3]]
    elif node.target is WHILE_LOOP:
        condition, graphs, flow = None, args[:2], launch.NestedKind.WHILE
        carried, operands, backs = len(args[2]), [*map(_dense, args[2]), *args[3]], []
    else:
        return None
    bodies = tuple(compile_body(values[graph]) for graph in graphs)
    if not all(map(_is_suitable, bodies)):
        return None
    return Arguments(Flow(flow, bodies, carried, tuple(backs)), condition, operands)


def _is_suitable(body: NestedPlan) -> bool:
    """Whether each result lies in memory of its own, dense."""
    inputs = body.rows.inputs
    return all(
        k < inputs or body.rows.buffers[k - inputs][0] in _SUITABLE for k in body.rows.returns
    )
