"""native.verify_plan: the rules of launch plans (P1 to P6 of docs/ir.md).

In: PlanData. Out: the first broken rule, or None. Sizes known only at run time are left out where a rule
compares bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from argand.native.ir.faults import Fault
from argand.native.plan import PlanData
from argand.runtime import launch


def verify_plan(plan: PlanData) -> Fault | None:
    """The first broken rule of a plan."""
    return (
        _ids_fault(plan)
        or _view_fault(plan)
        or _life_fault(plan)
        or _arena_fault(plan)
        or _return_fault(plan)
    )


def used(step: Any) -> Iterator[int]:
    """The buffers a step reads or writes."""
    match step:
        case launch.KernelStep(_, buffers):
            yield from buffers
        case launch.Product():
            yield from (
                step.left,
                step.right,
                step.out,
                *(() if step.bias is None else (step.bias,)),
            )
        case launch.Call(_, args, kwargs, outputs):
            yield from _refs((*args, *kwargs.values()))
            yield from (number for number in outputs if number >= 0)
        case launch.Nested():
            yield from step.buffers()
        case launch.Keep(watched):
            yield from watched
        case _:
            return


def _refs(value: Any) -> Iterator[int]:
    if isinstance(value, launch.Ref):
        yield value.buffer
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _refs(item)


def _line(plan: PlanData, step: int) -> int:
    return 1 + len(plan.buffers) + step


def _ids_fault(plan: PlanData) -> Fault | None:
    known = range(plan.inputs + len(plan.buffers))
    for k, buffer in enumerate(plan.buffers):
        if isinstance(buffer, launch.View) and buffer.base not in known:
            return Fault("P1", f"a view of buffer {buffer.base}, which is not there", 1 + k)
    for k, step in enumerate(plan.steps):
        ids = step.buffers if isinstance(step, launch.Free) else used(step)
        for number in ids:
            if number not in known:
                return Fault("P1", f"buffer {number} is not there", _line(plan, k))
    if any(number not in known for number in plan.returns):
        return Fault("P1", "a result that is not there")
    return None


def _base(plan: PlanData, number: int) -> int:
    """The buffer under all views."""
    while number >= plan.inputs and isinstance(
        buffer := plan.buffers[number - plan.inputs], launch.View
    ):
        number = buffer.base
    return number


def _span(sizes: Any, strides: Any) -> int | None:
    """Elements from the first to the last of a strided tensor, or None when it is known at run time only."""
    if any(isinstance(n, launch.Sym) for n in (*sizes, *strides)):
        return None
    return 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))


def _view_fault(plan: PlanData) -> Fault | None:
    for k, view in enumerate(plan.buffers):
        if not isinstance(view, launch.View) or isinstance(view.offset, launch.Sym):
            continue
        base = None if view.base < plan.inputs else plan.buffers[view.base - plan.inputs]
        if not isinstance(base, launch.Fresh | launch.Slot):
            continue
        whole, part = _span(base.sizes, base.strides), _span(view.sizes, view.strides)
        if whole is not None and part is not None and part and view.offset + part > whole:
            return Fault(
                "P2", f"a view of {view.offset + part} elements of a buffer of {whole}", 1 + k
            )
    return None


def _life_fault(plan: PlanData) -> Fault | None:
    """What calls make exists before it is used, and nothing is used after it was freed."""
    made: set[int] = set()
    freed: set[int] = set()
    for k, step in enumerate(plan.steps):
        if isinstance(step, launch.Free):
            freed.update(step.buffers)
            continue
        if isinstance(step, launch.Call):
            made.update(number for number in step.outputs if number >= 0)
        for number in (_base(plan, n) for n in used(step)):
            if number in freed:
                return Fault("P3", f"buffer {number} was freed", _line(plan, k))
            by_call = number >= plan.inputs and isinstance(
                plan.buffers[number - plan.inputs], launch.Made
            )
            if by_call and number not in made:
                return Fault("P3", f"buffer {number} is not made yet", _line(plan, k))
    return None


def _lives(plan: PlanData) -> dict[int, tuple[int, int]]:
    """The first and the last step of each buffer."""
    found: dict[int, tuple[int, int]] = {}
    for k, step in enumerate(plan.steps):
        for number in used(step):
            base = _base(plan, number)
            found[base] = (found.get(base, (k, k))[0], k)
    return found


def _arena_fault(plan: PlanData) -> Fault | None:
    lives = _lives(plan)
    placed: list[tuple[int, int, int]] = []  # buffer, first byte, byte after the last
    for k, slot in enumerate(plan.buffers):
        if not isinstance(slot, launch.Slot) or isinstance(slot.offset, launch.Sym):
            continue
        elements = _span(slot.sizes, slot.strides)
        number = plan.inputs + k
        if elements is None or number not in lives:
            continue
        end = slot.offset + elements * slot.dtype.itemsize
        if isinstance(plan.arena_bytes, int) and end > plan.arena_bytes:
            return Fault(
                "P4", f"buffer {number} ends at byte {end} of an arena of {plan.arena_bytes}", 1 + k
            )
        for other, low, high in placed:
            (first, last), (begin, until) = lives[number], lives[other]
            if slot.offset < high and low < end and first <= until and begin <= last:
                return Fault(
                    "P5", f"buffers {other} and {number} share bytes while both are needed", 1 + k
                )
        placed.append((number, slot.offset, end))
    return None


def _return_fault(plan: PlanData) -> Fault | None:
    """Results outlive the call: they lie in no arena, and were not freed."""
    freed = {
        number for step in plan.steps if isinstance(step, launch.Free) for number in step.buffers
    }
    for position, number in enumerate(plan.returns):
        base = _base(plan, number)
        slot = base >= plan.inputs and isinstance(plan.buffers[base - plan.inputs], launch.Slot)
        if slot or base in freed:
            return Fault("P6", f"result {position} does not outlive the call")
    return None
