"""native.plan_text: the data of a launch plan as text (for logs, errors and text cases; it is not parsed).

plan 1 inputs, arena 64
b1 = slot 0 f32[4] strides [1]
b2 = fresh f32[4] strides [1]
kernel0(b0, b1) over 1
call aten.sort.default(b1) -> b2
return b2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import torch

from argand.native.ir.types import FROM_TORCH
from argand.native.plan import PlanData
from argand.runtime import launch


def print_plan(plan: PlanData) -> str:
    """Numbers, buffers and steps, one line each; line k + 1 is buffer ``inputs + k`` where there are no numbers."""
    lines = [f"plan {plan.inputs} inputs, arena {_size(plan.arena_bytes)}"]
    lines += [f"b{plan.inputs + k} = {_buffer(buffer)}" for k, buffer in enumerate(plan.buffers)]
    lines += [_step(step) for step in plan.steps]
    lines += [
        f"n{k} = {n.kind} {_size(n.left)}, {_size(n.right)}" for k, n in enumerate(plan.numbers)
    ]
    return "\n".join([*lines, f"return {', '.join(f'b{k}' for k in plan.returns)}"])


def _size(size: launch.PlanSize) -> str:
    return f"n{size.index}" if isinstance(size, launch.Sym) else str(size)


def _sizes(sizes: Sequence[launch.PlanSize]) -> str:
    return f"[{','.join(map(_size, sizes))}]"


def _tensor(
    dtype: torch.dtype, sizes: Sequence[launch.PlanSize], strides: Sequence[launch.PlanSize]
) -> str:
    known = FROM_TORCH.get(dtype)
    return f"{known.value if known else str(dtype).removeprefix('torch.')}{_sizes(sizes)} strides {_sizes(strides)}"


def _buffer(buffer: launch.Buffer) -> str:
    match buffer:
        case launch.Fresh(sizes, strides, dtype):
            return f"fresh {_tensor(dtype, sizes, strides)}"
        case launch.Slot(offset, sizes, strides, dtype):
            return f"slot {_size(offset)} {_tensor(dtype, sizes, strides)}"
        case launch.Constant(tensor):
            return f"constant {_tensor(tensor.dtype, tensor.shape, tensor.stride())}"
        case launch.Made(None):
            return "made"
        case launch.Made(sizes, strides, dtype):
            return f"made {_tensor(dtype, sizes or (), strides)}"
        case launch.View(base, sizes, strides, offset):
            return f"view b{base} {_sizes(sizes)} strides {_sizes(strides)} offset {_size(offset)}"
        case launch.Integer(number):
            return f"integer {_size(number)}"
        case launch.Marks():
            return "marks"
        case launch.Kept(offset, sizes, strides, dtype):
            return f"kept {offset} {_tensor(dtype, sizes, strides)}"
        case launch.PythonValue(value):
            return f"value {value!r}"
        case _:
            assert_never(buffer)


def _step(step: Any) -> str:
    match step:
        case launch.KernelStep(pointer, buffers, total, _, sizes):
            listed = ", ".join([*(f"b{b}" for b in buffers), *map(_size, sizes)])
            return f"{pointer}({listed}) over {_size(total)}"
        case launch.Product():
            extra = "" if step.bias is None else f" + b{step.bias}"
            shape = "x".join(map(_size, (step.rows, step.inner, step.columns)))
            marks = "".join(
                " transposed" for flag in (step.transpose_left, step.transpose_right) if flag
            )
            return f"b{step.out} = b{step.left} @ b{step.right}{extra} {shape} batch {_sizes(step.batch)}{marks}"
        case launch.Call(function, args, kwargs, outputs):
            return f"call {_name(function)}({_arguments(args, kwargs)}){_results(outputs)}"
        case launch.Nested():
            rounds = f" {_size(step.count)} rounds" if step.kind is launch.NestedKind.LOOP else ""
            return (
                f"{step.kind.name.lower()}{rounds} ({', '.join(f'b{b}' for b in step.buffers())})"
            )
        case launch.Keep(watched, _, steps, size):
            return f"keep {size} bytes of {', '.join(f'b{b}' for b in watched)} by {steps} steps"
        case launch.Free(buffers):
            return f"free {', '.join(f'b{b}' for b in buffers)}"
        case _:
            return repr(step)


def _name(function: Any) -> str:
    return str(
        getattr(function, "__name__", "")
        if not isinstance(function, torch._ops.OpOverload)
        else function
    )


def _results(outputs: Sequence[int]) -> str:
    return f" -> {', '.join(f'b{o}' if o >= 0 else '_' for o in outputs)}" if outputs else ""


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ", ".join(
        [*map(_argument, args), *(f"{name}={_argument(value)}" for name, value in kwargs.items())]
    )


def _argument(value: Any) -> str:
    if isinstance(value, launch.Ref):
        return f"b{value.buffer}"
    if isinstance(value, launch.Sym):
        return _size(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_argument, value))}]"
    return str(value)
