"""capture.outside.arrays: numpy's arrays and numbers in a trace.

In: an array of the user's, or a tensor that stands for one. Out: an array over the memory of a fake, which is what the
program sees of it: its class, shape and type are real, its numbers are nobody's. `World.arrays` knows the tensor of each.
A number that numpy would compute (`a.sum()`, `a[0]`) is a `ArrayNumber` until the graph has run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import numpy
import torch

from argand.capture.markers import OfTrace
from argand.capture.outside.reader import WorldReader
from argand.runtime.guards import GuardKind
from argand.runtime.sources import MadeFrom, Source
from argand.support.errors import Break, CaptureBreak

DTYPES: Final[dict[torch.dtype, numpy.dtype[Any]]] = {
    torch.bool: numpy.dtype("bool"), torch.uint8: numpy.dtype("uint8"), torch.int8: numpy.dtype("int8"),
    torch.int16: numpy.dtype("int16"), torch.int32: numpy.dtype("int32"), torch.int64: numpy.dtype("int64"),
    torch.float16: numpy.dtype("float16"), torch.float32: numpy.dtype("float32"),
    torch.float64: numpy.dtype("float64"), torch.complex64: numpy.dtype("complex64"),
    torch.complex128: numpy.dtype("complex128"),
}  # fmt: skip
TORCH_DTYPES: Final = {dtype: torch_dtype for torch_dtype, dtype in DTYPES.items()}
_ONES: Final = frozenset(map(id, TORCH_DTYPES))


def tensor_over(array: Any) -> torch.Tensor | None:
    """The tensor over the memory of an array; None for one that torch has no tensor for, or that must not be written to."""
    if (
        type(array) is not numpy.ndarray
        or not array.flags.writeable
        or array.dtype not in TORCH_DTYPES
    ):
        return None
    if not array.dtype.isnative or any(step < 0 or step % array.itemsize for step in array.strides):
        return None
    return torch.from_numpy(array)


def is_known(dtype: Any) -> bool:
    """Whether torch has a type of numpy's, which has the byte order of this machine."""
    return id(dtype) in _ONES


def read_array(world: WorldReader, source: Source, raw: Any) -> Any:
    """The trace's view of an array from outside: the input of the graph is the tensor over its memory."""
    tensor = tensor_over(raw)
    if tensor is None:
        return None
    world.keep_off_disk("arrays of numpy's")
    world.guard(GuardKind.TYPE_IS, source, numpy.ndarray)
    fake = world.read(world.child(MadeFrom, source, tensor_over), tensor)
    return world.register(source, raw, as_array(world, fake))


def as_array(world: WorldReader, tensor: torch.Tensor) -> Any:
    """The array that the trace sees of a tensor."""
    with torch._C._DisableTorchDispatch():
        array = tensor.detach().numpy()
    world.arrays[id(array)] = array, tensor
    return array


def array_over(tensor: torch.Tensor) -> Any:
    """A result of a graph as an array."""
    return tensor.numpy()


def number_in(tensor: torch.Tensor) -> Any:
    """A result of a graph without dimensions as one of numpy's numbers."""
    return tensor.numpy()[()]


@final
class ArrayNumber(OfTrace):
    """A number of numpy's that the graph will compute."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.dtype = DTYPES[tensor.dtype]

    __class__ = property(lambda self: self.dtype.type)  # for `isinstance`


def _refuse(name: str) -> Callable[..., Any]:
    def method(self: ArrayNumber, *args: Any) -> Any:
        broken = CaptureBreak(Break.B004, None, method=f"a number of numpy's: {name}")
        broken.native = True  # wherever it is, the break is at the instruction that got here
        raise broken

    method.__name__ = name
    return method


_OPERATORS: Final = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul divmod"
_OTHERS: Final = "neg pos abs invert lt le eq ne gt ge bool int float complex index hash str repr format round trunc floor ceil"
for _name in f"{_OPERATORS} {_OPERATORS.replace(' ', ' r')} radd {_OTHERS}".split():
    setattr(ArrayNumber, f"__{_name}__", _refuse(f"__{_name}__"))

KINDS: Final = frozenset({numpy.ndarray, ArrayNumber})
