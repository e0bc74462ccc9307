"""native.graph_object: what the code generator makes of a graph, and how it becomes a callable.

In: object code and the rows of a plan, from ``build`` or from disk. Out: a ``CompiledGraph``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from argand.native.codegen.load import load
from argand.protocol import Bypass, CompiledGraph
from argand.runtime import _native
from argand.runtime.disk.format import Damaged
from argand.runtime.plans import NestedPlan, Rows, StepKind, link
from argand.support import events
from argand.support.options import read_environment


@final
class GraphObject(NamedTuple):
    """Machine code and plan of one graph, not yet linked."""

    code: bytes
    code_key: str  # the entry of the object code; empty: no kernels
    functions: tuple[str, ...]
    rows: Rows
    repeatable: bool = False  # parts of inputs are written in place, see ``protocol.CompiledGraph``
    origins: tuple[
        tuple[str, ...], ...
    ] = ()  # the user's lines of each step; a file does not have them


def linked(compiled: GraphObject, key: str | Bypass, inputs: Sequence[Any] = ()) -> CompiledGraph:
    """Load the code and link the plan to it; Damaged if they do not fit. ``inputs``: examples, for reports."""
    with contextlib.suppress(KeyError):
        plan = _plan_of(compiled)
        events.record("plan", lambda: _described(plan, compiled, inputs))
        return CompiledGraph(plan, boxed=True, key=key, repeatable=compiled.repeatable)
    raise Damaged("a kernel without code")


def _described(plan: _native.Plan, compiled: GraphObject, inputs: Sequence[Any]) -> dict[str, Any]:
    from argand.runtime.described import describe_plan  # noqa: PLC0415  # for reports only

    return describe_plan(plan, compiled.rows, compiled.origins, inputs)


def _tell_tools(compiled: GraphObject | NestedPlan, addresses: dict[str, int]) -> object:
    """Give the names of functions to ``perf`` and gdb, as asked for; what must live as long as the code does."""
    from argand.native.codegen import perf  # noqa: PLC0415  # rarely asked for

    lines = compiled.origins if isinstance(compiled, GraphObject) else ()
    rows = zip(compiled.rows.steps, lines, strict=False)
    origins = {row[2]: at for row, at in rows if row[0] == StepKind.KERNEL}
    functions = perf.named_functions(compiled.code, addresses, origins)
    if read_environment().perf:
        perf.tell_perf(functions)
    return perf.tell_gdb(functions) if read_environment().gdb else None


def _plan_of(compiled: GraphObject | NestedPlan) -> _native.Plan:
    """The plan that runs, with those of the graphs inside."""
    addresses: dict[str, int] = {}
    loaded: object = None
    if compiled.functions:
        loaded = code = load(compiled.code)
        addresses = {name: code.address(name) for name in compiled.functions}
        if read_environment().perf or read_environment().gdb:
            loaded = (loaded, _tell_tools(compiled, addresses))
    steps = [
        (*row[:3], tuple(map(_plan_of, row[3])), *row[4:]) if row[0] == 4 else row
        for row in compiled.rows.steps
    ]
    origins = compiled.origins if isinstance(compiled, GraphObject) else ()
    return link(compiled.rows._replace(steps=tuple(steps)), addresses, loaded, origins)
