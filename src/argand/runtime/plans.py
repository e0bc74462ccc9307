"""runtime.plans: the rows of a launch plan become the C object that runs them.

In: rows as ``runtime.launch`` makes them or a cache file holds them, with kernels by name, operators as
such and the graph's constants by name. Out: ``_native.Plan``. It knows nothing of how plans are made, so
that a warm start needs no more than this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch

from argand.customops import registry
from argand.runtime import _native
from argand.runtime.bindings import quickest
from argand.support.dataclass import dataclass

Row = tuple[Any, ...]


@final
class BufferKind:
    """Rows of buffers. The C code knows the numbers (plan.h), a test compares them."""

    FRESH, SLOT, OBJECT, MADE, VIEW, INTEGER, MARKS, KEPT = range(8)


@final
class StepKind:
    """Rows of steps, as above."""

    KERNEL, PRODUCT, CALL, FREE, NESTED, KEEP = range(6)


@final
class ArgumentKind:
    """Arguments of a Call, as above."""

    OBJECT, BUFFER, LIST, NUMBER = range(4)


class Rows(NamedTuple):
    """The arguments of the C object."""

    inputs: int
    buffers: tuple[Row, ...]
    steps: tuple[Row, ...]
    returns: tuple[int, ...]
    arena_bytes: int
    numbers: tuple[Row, ...] = ()
    given: tuple[Row, ...] = ()  # of a branch: what its inputs look like, which come as pointers


@final
@dataclass(frozen=True, slots=True, eq=False)
class NestedPlan:
    """The plan of a graph inside of another, with its kernels by name, and the code that has them."""

    rows: Rows
    functions: tuple[str, ...]
    code: bytes
    code_key: str


@final
class Detached:
    """An operator whose results share no memory with its arguments: the arena is used again."""

    __slots__ = ("target",)

    def __init__(self, target: Any) -> None:
        self.target = target

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it and copy what it returns."""
        result = self.target(*args, **kwargs)
        return _copied(result) if isinstance(result, torch.Tensor) else tuple(map(_copied, result))


def _copied(value: Any) -> Any:
    """A copy with the same strides, broadcast along the same dimensions."""
    if not isinstance(value, torch.Tensor):
        return value
    narrow = value[tuple(slice(0, None if stride else 1) for stride in value.stride())]
    copy = torch.empty_strided(narrow.shape, narrow.stride(), dtype=value.dtype).copy_(narrow)
    return copy.expand(value.shape)


def _linked(row: Row, addresses: Mapping[str, int]) -> Row:
    match row:
        case (0, ids, str() as name, *rest):
            return (0, ids, addresses[name], *rest)
        case (2, outputs, torch._ops.OpOverload() as op, *rest):
            return (2, outputs, quickest(op), *rest)
        case _:
            return row


def _label(row: Row) -> str | None:
    """What torch.profiler shows of a step; calls of torch's operators show themselves."""
    match row:
        case (0, _, str() as name, *_):
            return f"argand::{name}"
        case (1, operands, _, _, table, *_):
            batched, biased = tuple(table[:2]) != (1, 1), len(operands) == 4
            if biased:
                return "argand::baddbmm" if batched else "argand::addmm"
            return "argand::bmm" if batched else "argand::mm"
        case _:
            return None


_LINE: Final = re.compile(r'File "(?:[^"]*/)?([^"/]*)", line (\d+)')


def _placed(label: str | None, origins: Sequence[str]) -> str | None:
    """A label with the last of the user's lines it is of: what a kernel ends with names it best."""
    found = _LINE.findall(origins[-1]) if label and origins else []
    return f"{label} ({found[-1][0]}:{found[-1][1]})" if found else label


def link(
    rows: Rows, addresses: Mapping[str, int], keep: object, origins: Sequence[Sequence[str]] = ()
) -> _native.Plan:
    """The plan that runs; ``keep`` is whatever owns the machine code. ValueError on a bad id."""
    names = [row[2] for row in rows.steps if row[0] == 0 and isinstance(row[2], str)]
    custom = {name: registry.c_function(name) for name in names if name not in addresses}
    known = {**addresses, **{name: function.address for name, function in custom.items()}}
    steps = tuple([_linked(row, known) for row in rows.steps])
    keep = (keep, *custom.values()) if custom else keep
    lines = origins or ((),) * len(rows.steps)
    labels = tuple([_placed(_label(row), at) for row, at in zip(rows.steps, lines, strict=True)])
    given = (rows.given,) if rows.given else ()
    return _native.Plan(
        rows.inputs,
        rows.buffers,
        steps,
        rows.returns,
        rows.arena_bytes,
        keep,
        rows.numbers,
        labels,
        *given,
    )
