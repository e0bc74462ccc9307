"""ops.unreadable: memory of fakes that nobody can read.

With ``Options.verify`` fakes live in addresses without read rights, so that C++ which looks into their memory without
asking the dispatcher faults at once, and does not continue with noise. In: a length. Out: a storage of that many bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

import torch

_PAGE: Final = mmap.PAGESIZE
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
    space = mmap.mmap(-1, max(length, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    found = torch.frombuffer(space, dtype=torch.uint8).untyped_storage()
    pages = -(-len(space) // _PAGE) * _PAGE
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(ctypes.c_void_p(found.data_ptr()), ctypes.c_size_t(pages), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return found


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """A fresh fake in unreadable memory."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return tensor
    bare = storage(tensor.untyped_storage().nbytes())
    return torch.empty(0, dtype=tensor.dtype).set_(bare, tensor.storage_offset(), tensor.shape, tensor.stride())
