"""native.compile: the code generator on one page.

In: a functional aten graph with ``meta["val"]``, example inputs, options. Out: a boxed callable from a
list of inputs to a tuple of outputs. Fails with InternalError, naming the stage.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import torch
import torch.fx

from argand.native.codegen.llvm.emit import Emitted, emit_kernel
from argand.native.codegen.llvm.objects import object_code
from argand.native.codegen.target import Target, host_target
from argand.native.graph_cache import Compiled, GraphCompiler
from argand.native.ir.loops import Constant, Kernel, walk
from argand.native.ir.loops_text import print_kernel
from argand.native.ir.tensor_text import print_graph
from argand.native.ir.verify import verify_kernel
from argand.native.lower.importer import import_graph, is_functional
from argand.native.passes.table import run_passes
from argand.native.plan import KernelCall, Work, make_plan, rows_of
from argand.native.schedule.demand import find_demand
from argand.native.schedule.fuse import Schedule, fuse
from argand.native.schedule.nest import build_nest
from argand.protocol import Boxed
from argand.support import events
from argand.support.errors import InternalError
from argand.support.options import Options

# Vector instructions below which a thread is not worth waking (about 10 us of work).
GRAIN: Final = 30_000


@final
class Interpreted:
    """Runs a graph that writes to intermediate values op by op: out of our contract, but right."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.interpreter = torch.fx.Interpreter(module)

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        """Run."""
        with torch.no_grad():
            return tuple(self.interpreter.run(*inputs))


def compile_graph(module: torch.fx.GraphModule, example_inputs: Sequence[Any], options: Options | None = None) -> Boxed:
    """Compile an aten graph to machine code, or load it from the disk cache; the callable takes one list."""
    return GraphCompiler(options or Options())(module, example_inputs).takes_list


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
        except Exception as error:
            inner = error if isinstance(error, InternalError) else None
            message = inner.message if inner else f"{type(error).__name__}: {error}"
            raise InternalError(inner.stage if inner else name, message, dump=str(module.graph)) from error


def build(module: torch.fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> Compiled:
    """All stages up to object code."""
    with _stage(module, "native.lower"):
        graph = import_graph(module, example_inputs, options)
    events.artifact("ir", lambda: print_graph(graph), "lowered")
    with _stage(module, "native.passes"):
        graph = run_passes(graph, options.verify)
    with _stage(module, "native.fuse"):
        schedule = fuse(find_demand(graph), options)
    with _stage(module, "native.emit"):
        target = host_target()
        text, functions, work = _emit(schedule, target, options)
    events.artifact("fusion", lambda: "\n".join(schedule.decisions))
    events.artifact("output_code", lambda: text)
    with _stage(module, "native.llvm"):
        code, key = object_code(text, target, options) if functions else (b"", "")
    with _stage(module, "native.plan"):
        plan = make_plan(schedule, work)
    return Compiled(code, key, functions, rows_of(plan))


def _emit(schedule: Schedule, target: Target, options: Options) -> tuple[str, tuple[str, ...], tuple[Work, ...]]:
    """Loops and LLVM text of every group; equal kernels are one function."""
    externs = {schedule.group_of[n]: n for n in schedule.demand.nodes if n.op == "extern"}
    declarations: dict[str, None] = {}
    functions: dict[object, tuple[str, Emitted]] = {}
    work: list[Work] = []
    for group in schedule.order:
        if group in externs:
            work.append(externs[group])
            continue
        built = build_nest(schedule, group) if group.members else None
        if built is None:
            continue
        kernel, owners = built
        key = _key(kernel)
        if key not in functions:
            name = f"kernel{len(functions)}"
            events.artifact("schedule", functools.partial(print_kernel, kernel), name)
            if options.verify:
                verify_kernel(kernel)
            functions[key] = (name, emit_kernel(name, kernel, target, declarations))
        name, emitted = functions[key]
        grain = max(1, GRAIN // emitted.work)
        work.append(KernelCall(name, owners, emitted.total, grain, emitted.sizes))
    text = "\n".join([*declarations, *(e.text for _, e in functions.values())])
    return text, tuple(name for name, _ in functions.values()), tuple(work)


def _key(kernel: Kernel) -> object:
    """What makes two kernels the same function: 0.0 and -0.0, 1 and True are not."""
    numbers = tuple(repr(s.value) for s in walk(kernel.body) if isinstance(s, Constant))
    return kernel, numbers
