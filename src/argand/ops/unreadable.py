"""ops.unreadable: memory of fakes that nobody can read.

With ``Options.verify`` fakes live in addresses without read rights, so that C++ which looks into their memory without
asking the dispatcher faults at once, and does not continue with noise. In: a length. Out: a storage of that many bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

import torch

from argand.support.platform import PAGE, own_pages, set_rights

_wanted: Final[ContextVar[bool]] = ContextVar("unreadable", default=False)


def is_wanted() -> bool:
    """Whether fakes made now must be unreadable."""
    return _wanted.get()


@contextlib.contextmanager
def unreadable_fakes(wanted: bool) -> Iterator[None]:
    """Inside it, fakes are made in memory that cannot be read, if so wanted."""
    token = _wanted.set(wanted or _wanted.get())
    try:
        yield
    finally:
        _wanted.reset(token)


def storage(length: int) -> torch.UntypedStorage:
    """Bytes that fault when they are read or written."""
    space = own_pages(max(length, 1))
    found = torch.frombuffer(space, dtype=torch.uint8).untyped_storage()
    if not set_rights(found.data_ptr(), -(-len(space) // PAGE) * PAGE, "none"):
        raise OSError(ctypes.get_errno(), "the memory of a fake cannot be made unreadable")
    return found


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """A fresh fake in unreadable memory."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return tensor
    bare = storage(tensor.untyped_storage().nbytes())
    return torch.empty(0, dtype=tensor.dtype).set_(
        bare, tensor.storage_offset(), tensor.shape, tensor.stride()
    )
