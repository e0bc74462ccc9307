"""backends.aot: ahead-of-time autograd as a backend factory.

In: compilers for forward, backward and inference graphs at aten level. Out: a backend for torch-level
graphs. The boxed convention: a compiled function marked ``_boxed_call`` takes one list, which it may
empty to free its inputs early.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from argand.autograd.aot import compile_with_autograd
from argand.backends.foreign import checked
from argand.protocol import CompiledGraph, GraphContext
from argand.support.options import Options


def make_boxed_func(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """A function of one list from a function of separate arguments."""

    @functools.wraps(function, assigned=("__doc__",), updated=())
    def boxed(arguments: list[Any]) -> Any:
        values = tuple(arguments)
        arguments.clear()
        return function(*values)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def aot_autograd(
    *,
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any] | None = None,
    inference_compiler: Callable[..., Any] | None = None,
    partition_fn: Callable[..., Any] | None = None,
    decompositions: Mapping[Any, Callable[..., Any]]
    | Callable[[], Mapping[Any, Any]]
    | None = None,
    keep_inference_input_mutations: bool = False,
    options: Options | None = None,
) -> Callable[..., Any]:
    """A backend that differentiates a graph, then hands aten graphs to the given compilers."""

    def compile_graph(
        gm: torch.fx.GraphModule, example_inputs: Sequence[Any], context: GraphContext
    ) -> CompiledGraph:
        run = compile_with_autograd(
            gm,
            list(example_inputs),
            context,
            fw_compiler=fw_compiler,
            bw_compiler=bw_compiler,
            inference_compiler=inference_compiler,
            partition_fn=partition_fn,
            decompositions=decompositions() if callable(decompositions) else decompositions,
            keep_inference_input_mutations=keep_inference_input_mutations,
            options=options or Options(),
        )
        return CompiledGraph(run)

    def compiler_fn(
        gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **_: Any
    ) -> Callable[..., Any]:
        return checked(gm, example_inputs, compile_graph)

    return compiler_fn


def device_from_inputs(example_inputs: Sequence[Any]) -> torch.device:
    """The device of the first tensor, else the CPU."""
    tensors = (x for x in example_inputs if isinstance(x, torch.Tensor))
    return next((x.device for x in tensors), torch.device("cpu"))


def dtype_from_inputs(example_inputs: Sequence[Any]) -> torch.dtype:
    """The dtype of the first tensor, else float32."""
    tensors = (x for x in example_inputs if isinstance(x, torch.Tensor))
    return next((x.dtype for x in tensors), torch.float32)
