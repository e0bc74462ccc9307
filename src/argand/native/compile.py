"""native.compile: the room as one function, for those who have an aten graph in hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.fx

from argand.native.graph_cache import GraphCompiler
from argand.protocol import PLAIN, Boxed, GraphContext, settled
from argand.support.options import Options


def compile_graph(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Options | None = None,
    context: GraphContext = PLAIN,
) -> Boxed:
    """Compile an aten graph to machine code, or load it from the disk cache; the callable takes one list."""
    return settled(GraphCompiler(options or Options())(module, example_inputs, context)).takes_list
