"""native.graph_object: what the code generator makes of a graph, and how it becomes a callable.

In: object code and the rows of a plan, from ``build`` or from disk. Out: a ``CompiledGraph``.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple, final

from argand.native.codegen.load import load
from argand.protocol import Bypass, CompiledGraph
from argand.runtime import _native
from argand.runtime.disk.format import Damaged
from argand.runtime.plans import Body, Rows, link


@final
class GraphObject(NamedTuple):
    """Machine code and plan of one graph, not yet linked."""

    code: bytes
    code_key: str  # the entry of the object code; empty: no kernels
    functions: tuple[str, ...]
    rows: Rows


def linked(compiled: GraphObject, key: str | Bypass) -> CompiledGraph:
    """Load the code and link the plan to it; Damaged if they do not fit."""
    with contextlib.suppress(KeyError):
        return CompiledGraph(_plan_of(compiled), boxed=True, key=key)
    raise Damaged("a kernel without code")


def _plan_of(compiled: GraphObject | Body) -> _native.Plan:
    """The plan that runs, with those of the graphs inside."""
    addresses: dict[str, int] = {}
    loaded = None
    if compiled.functions:
        loaded = load(compiled.code)
        addresses = {name: loaded.address(name) for name in compiled.functions}
    steps = [(*row[:3], tuple(map(_plan_of, row[3])), *row[4:]) if row[0] == 4 else row for row in compiled.rows.steps]
    return link(compiled.rows._replace(steps=tuple(steps)), addresses, loaded)
