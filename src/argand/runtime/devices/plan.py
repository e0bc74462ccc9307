"""runtime.devices.plan: a launch plan run on a device, step by step in Python.

In: the same rows that the C object runs on CPUs (runtime/launch.py), and a launcher for each kernel. Out: a callable that
takes one list. Everything is launched on the current stream; memory comes from torch's allocator, which knows streams.
``Launcher`` is the seam: a launcher in C would take the same arguments.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, final

import torch

from argand.runtime.devices.table import DeviceRow
from argand.runtime.launch import DTYPE_NUMBERS
from argand.runtime.plans import ArgumentKind, BufferKind, Row, Rows, StepKind

_DTYPES: Final = {number: dtype for dtype, number in DTYPE_NUMBERS.items()}
_SYMBOL: Final = -(2**63)
_RANDINT: Final = torch.ops.aten.randint.low
_ARITHMETIC: Final[tuple[Callable[[int, int], int], ...]] = (
    *(operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, min, max),
)
_FIRST_ARITHMETIC: Final = 3  # kinds before it read inputs: size, stride, input


class Launcher(Protocol):
    """A kernel: buffers as tensors, sizes that are open, and the points of its grid."""

    def __call__(self, buffers: Sequence[torch.Tensor], sizes: Sequence[int], points: int) -> None:
        """Put it on the current stream."""


@final
class NoDevicePlan(Exception):
    """A plan has a step that devices do not have; says which."""


@final
class DevicePlan:
    """A plan and the device it runs on."""

    def __init__(self, rows: Rows, launchers: Mapping[str, Launcher], device: DeviceRow) -> None:
        self.rows, self.launchers, self.device = rows, launchers, device
        for step in rows.steps:
            if step[0] == StepKind.NESTED:
                raise NoDevicePlan("control flow over compiled bodies")
            if step[0] == StepKind.KERNEL and step[2] not in launchers:
                raise NoDevicePlan(f"{step[2]} has no kernel for the device")

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        """Run; takes the inputs out of the list."""
        call = _DeviceCall(self, list(inputs))
        inputs.clear()
        with torch.no_grad():
            return call.run()


@final
class _DeviceCall:
    """One call of a plan: its tensors by buffer."""

    def __init__(self, plan: DevicePlan, inputs: list[Any]) -> None:
        self.plan, self.rows = plan, plan.rows
        found = (
            x for x in inputs if isinstance(x, torch.Tensor) and x.device.type == plan.device.kind
        )
        first = next(found, None)
        self.device = torch.device(plan.device.kind) if first is None else first.device
        self.numbers: list[int] = []
        for row in self.rows.numbers:
            self.numbers.append(self._compute(row, inputs))
        self.tensors: dict[int, Any] = dict(enumerate(map(self._on_device, inputs)))
        size = self._number(self.rows.arena_bytes)
        kept = [row for row in self.rows.buffers if row[0] == BufferKind.KEPT]
        self.arena = torch.empty(size, dtype=torch.uint8, device=self.device)
        room = max((self._number(row[3]) + self._span(row) for row in kept), default=0)
        self.kept = torch.empty(room, dtype=torch.uint8, device=self.device)
        self.marks: torch.Tensor | None = None

    def _on_device(self, value: Any) -> Any:
        """CPU scalars beside tensors of a device are theirs; other inputs are where they are."""
        scalar = isinstance(value, torch.Tensor) and value.dim() == 0 and value.device.type == "cpu"
        return value.to(self.device) if scalar and self.device.type != "cpu" else value

    def run(self) -> tuple[Any, ...]:
        """All steps, then the results."""
        for step in self.rows.steps:
            self._step(step)
        if self.marks is not None:
            self.plan.device.check(self.marks)
        return tuple(self._buffer(number) for number in self.rows.returns)

    # --- numbers -----------------------------------------------------------------------------

    def _number(self, number: int) -> int:
        at = number - _SYMBOL
        return self.numbers[at] if 0 <= at < len(self.numbers) else number

    def _numbers(self, numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(self._number, numbers))

    def _compute(self, row: Row, inputs: list[Any]) -> int:
        kind, left, right = row
        if kind >= _FIRST_ARITHMETIC:
            return int(
                _ARITHMETIC[kind - _FIRST_ARITHMETIC](self._number(left), self._number(right))
            )
        if kind == 2:
            return _bits(inputs[left])
        tensor = inputs[left]
        return int(tensor.stride(right) if kind else tensor.shape[right])

    # --- buffers -----------------------------------------------------------------------------

    def _buffer(self, number: int) -> Any:
        if number not in self.tensors:
            self.tensors[number] = self._make(self.rows.buffers[number - self.rows.inputs])
        return self.tensors[number]

    def _make(self, row: Row) -> Any:
        kind, dtype, base, offset, sizes, strides, value = row
        if kind == BufferKind.OBJECT:
            return self._on_device(value)
        if kind == BufferKind.INTEGER:
            return self._number(offset)
        if kind == BufferKind.MARKS:
            self.marks = torch.zeros(8, dtype=torch.int64, device=self.device)
            return self.marks
        shape, steps = self._numbers(sizes), self._numbers(strides)
        if kind == BufferKind.FRESH:
            return torch.empty_strided(shape, steps, dtype=_DTYPES[dtype], device=self.device)
        if kind == BufferKind.VIEW:
            below = self._buffer(base)
            return below.as_strided(shape, steps, below.storage_offset() + self._number(offset))
        memory = self.kept if kind == BufferKind.KEPT else self.arena
        start = self._number(offset)
        piece = memory[start : start + self._span(row)].view(_DTYPES[dtype])
        return piece.as_strided(shape, steps)

    def _span(self, row: Row) -> int:
        """Bytes from the first to the last element."""
        shape, steps = self._numbers(row[4]), self._numbers(row[5])
        if 0 in shape:
            return 0
        elements = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
        return elements * _DTYPES[row[1]].itemsize

    # --- steps -------------------------------------------------------------------------------

    def _step(self, step: Row) -> None:
        kind = step[0]
        if kind == StepKind.KERNEL:
            _, buffers, name, total, _, sizes, _ = step
            given = [self._buffer(number) for number in buffers]
            self.plan.launchers[name](given, self._numbers(sizes), self._number(total))
        elif kind == StepKind.PRODUCT:
            self._product(step)
        elif kind == StepKind.CALL:
            self._call(step)
        elif kind == StepKind.FREE:
            for number in step[1]:
                self.tensors.pop(number, None)

    def _call(self, step: Row) -> None:
        _, outputs, function, arguments, names = step
        values = [self._argument(row) for row in arguments]
        plain = len(values) - len(names)
        kwargs = dict(zip(names, values[plain:], strict=True))
        if function is _RANDINT:
            kwargs.setdefault("device", self.device)  # seeds come from the generator of the device
        result = function(*values[:plain], **kwargs)
        results = (result,) if isinstance(result, torch.Tensor) else result
        for number, made in zip(outputs, results or (), strict=False):
            if number >= 0:
                self.tensors[number] = self._laid_out(
                    self.rows.buffers[number - self.rows.inputs], made
                )

    def _laid_out(self, row: Row, made: Any) -> Any:
        """A result in the strides that were promised for it."""
        if not row[3] or not isinstance(made, torch.Tensor):
            return made
        shape, steps = self._numbers(row[4]), self._numbers(row[5])
        if tuple(made.shape) != shape:
            raise RuntimeError(
                f"a kernel of torch gave {tuple(made.shape)} where {shape} was promised"
            )
        if made.stride() == steps:
            return made
        return torch.empty_strided(shape, steps, dtype=made.dtype, device=made.device).copy_(made)

    def _argument(self, row: Row) -> Any:
        kind, value = row
        if kind == ArgumentKind.BUFFER:
            return self._buffer(value)
        if kind == ArgumentKind.NUMBER:
            return self._number(value)
        return [self._argument(item) for item in value] if kind == ArgumentKind.LIST else value

    def _product(self, step: Row) -> None:
        """``out = alpha * left @ right + beta * bias`` by torch on views of the operands."""
        _, operands, alpha, beta, table, turned_left, turned_right, *_ = step
        numbers = self._numbers(table)
        batch, left_steps, right_steps, out_steps, bias_steps, bias_strides = (
            numbers[k : k + 2] for k in range(0, 12, 2)
        )
        rows, columns, inner, left_stride, right_stride, out_stride = numbers[12:18]
        if 0 in (*batch, rows, columns):
            return

        def view(
            number: int, shape: tuple[int, int], steps: Sequence[int], strides: Sequence[int]
        ) -> torch.Tensor:
            tensor = self._buffer(number)
            kept = [
                (size, step)
                for size, step in zip(batch, steps, strict=True)
                if math.prod(batch) > 1
            ]
            sizes, jumps = [size for size, _ in kept], [jump for _, jump in kept]
            return tensor.as_strided((*sizes, *shape), (*jumps, *strides), tensor.storage_offset())

        left = view(
            operands[0],
            (rows, inner),
            left_steps,
            (1, left_stride) if turned_left else (left_stride, 1),
        )
        right = view(
            operands[1],
            (inner, columns),
            right_steps,
            (1, right_stride) if turned_right else (right_stride, 1),
        )
        out = view(operands[2], (rows, columns), out_steps, (out_stride, 1))
        if len(operands) == 4:
            bias = view(operands[3], (rows, columns), bias_steps, bias_strides)
            made = torch.matmul(left, right) if out.dim() > 2 else None
            if made is None:
                torch.addmm(bias, left, right, beta=beta, alpha=alpha, out=out)
            else:
                out.copy_(made.mul_(alpha).add_(bias, alpha=beta))
        elif alpha == 1.0:
            torch.matmul(left, right, out=out)
        else:
            out.copy_(torch.matmul(left, right).mul_(alpha))


def _bits(value: Any) -> int:
    """An integer input, or the bits of a float one."""
    if isinstance(value, float):
        return int(torch.tensor(value, dtype=torch.float64).view(torch.int64))
    return int(value)
