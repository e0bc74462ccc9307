"""native.graph_object: what the code generator makes of a graph, and how it becomes a callable.

In: object code and the rows of a plan, from ``build`` or from disk. Out: a ``CompiledGraph``.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple, final

from argand.native.codegen.load import load
from argand.protocol import Bypass, CompiledGraph
from argand.runtime.disk.format import Damaged
from argand.runtime.plans import Rows, link


@final
class GraphObject(NamedTuple):
    """Machine code and plan of one graph, not yet linked."""

    code: bytes
    code_key: str  # the entry of the object code; empty: no kernels
    functions: tuple[str, ...]
    rows: Rows


def linked(compiled: GraphObject, key: str | Bypass) -> CompiledGraph:
    """Load the code and link the plan to it; Damaged if they do not fit."""
    addresses: dict[str, int] = {}
    loaded = None
    if compiled.functions:
        loaded = load(compiled.code)
        addresses = {name: loaded.address(name) for name in compiled.functions}
    with contextlib.suppress(KeyError):
        return CompiledGraph(link(compiled.rows, addresses, loaded), boxed=True, key=key)
    raise Damaged("a kernel without code")
