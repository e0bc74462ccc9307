"""native.build: the code generator on one page.

In: a functional aten graph with ``meta["val"]``, example inputs, what else is known of it (open sizes), options. Out: a ``GraphObject``: object code and plan. Fails with InternalError, naming the stage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import torch
import torch.fx

from argand.native.choice import Choices
from argand.native.codegen.llvm.objects import object_code
from argand.native.codegen.target import host_target
from argand.native.graph_object import GraphObject
from argand.native.lower.importer import import_graph, is_functional
from argand.native.passes.table import Setting, run_passes
from argand.native.plan import rows_of
from argand.protocol import PLAIN, GraphContext
from argand.runtime.plans import NestedPlan
from argand.sizes.view import GraphSizes
from argand.support import events
from argand.support.errors import InternalError
from argand.support.later import later
from argand.support.options import Options

if TYPE_CHECKING:
    from argand.native.ir import tensor_text
else:
    tensor_text = later("argand.native.ir.tensor_text")


@final
class Interpreted:
    """Runs a graph that writes to intermediate values op by op: out of our contract, but right."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.interpreter = torch.fx.Interpreter(module)

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        """Run."""
        with torch.no_grad():
            return tuple(self.interpreter.run(*inputs))


def interpreted(module: torch.fx.GraphModule) -> Interpreted | None:
    """What runs a graph that is not functional."""
    if is_functional(module):
        return None
    events.count("native.not_functional")
    return Interpreted(module)


@contextlib.contextmanager
def _stage(module: torch.fx.GraphModule, name: str) -> Iterator[None]:
    """A stage by name: what fails in it is our bug, and the error shows the graph."""
    with events.stage(name):
        try:
            yield
        except InternalError as error:
            # What a verifier marked is the news; else the user knows the aten graph best.
            marked = error.stage == "native.verify"
            dumps = (error.dump, str(module.graph)) if marked else (str(module.graph), error.dump)
            dump = "\n\n".join(filter(None, dumps))
            raise InternalError(error.stage, error.message, dump=dump) from (
                error.__cause__ or error
            )
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise InternalError(name, message, dump=str(module.graph)) from error


def build_body(
    module: torch.fx.GraphModule, sizes: GraphSizes | None, options: Options
) -> NestedPlan:
    """The same for a graph inside of another."""
    examples = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    compiled = build(module, examples, options, GraphContext(sizes), is_branch=True)
    return NestedPlan(compiled.rows, compiled.functions, compiled.code, compiled.code_key)


def build(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    context: GraphContext = PLAIN,
    *,
    is_branch: bool = False,
) -> GraphObject:
    """All stages up to object code."""
    with _stage(module, "native.lower"):
        graph = import_graph(
            module,
            example_inputs,
            options,
            context,
            lambda body: build_body(body, context.sizes, options),
        )
    events.artifact("ir", lambda: tensor_text.print_graph(graph), "lowered")
    with _stage(module, "native.passes"):
        setting = Setting(options, host_target(), Choices(options), is_branch)
        launch = run_passes(graph, setting)
    kernels = launch.module
    events.count("native.kernels", len(kernels.functions))
    with _stage(module, "native.llvm"):
        code, key = (
            object_code(kernels.text, setting.target, options) if kernels.functions else (b"", "")
        )
    written = bool(kernels.schedule.demand.placed)
    return GraphObject(
        code, key, kernels.functions, rows_of(launch.plan), written, launch.plan.origins
    )
