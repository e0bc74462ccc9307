"""ops.copied: the functional form of an operator that writes and has no functional twin.

Graphs stay functional whatever a user's operator does: it runs on copies, which are results like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch._ops import OpOverload


@final
class Copied:
    """Functional form of an op that has none: run it on copies, return results and copies."""

    def __init__(self, op: OpOverload, written: tuple[tuple[int, str], ...]) -> None:
        self.op, self.written = op, written
        self.__name__ = f"copied_{op._opname}"
        self.__qualname__ = self.__name__
        self.__module__ = __name__

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The results that are no written argument, then what was written."""
        values = list(args)
        copies = []
        for position, name in self.written:
            old = values[position] if position < len(values) else kwargs.get(name)
            new = map_nested(_clone, old)
            copies.append(new)
            if position < len(values):
                values[position] = new
            elif name in kwargs:
                kwargs[name] = new
        result = self.op(*values, **kwargs)
        results = result if isinstance(result, tuple) else (result,)
        fresh = tuple(
            value
            for value, described in zip(results, self.op._schema.returns, strict=False)
            if described.alias_info is None
        )
        return (*fresh, *copies)


def map_nested(change: Callable[[Any], Any], value: Any) -> Any:
    """An argument, or each item of a list of them, changed."""
    return (
        [map_nested(change, item) for item in value]
        if isinstance(value, list | tuple)
        else change(value)
    )


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
