"""runtime.described: a plan described for people: what each step is, how many bytes it moves, whose lines it computes.

In: the rows of a plan, the user's lines of its steps, example inputs. Out: plain values, and the plan, which counts its own time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

import torch

from argand.runtime import _native
from argand.runtime.launch import DTYPE_NUMBERS, SYMBOL
from argand.runtime.plans import BufferKind, Detached, Row, Rows, StepKind

_SIZES: Final = {number: dtype.itemsize for dtype, number in DTYPE_NUMBERS.items()}
# What no fusion makes faster: products, convolutions, attention, by the names of operators and of our kernels.
_HEAVY: Final = (
    ("attention", re.compile(r"attention|_flash_|flex")),
    ("convolution", re.compile(r"convolution|conv\d|depthwise|^pack\d")),
    (
        "product",
        re.compile(
            r"(^|[._])(mm|addmm|bmm|baddbmm|matmul|linear|einsum)\b|_product|linear_pointwise"
        ),
    ),
)


def describe_plan(
    plan: _native.Plan, rows: Rows, origins: Sequence[Sequence[str]], inputs: Sequence[Any]
) -> dict[str, Any]:
    """What a report keeps of a plan."""
    numbers = _numbers(rows, inputs)
    bytes_of = _Bytes(rows, inputs, numbers)
    lines = origins or [()] * len(rows.steps)
    steps = [_step(row, at, bytes_of) for row, at in zip(rows.steps, lines, strict=True)]
    return {"plan": plan, "steps": steps, "arena": _resolved(rows.arena_bytes, numbers)}


def _step(row: Row, origins: Sequence[str], bytes_of: _Bytes) -> dict[str, Any]:
    name, moved = _name(row), 0
    if row[0] in (StepKind.KERNEL, StepKind.PRODUCT):
        moved = sum(map(bytes_of, dict.fromkeys(row[1])))
    elif row[0] == StepKind.CALL:
        read = [item[1] for item in row[3] if item[0] == 1]
        moved = sum(map(bytes_of, dict.fromkeys((*read, *(n for n in row[1] if n >= 0)))))
    kind = (
        "free"
        if row[0] == StepKind.FREE
        else "keep"
        if row[0] == StepKind.KEEP
        else _kind(row, name)
    )
    return {"name": name, "kind": kind, "bytes": moved, "origins": list(origins)}


def _kind(row: Row, name: str) -> str:
    heavy = next((kind for kind, pattern in _HEAVY if pattern.search(name)), None)
    return heavy or {StepKind.KERNEL: "kernel", StepKind.NESTED: "flow"}.get(row[0], "torch")


def _name(row: Row) -> str:
    match row:
        case (StepKind.KERNEL, _, str() as name, *_):
            return name
        case (StepKind.PRODUCT, operands, _, _, table, *_):
            return ("b" if tuple(table[:2]) != (1, 1) else "") + (
                "addmm" if len(operands) == 4 else "mm"
            )
        case (StepKind.CALL, _, function, *_):
            function = function.target if isinstance(function, Detached) else function
            return str(
                function if isinstance(function, torch._ops.OpOverload) else _called(function)
            )
        case (StepKind.FREE, *_):
            return "free"
        case (StepKind.NESTED, _, kind, *_):
            return ("cond", "loop", "while")[kind]
        case _:
            return "weights kept"


def _called(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _numbers(rows: Rows, inputs: Sequence[Any]) -> list[int]:
    """The numbers of a plan, for the sizes of the examples."""
    found: list[int] = []
    for kind, left, right in rows.numbers:
        if kind < 3:
            value = inputs[left] if left < len(inputs) else None
            if isinstance(value, torch.Tensor):
                found.append(int((value.shape if kind == 0 else value.stride())[right]))
            else:
                found.append(int(value) if isinstance(value, int) else 0)
            continue
        a, b = _resolved(left, found), _resolved(right, found)
        found.append(
            (a + b, a - b, a * b, a // b if b else 0, a % b if b else 0, min(a, b), max(a, b))[
                kind - 3
            ]
        )
    return found


def _resolved(number: int, numbers: Sequence[int]) -> int:
    return numbers[number - SYMBOL] if number < SYMBOL + len(numbers) else number


class _Bytes:
    """How large the buffers of a plan are."""

    def __init__(self, rows: Rows, inputs: Sequence[Any], numbers: Sequence[int]) -> None:
        self.rows, self.inputs, self.numbers = rows, inputs, numbers

    def __call__(self, number: int) -> int:
        """The bytes of a buffer's elements."""
        return self._of(number, None)

    def _of(self, number: int, sizes: Any) -> int:
        if number < self.rows.inputs:
            value = self.inputs[number] if number < len(self.inputs) else None
            if not isinstance(value, torch.Tensor):
                return 0
            return value.element_size() * (value.numel() if sizes is None else self._count(sizes))
        kind, dtype, base, _, own, _, value = self.rows.buffers[number - self.rows.inputs]
        if kind == BufferKind.VIEW:
            return self._of(base, own if sizes is None else sizes)
        if isinstance(value, torch.Tensor):
            return value.element_size() * (value.numel() if sizes is None else self._count(sizes))
        if kind in (BufferKind.OBJECT, BufferKind.INTEGER, BufferKind.MARKS):
            return 0
        return _SIZES.get(dtype, 4) * self._count(own if sizes is None else sizes)

    def _count(self, sizes: Sequence[int]) -> int:
        return math.prod(_resolved(size, self.numbers) for size in sizes)
