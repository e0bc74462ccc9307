"""runtime.constants: which values can never change, so that equality says everything about them."""

from __future__ import annotations

import enum
import types
from typing import Final

import torch

SCALARS: Final = frozenset(
    {type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)}
    | {torch.dtype, torch.layout, torch.memory_format, torch.qscheme, range, slice, torch.device}
)


def is_constant(value: object) -> bool:
    """Whether a value and all in it can never change."""
    if type(value) in SCALARS or isinstance(value, enum.Enum | types.BuiltinFunctionType):
        return True
    if type(value) in {tuple, frozenset, torch.Size}:
        return all(is_constant(item) for item in value)  # type: ignore[attr-defined]
    return False
