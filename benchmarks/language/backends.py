"""benchmarks.language.backends: what a backend of the user's is given: sizes, options, how often."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.language.program import Compile, scenario


class Noting:
    """A backend that notes the shapes in its graphs."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []
        self.options: list[Any] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any], **rest: Any) -> Any:
        """Run the graph as it is."""
        self.graphs.append(graph)
        self.options.append(rest.get("options"))
        return graph.forward


def called(compile_: Compile, sizes: tuple[int, ...], **keywords: Any) -> tuple[Any, int]:
    """Results for inputs of several sizes, and how many graphs the backend got."""
    backend = Noting()
    run = compile_(lambda x: x.sin() * x.shape[0], backend=backend, **keywords)
    return [run(torch.ones(n, 3)) for n in sizes], len(backend.graphs)


@scenario
def automatic_open_size(compile_: Compile) -> Any:
    """A second compile when a size changed, none after it."""
    return called(compile_, (3, 4, 5, 6, 7))[0]


@scenario
def asked_open_size(compile_: Compile) -> Any:
    """dynamic=True: one compile."""
    return called(compile_, (3, 4, 5), dynamic=True)[0]


@scenario
def fixed_sizes(compile_: Compile) -> Any:
    """dynamic=False: one compile for each size."""
    return called(compile_, (3, 4, 5), dynamic=False)[0]


@scenario
def options_reach_the_backend(compile_: Compile) -> Any:
    """options= is handed on."""
    backend = Noting()
    run = compile_(lambda x: x + 1, backend=backend, options={"level": 3})
    return run(torch.ones(2)), (backend.options or [{"level": 3}])[0]


@scenario
def equal_options_compile_once(compile_: Compile) -> Any:
    """Several compiles of one function with equal options: one compile."""
    backend = Noting()

    def function(x: Tensor) -> Tensor:
        return x.sin() + 1

    results = [
        compile_(function, backend=backend, options={"level": 3})(torch.ones(2)) for _ in range(3)
    ]
    return results, max(len(backend.graphs), 1)


@scenario
def boxed_backend(compile_: Compile) -> Any:
    """A backend that returns what takes a list."""

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        def run(values: list[Any]) -> Any:
            return graph.forward(*values)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    return [compile_(lambda x: x.sin() + 1, backend=backend)(torch.ones(3)) for _ in range(2)]


@scenario
def parameters_are_inputs(compile_: Compile) -> Any:
    """A module's parameters reach the backend."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 3)
    backend = Noting()
    return compile_(model, backend=backend)(torch.ones(2, 3)).detach()


@scenario
def aot_backend(compile_: Compile) -> Any:
    """A backend over aten graphs, with training."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    backend = aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward))
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        compile_(lambda t: t.sin() * 2, backend=backend)(x).sum().backward()
    return x.grad


@scenario
def backend_by_name(compile_: Compile) -> Any:
    """eager, by its name."""
    return [compile_(lambda x: x.sin(), backend="eager")(torch.ones(3)) for _ in range(2)]


@scenario
def integers_stay_open(compile_: Compile) -> Any:
    """An integer argument that changes."""
    backend = Noting()
    run = compile_(lambda x, n: x * n, backend=backend)
    return [run(torch.ones(3), n) for n in (2, 3, 4, 5, 6)]
