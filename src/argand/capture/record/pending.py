"""capture.record.pending: numbers that the graph will compute.

`tensor.item()` needs no break as long as nobody looks at the number: it is handed around as a `Pending` and
made after the graph ran (`return loss, loss.item()` is one graph). The first operation that looks at it
is where the graph breaks, but two numbers may be compared, for an `assert` (see `checks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import torch

from argand.capture.markers import OfTrace
from argand.support.errors import Break, CaptureBreak

_KINDS: Final[tuple[tuple[Callable[[torch.dtype], bool], type], ...]] = (
    (lambda dtype: dtype is torch.bool, bool),
    (lambda dtype: dtype.is_complex, complex),
    (lambda dtype: dtype.is_floating_point, float),
    (lambda dtype: True, int),
)


@final
class Pending(OfTrace):
    """The value of `tensor.item()`, before the graph has run."""

    def __init__(self, tensor: torch.Tensor, origin: str) -> None:
        self.tensor = tensor  # a copy of the tensor at that moment
        self.origin = origin  # the user's lines that asked for it
        self.size: Any = None  # the same as a size, once it was used as one
        self.kind = next(kind for fits, kind in _KINDS if fits(tensor.dtype))

    __class__ = property(lambda self: self.kind)  # for `isinstance`


def looked_at(number: Any, broken: CaptureBreak) -> CaptureBreak:
    """The break at something that looks at a number: it is mended where the number was asked for."""
    if type(number) is Pending:
        broken.edit = number.origin
    return broken


def _refuse(name: str) -> Callable[..., Any]:
    def method(self: Pending, *args: Any) -> Any:
        broken = looked_at(self, CaptureBreak(Break.B004, None, method=f"item().{name}"))
        broken.native = True  # wherever it is, the break is at the instruction that got here
        raise broken

    method.__name__ = name
    return method


_OPERATORS: Final = "add sub mul truediv floordiv mod pow and or xor lshift rshift"
_OTHERS: Final = "neg pos abs invert lt le eq ne gt ge bool int float complex index hash str repr format round trunc floor ceil"
for _name in f"{_OPERATORS} {_OPERATORS.replace(' ', ' r')} radd {_OTHERS}".split():
    setattr(Pending, f"__{_name}__", _refuse(f"__{_name}__"))
