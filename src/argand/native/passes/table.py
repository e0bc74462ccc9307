"""native.passes.table: the passes over tensor IR, in order, with the reason for each ordering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from argand.native.ir.tensor import Graph
from argand.native.ir.tensor_text import print_graph
from argand.native.ir.verify import verify_graph
from argand.native.passes.fold import fold_constants
from argand.native.passes.gather import sink_gathers
from argand.native.passes.simplify import simplify
from argand.native.passes.split import split_reductions
from argand.support import events


class Pass(NamedTuple):
    """A pure function on graphs; ``after``: passes it must follow, and why."""

    name: str
    run: Callable[[Graph], Graph]
    after: tuple[tuple[str, str], ...] = ()


PASSES: Final = (  # each also removes common subexpressions and dead nodes, see rewrite
    Pass("fold_constants", fold_constants),
    Pass("simplify", simplify, after=(("fold_constants", "constants that fold become units and zeros"),)),
    Pass("sink_gathers", sink_gathers, after=(("simplify", "rules leave less to look up"),)),
    Pass("split_reductions", split_reductions, after=(("simplify", "rules see reductions whole"),)),
)


def run_passes(graph: Graph, verify: bool) -> Graph:
    """All passes in order."""
    if verify:
        verify_graph(graph, "lower")
    for row in PASSES:
        graph = row.run(graph)
        if verify:
            verify_graph(graph, row.name)
        _show(graph, row.name)
    return graph


def _show(graph: Graph, name: str) -> None:
    events.artifact("ir", lambda: print_graph(graph), f"after {name}")
