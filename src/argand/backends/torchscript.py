"""backends.torchscript: TorchScript as a backend, with and without ahead-of-time autograd."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from argand.backends.aot import aot_autograd, make_boxed_func


def ts(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
    """Run the captured graph as TorchScript; its ops are plain torch calls, so a trace is exact."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced: Callable[..., Any] = torch.jit.trace(gm, tuple(example_inputs), check_trace=False)
    return traced


def _script_aten(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Script an aten graph. TorchScript knows operators by packet, not by overload."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = node.target.overloadpacket
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(torch.fx.GraphModule(gm, graph))
    return make_boxed_func(scripted)


def aot_ts(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
    """Run forward and backward graphs as TorchScript."""
    return aot_autograd(fw_compiler=_script_aten)(gm, example_inputs)
