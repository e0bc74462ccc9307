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
    instructions = dialect.read(code)
    index_at = {found.offset: found.index for found in instructions}
    extended, raw = dialect.CODES["EXTENDED_ARG"], code.co_code
    for offset in range(len(raw) - 2, -1, -2):  # a traced frame stops at the EXTENDED_ARG
        if raw[offset] == extended:
            index_at[offset] = index_at[offset + 2]
    return Decoded(code, instructions, index_at)
