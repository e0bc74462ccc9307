"""backends.torchscript: TorchScript as a backend, with and without ahead-of-time autograd."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from argand.backends.aot import aot_autograd, make_boxed_func


def _script(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Trace the graph with TorchScript; its ops are plain torch calls, so tracing loses nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted: Callable[..., Any] = torch.jit.trace(gm, tuple(example_inputs), check_trace=False)
    return scripted


def ts(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
    """Run the captured graph as TorchScript."""
    return _script(gm, example_inputs)


def aot_ts(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
    """Run forward and backward graphs as TorchScript."""

    def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(_script(graph, inputs))

    return aot_autograd(fw_compiler=compile_graph)(gm, example_inputs)  # type: ignore[no-any-return]
