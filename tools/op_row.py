"""All that is known of one op, from the rooms that know it: ``python -m tools.op_row renorm``."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import torch

from argand.native.lower.table import KEPT
from argand.native.lower.table import TABLE as LOWERINGS
from argand.ops.decompositions import decompositions
from argand.ops.rows import TABLE, row_of
from argand.ops.table import written_arguments
from argand.sizes.formulas import FORMULAS


def overloads(name: str) -> Iterator[Any]:
    """The overloads of a name that have a row or a lowering; all of them when none has."""
    packet = getattr(torch.ops.aten, name.removeprefix("aten.").partition(".")[0])
    found = [getattr(packet, overload) for overload in packet.overloads()]
    known = [func for func in found if func.name() in TABLE or str(func) in LOWERINGS]
    yield from known or found


def describe(func: Any) -> Iterator[str]:
    """The row, and what is keyed by the op elsewhere."""
    row = row_of(func)
    yield str(func._schema)
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if field.name != "name" and value != field.default:
            yield f"  {field.name}: {_shown(value)}"
    writes = ", ".join(name for _, name in written_arguments(func._schema))
    if writes:
        yield f"  writes: {writes}"
    if func.is_view:
        yield "  is a view"
    decomposition = decompositions().get(func)
    if decomposition is not None:
        kept = ", not taken apart by the native compiler" if str(func) in KEPT else ""
        yield f"  decomposition: {_shown(decomposition)}{kept}"
    lowering = LOWERINGS.get(str(func))
    yield f"  lowering: {_shown(lowering) if lowering else 'none' if decomposition else 'none: a call of torch'}"
    formula = FORMULAS.get(func._opname)
    if formula is not None:
        yield f"  size formula: {_shown(formula)}"


def _shown(value: Any) -> str:
    if not callable(value) or isinstance(value, type):
        return str(getattr(value, "name", value))
    function = inspect.unwrap(getattr(value, "func", value))
    return f"{function.__module__}.{function.__qualname__}"


def main() -> None:
    """Print the rows of the names given."""
    for name in sys.argv[1:]:
        for func in overloads(name):
            print(*describe(func), sep="\n")


if __name__ == "__main__":
    main()
