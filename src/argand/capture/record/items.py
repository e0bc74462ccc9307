"""capture.record.items: `tensor.item()` and comparisons of such numbers, as nodes of the graph."""

from __future__ import annotations

import operator
from typing import Any, Final

import torch

from argand.capture.record.pending import Pending, looked_at
from argand.capture.record.recorder import Recorder
from argand.support.errors import Break, CaptureBreak

_COMPARED: Final = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
# With these a number gives what a tensor without dimensions gives, bit by bit, once it has the other's type.
_EITHER_SIDE: Final = _COMPARED | {"add", "sub", "mul", "iadd", "isub", "imul"}
# a number over a tensor is a product with its reciprocal
_RIGHT_SIDE: Final = frozenset({"truediv", "itruediv"})
_EXACT: Final = 1 << 53  # integers below it are doubles


def item(recorder: Recorder, tensor: torch.Tensor) -> Pending:
    """`tensor.item()`: a copy is kept, for the tensor may be changed in place later."""
    if tensor.numel() != 1:
        raise CaptureBreak(Break.B004, None, method="item")
    detached = recorder.call_method("detach", (tensor,), {})
    return Pending(recorder.call_method("clone", (detached,), {}), recorder.place())


def compare(recorder: Recorder, function: Any, a: Any, b: Any) -> Pending:
    """A comparison, exact as Python's: both ints, or both floats in double."""
    kinds = {a.__class__, b.__class__}
    exact = kinds == {int} or (kinds <= {float, int} and float in kinds)
    if not exact or function.__name__ not in _COMPARED:
        number = a if type(a) is Pending else b
        raise looked_at(number, CaptureBreak(Break.B004, None, method="item"))
    dtype = torch.int64 if kinds == {int} else torch.float64
    sides = [_as(recorder, side, dtype) for side in (a, b)]
    return Pending(recorder.call_function(function, tuple(sides), {}), _origin(a, b))


def as_operand(
    recorder: Recorder, function: Any, tensor: torch.Tensor, number: Pending, is_left: bool
) -> Any:
    """A number that stands beside a tensor in an operator as a tensor without dimensions; None where eager's result differs."""
    name, kind = function.__name__, number.tensor.dtype
    if name not in _EITHER_SIDE and (is_left or name not in _RIGHT_SIDE):
        return None
    floats = tensor.dtype in (torch.float32, torch.float64) and number.kind in (int, float)
    whole = tensor.dtype is kind is torch.int64 and name not in _RIGHT_SIDE
    if not floats and not whole:
        return None
    return recorder.call_method("reshape", (_as(recorder, number, tensor.dtype), ()), {})


def arithmetic(recorder: Recorder, function: Any, a: Any, b: Any) -> Pending | None:
    """`+`, `-`, `*` and `/` of floats, as Python computes them: in double. None for other numbers."""
    name = function.__name__.removeprefix("i")
    sides = [side for side in (a, b) if type(side) is not Pending]
    numbers = [side for side in (a, b) if type(side) is Pending]
    if any(number.kind is not float for number in numbers) or name not in (
        "add",
        "sub",
        "mul",
        "truediv",
    ):
        return None
    if any(
        type(side) not in (int, float) or (type(side) is int and abs(side) > _EXACT)
        for side in sides
    ):
        return None
    if name == "truediv" and (type(b) is Pending or not b):  # zero raises
        return None
    operands = tuple(_as(recorder, side, torch.float64) for side in (a, b))
    return Pending(recorder.call_function(getattr(operator, name), operands, {}), _origin(a, b))


def _origin(*sides: Any) -> str:
    """Where the first of the numbers that are not known yet was asked for."""
    return next(side.origin for side in sides if type(side) is Pending)


def _as(recorder: Recorder, side: Any, dtype: torch.dtype) -> Any:
    if type(side) is Pending:
        return recorder.call_method("to", (side.tensor, dtype), {})
    return side
