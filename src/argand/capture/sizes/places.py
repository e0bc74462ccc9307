"""capture.sizes.places: which sizes and strides of a tensor are open.

In: a tensor of the outside, where it is found, and the plan of the frame. Out: its open dimensions, and
its open strides: those that follow from no size (of a slice of something larger, whose length varies).
"""

from __future__ import annotations

from typing import Any, Final

import torch

from argand.runtime.sources import DictAttr, Item, Quotient, SizeOf, Source, StrideOf
from argand.runtime.strides import derived_strides, next_inside
from argand.sizes.marks import read_marks
from argand.sizes.plan import SizePlace, SizePlan

_STATE: Final = frozenset({"_parameters", "_buffers"})


def open_dimensions(
    plan: SizePlan, source: Source, raw: torch.Tensor
) -> list[tuple[int, SizePlace]]:
    """The dimensions of a tensor whose size is not taken for good."""
    marks = read_marks(raw)
    if plan.dynamic is False or (plan.opens_nothing and not marks):
        return []
    state = type(raw) is torch.nn.Parameter or is_state(source)
    if (state and not marks) or raw.is_conj() or raw.is_neg():
        return []
    found = []
    for dim, real in enumerate(raw.shape):
        mark = marks.get(dim) if marks else None
        name = f"{source}.shape[{dim}]"
        asked = mark is not None and mark.kind == "dynamic"
        wanted = mark.kind != "static" if mark else plan.dynamic or name in plan.varied
        low, high = (mark.minimum, mark.maximum) if mark else (None, None)
        if low is None:
            low = min(real, 2) if asked else 2
        if asked and real >= low:
            plan.required.add(name)
        if wanted and real >= low and (asked or name not in plan.fixed):
            found.append((dim, SizePlace(name, SizeOf(source, dim), real, low, high)))
    return found


def stride_places(plan: SizePlan, source: Source, raw: torch.Tensor) -> dict[int, SizePlace]:
    """The strides of a tensor that follow from no size, where they are not taken for good.

    They are counted in steps of the next dimension inside: for a slice of rows, how many rows there is room for.
    """
    if plan.dynamic is False or type(raw) is torch.nn.Parameter or is_state(source):
        return {}
    found, strides, inside = {}, raw.stride(), next_inside(raw)
    for dim, maker in enumerate(derived_strides(raw)):
        name, k = f"{source}.stride({dim})", inside[dim]
        if maker is not None or name in plan.fixed:
            continue
        step = 1 if k is None else strides[k]
        steps, rest = divmod(strides[dim], step)
        if steps >= 2 and not rest:
            found[dim] = SizePlace(name, StrideOf(source, dim, k if step > 1 else None), steps)
    return found


def source_of(place: SizePlace) -> Source:
    """Where the size of a place is found at each call."""
    source: Source = place.source
    return source if place.divisor == 1 else Quotient(source, place.divisor)


def is_state(source: Source) -> bool:
    """Whether a tensor is a parameter or buffer of a module."""
    base: Any = source
    while isinstance(base, Item | DictAttr):
        if isinstance(base, DictAttr) and base.name in _STATE:
            return True
        base = base.base
    return False
