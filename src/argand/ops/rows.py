"""ops.rows: all families in one table.  In: an OpOverload.  Out: its row, by one dict access."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from argand.ops import convolution, factories, foreach, indexing, layers, losses, matmul, norms, pointwise, reductions
from argand.ops.table import OpDef

_FAMILIES: Final = (pointwise, reductions, factories, matmul, convolution, norms, indexing, losses, layers, foreach)
TABLE: Final[Mapping[str, OpDef]] = MappingProxyType(
    {f"aten::{row.name}": row for family in _FAMILIES for row in family.ROWS}
)


def row_of(func: Any) -> OpDef | None:
    """What we know of this op; None for an op without a row."""
    return TABLE.get(func.name())
