"""native.codegen.triton.source: text of Triton programs, and the reason when there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, final

from argand.native.ir.types import DType

MEMORY: Final[Mapping[DType, str]] = {  # of an element where a pointer points
    DType.F64: "tl.float64",
    DType.F32: "tl.float32",
    DType.F16: "tl.float16",
    DType.BF16: "tl.bfloat16",
    DType.I64: "tl.int64",
    DType.I32: "tl.int32",
    DType.I16: "tl.int16",
    DType.I8: "tl.int8",
    DType.U8: "tl.uint8",
    DType.BOOL: "tl.int1",
}


@final
class Refused(Exception):
    """This loop nest has no Triton source; says why."""


def computed(dtype: DType) -> str:
    """The type that values are computed in: half types as float."""
    return "tl.float32" if dtype.is_half else MEMORY[dtype]


def literal(value: bool | int | float) -> str:
    """A number as Triton reads it."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


@final
class SourceLines:
    """SourceLines of a function in the making."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self._comment = ""

    def add(self, line: str) -> None:
        """One line at the present depth."""
        self.lines.append("    " * self.depth + line)

    def comment(self, text: str) -> None:
        """A comment, when it is another than the last one."""
        if text and text != self._comment:
            self.add(f"# {text}")
        self._comment = text or self._comment
