"""native.pointers: custom operators that brought a C function, as kernel steps of a plan.

In: a call of an operator, tensors given as ``extern.Operand``. Out: steps that call the function on
pointers, or None where there is no such function or a tensor is not contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from argand.customops import pointers, registry
from argand.native.ir.strides import same_layout
from argand.ops.copied import Copied
from argand.ops.layout import contiguous
from argand.runtime.launch import Call, KernelStep, Ref, Step


def pointer_steps(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[Any]
) -> tuple[Step, ...] | None:
    """Steps of one call; ``outputs`` in the operator's order."""
    # A copied operator gives its results, then the copies.
    overload, written = (target.op, target.written) if isinstance(target, Copied) else (target, ())
    if not isinstance(overload, torch._ops.OpOverload) or overload.namespace == "aten":
        return None
    op = registry.find(overload._schema.name)
    if op is None or not op.c_functions or None in outputs:
        return None
    values = op.complete_arguments(tuple(args), dict(kwargs))
    function = pointers.find_function(op, values)
    results = outputs[: len(outputs) - len(written)]
    steps: list[Step] = []
    for (position, _), copy in zip(written, outputs[len(results) :], strict=True):
        refs = (Ref(copy.id), Ref(values[position].id))
        steps.append(Call(torch.ops.aten.copy_.default, refs))
        values[position] = copy
    tensors, sizes = pointers.pack(op, values, results, lambda operand: operand.sizes)
    if function is None or not all(
        same_layout(t.sizes, t.strides, contiguous(t.sizes)) for t in tensors
    ):
        return None
    total = math.prod(outputs[0].sizes)
    whole = total if type(total) is int else 1 << 62  # one piece, the GIL released
    grain = whole if function.grain is None else function.grain
    buffers = tuple(tensor.id for tensor in tensors)
    return (*steps, KernelStep(function.name, buffers, total, max(grain, 1), tuple(sizes)))  # type: ignore[arg-type]
