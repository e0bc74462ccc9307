"""capture.record.pending: numbers that the graph will compute.

`tensor.item()` needs no break as long as nobody looks at the number: it is handed around as a `Pending` and
made after the graph ran (`return loss, loss.item()` is one graph). The first operation that looks at it
is where the graph breaks, but two numbers may be compared, for an `assert` (see `checks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

import torch

from argand.support.errors import Break, CaptureBreak

if TYPE_CHECKING:
    from argand.capture.interpret.tracer import Tracer

_KINDS: Final[tuple[tuple[Callable[[torch.dtype], bool], type], ...]] = (
    (lambda dtype: dtype is torch.bool, bool),
    (lambda dtype: dtype.is_complex, complex),
    (lambda dtype: dtype.is_floating_point, float),
    (lambda dtype: True, int),
)


@final
class Pending:
    """The value of `tensor.item()`, before the graph has run."""

    _argand_native = True

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor  # a copy of the tensor at that moment
        self.size: Any = None  # the same as a size, once it was used as one
        self.kind = next(kind for fits, kind in _KINDS if fits(tensor.dtype))

    __class__ = property(lambda self: self.kind)  # for `isinstance`


def _refuse(name: str) -> Callable[..., Any]:
    def method(self: Pending, *args: Any) -> Any:
        broken = CaptureBreak(Break.B004, None, method=f"item().{name}")
        broken.native = True  # wherever it is, the break is at the instruction that got here
        raise broken

    method.__name__ = name
    return method


_OPERATORS: Final = "add sub mul truediv floordiv mod pow and or xor lshift rshift"
_OTHERS: Final = (
    "neg pos abs invert lt le eq ne gt ge bool int float complex index hash str repr format round trunc floor ceil"
)
for _name in f"{_OPERATORS} {_OPERATORS.replace(' ', ' r')} radd {_OTHERS}".split():
    setattr(Pending, f"__{_name}__", _refuse(f"__{_name}__"))


def item(tracer: Tracer, tensor: torch.Tensor) -> Pending:
    """`tensor.item()`: a copy is kept, for the tensor may be changed in place later."""
    if tensor.numel() != 1:
        raise CaptureBreak(Break.B004, None, method="item")
    detached = tracer.recorder.call_method("detach", (tensor,), {})
    return Pending(tracer.recorder.call_method("clone", (detached,), {}))


def compare(tracer: Tracer, function: Any, a: Any, b: Any) -> Pending:
    """A comparison, exact as Python's: both ints, or both floats in double."""
    kinds = {a.__class__, b.__class__}
    exact = kinds == {int} or (kinds <= {float, int} and float in kinds)
    if not exact or function.__name__ not in _COMPARED:
        raise CaptureBreak(Break.B004, None, method="item")
    dtype = torch.int64 if kinds == {int} else torch.float64
    sides = [_as(tracer, side, dtype) for side in (a, b)]
    return Pending(tracer.recorder.call_function(function, tuple(sides), {}))


_COMPARED: Final = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


def _as(tracer: Tracer, side: Any, dtype: torch.dtype) -> Any:
    if type(side) is Pending:
        return tracer.recorder.call_method("to", (side.tensor, dtype), {})
    return side
