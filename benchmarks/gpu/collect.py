"""benchmarks.gpu.collect: the loop nests of everything that is compiled, as a GPU target has them.

In: a block of code that compiles. Out: its nests with their schedules; compilation itself goes on for the CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from argand.native import build as native
from argand.native.lower.importer import import_graph
from argand.native.passes import levels
from argand.native.passes.table import PASSES, Setting, run_pass
from argand.native.schedule.nest import LoopNest, LoopNests
from argand.native.schedule.order import Schedule
from argand.native.target import Target
from argand.protocol import PLAIN, GraphContext
from argand.support.options import Options

Found = list[tuple[LoopNest, Schedule]]


def nests_of(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    options: Options,
    target: Target,
    context: GraphContext = PLAIN,
) -> LoopNests:
    """The loop nests of an aten graph."""
    value: Any = import_graph(module, inputs, options, context, packs=False)
    setting = Setting(options, target)
    for row in PASSES:
        value = run_pass(row, value, setting)
        if row.gives is levels.LOOPS and row.name == "take_products":
            break
    nests: LoopNests = value
    return nests


@contextlib.contextmanager
def collected(target: Target) -> Iterator[Found]:
    """All nests of the graphs that are built in a block."""
    found: Found = []
    build = native.build

    def both(
        module: torch.fx.GraphModule,
        inputs: Sequence[Any],
        options: Options,
        context: GraphContext = PLAIN,
        **rest: Any,
    ) -> Any:
        nests = nests_of(module, inputs, options, target, context)
        found.extend((nest, nests.schedule) for nest in nests.work if isinstance(nest, LoopNest))
        return build(module, inputs, options, context, **rest)

    native.build = both
    try:
        yield found
    finally:
        native.build = build
