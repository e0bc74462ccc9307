"""bytecode.version: the one place that looks at the Python version.

In: a code object.  Out: its normal form, cached.
"""

from __future__ import annotations

import functools
import importlib
import sys
from types import CodeType
from typing import Final

from argand.bytecode.dialect import Dialect
from argand.bytecode.instruction import Decoded
from argand.bytecode.read import CodeReader
from argand.bytecode.supported import check

check()

# Only the module of the running version is loaded: the others' tables make no sense here.
DIALECT: Final[Dialect] = importlib.import_module(
    f"argand.bytecode.py{sys.version_info[0]}{sys.version_info[1]}"
).DIALECT
VERSION: Final = ".".join(map(str, DIALECT.version))  # for messages
LOCALS_ARE_NEW: Final = DIALECT.locals_are_new
CLOSE_GIVES_VALUE: Final = DIALECT.close_gives_value

_READER: Final = CodeReader(DIALECT)


@functools.lru_cache(maxsize=4096)  # code objects compare by value, and hold no user data
def decode(code: CodeType) -> Decoded:
    """The normal form of `code`. Never fails on code made by CPython's compiler."""
    return Decoded(_READER.read(code))
