"""capture.bytecode.version: the one place that looks at the Python version.

In: a code object.  Out: its normal form, cached.
"""

from __future__ import annotations

import functools
from types import CodeType

# A second version adds its module here and chooses by sys.version_info.
from argand.capture.bytecode import py311 as dialect
from argand.capture.bytecode.instruction import Decoded

__all__ = ["decode", "dialect"]


@functools.lru_cache(maxsize=4096)  # code objects compare by value, and hold no user data
def decode(code: CodeType) -> Decoded:
    """The normal form of `code`. Never fails on code made by CPython's compiler."""
    return Decoded(dialect.read(code))
