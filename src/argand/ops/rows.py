"""ops.rows: one table of all ops.  In: an OpOverload.  Out: its row, by one dict access.

Every op has a row: that of its family, completed by the columns of `ops.facts` and by what torch's tags
say; for an op that nobody here has heard of, the tags alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import torch
from torch._ops import OpOverload

from argand.ops import (
    convolution,
    factories,
    foreach,
    indexing,
    layers,
    losses,
    matmul,
    norms,
    pointwise,
    reductions,
)
from argand.ops.facts import FUNCTION_COLUMNS, columns
from argand.ops.table import Draws, FunctionDef, Kind, OpDef, Raises
from argand.support.dataclass import replace

_FAMILIES: Final = (
    pointwise,
    reductions,
    factories,
    matmul,
    convolution,
    norms,
    indexing,
    losses,
    layers,
    foreach,
)
# namespaces of ops that nobody but torch defines
OF_TORCH: Final = frozenset({"aten", "prim", "prims"})
_DEPENDENT: Final = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})


def _joined() -> dict[str, OpDef]:
    table = {row.name: row for family in _FAMILIES for row in family.ROWS}
    for name, facts in columns().items():
        row: Any = table.get(name) or OpDef(name=name, kind=Kind.OTHER)
        table[name] = replace(row, **facts)
    return {f"aten::{name}": row for name, row in table.items()}


def _functions() -> Iterator[FunctionDef]:
    for name, facts in columns(FUNCTION_COLUMNS).items():
        row: Any = FunctionDef(name=name)
        yield replace(row, **facts)


TABLE: Final[Mapping[str, OpDef]] = MappingProxyType(_joined())
FUNCTIONS: Final[Mapping[str, FunctionDef]] = MappingProxyType(
    {row.name: row for row in _functions()}
)


@cache
def row_of(func: OpOverload) -> OpDef:
    """All we know of an op."""
    row = TABLE.get(func.name())
    if row is None:
        row = OpDef(name=func.name(), kind=Kind.VIEW if func.is_view else Kind.OTHER)
    if row.draws is Draws.NEVER and torch.Tag.nondeterministic_seeded in func.tags:
        row = replace(row, draws=Draws.ALWAYS)
    return replace(row, data_dependent=True) if _DEPENDENT.intersection(func.tags) else row


def draws(
    func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any] = MappingProxyType({})
) -> bool:
    """Whether this call advances a random generator."""
    match row_of(func).draws:
        case Draws.NEVER:
            return False
        case Draws.ALWAYS:
            return True
        case Draws.WITH_DROPOUT:
            return _argument(func, "dropout_p", args, kwargs) != 0.0


def may_raise(func: OpOverload, result: Any) -> bool:
    """Whether this call, whose result is (a fake) like this one, may raise because of the values it gets."""
    match row_of(func).raises:
        case Raises.NEVER:
            return False
        case Raises.ON_VALUES:
            return True
        case Raises.ON_INTEGERS:
            return not (result.dtype.is_floating_point or result.dtype.is_complex)


def _argument(func: OpOverload, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    place, argument = _signature(func)[name]
    if place < len(args):
        return args[place]
    return kwargs.get(name, argument.default_value)


@cache
def _signature(func: OpOverload) -> Mapping[str, tuple[int, Any]]:
    return {
        argument.name: (place, argument) for place, argument in enumerate(func._schema.arguments)
    }
