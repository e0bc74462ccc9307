"""capture.record.items: `tensor.item()` and comparisons of such numbers, as nodes of the graph."""

from __future__ import annotations

from typing import Any, Final

import torch

from argand.capture.record.pending import Pending
from argand.capture.record.recorder import Recorder
from argand.support.errors import Break, CaptureBreak

_COMPARED: Final = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


def item(recorder: Recorder, tensor: torch.Tensor) -> Pending:
    """`tensor.item()`: a copy is kept, for the tensor may be changed in place later."""
    if tensor.numel() != 1:
        raise CaptureBreak(Break.B004, None, method="item")
    detached = recorder.call_method("detach", (tensor,), {})
    return Pending(recorder.call_method("clone", (detached,), {}))


def compare(recorder: Recorder, function: Any, a: Any, b: Any) -> Pending:
    """A comparison, exact as Python's: both ints, or both floats in double."""
    kinds = {a.__class__, b.__class__}
    exact = kinds == {int} or (kinds <= {float, int} and float in kinds)
    if not exact or function.__name__ not in _COMPARED:
        raise CaptureBreak(Break.B004, None, method="item")
    dtype = torch.int64 if kinds == {int} else torch.float64
    sides = [_as(recorder, side, dtype) for side in (a, b)]
    return Pending(recorder.call_function(function, tuple(sides), {}))


def _as(recorder: Recorder, side: Any, dtype: torch.dtype) -> Any:
    if type(side) is Pending:
        return recorder.call_method("to", (side.tensor, dtype), {})
    return side
