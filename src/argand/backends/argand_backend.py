"""backends.argand_backend: Argand's own backend: ahead-of-time autograd, then the native compiler.

Also offered to torch.compile through the entry point group ``torch_dynamo_backends`` (design D9), and
by hand as ``compile_fx``, with the user's own passes between the stages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from torch.fx import GraphModule

from argand.autograd.aot import compile_with_autograd
from argand.autograd.partition import min_cut_partition
from argand.native.compile import compile_graph
from argand.native.lower.table import KEPT
from argand.ops.decompositions import decompositions as own_decompositions
from argand.support.options import Options, make_options

GraphPass: TypeAlias = Callable[[GraphModule], GraphModule]
Compiler: TypeAlias = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


def argand(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[..., Any]:
    """Compile a torch-level graph to machine code, training included."""
    return compile_fx(gm, example_inputs, mode=mode, options=options)


def compile_fx(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    inner_compile: Compiler | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    pre_grad_pass: GraphPass | None = None,
    joint_pass: GraphPass | None = None,
    post_partition_pass: GraphPass | None = None,
) -> Callable[..., Any]:
    """Compile a torch-level or aten graph by hand.

    ``pre_grad_pass`` sees the graph as given, ``joint_pass`` forward and backward in one aten graph,
    ``post_partition_pass`` each aten graph before ``inner_compile`` (the native compiler).
    """
    chosen = make_options(mode, options)
    compiler = inner_compile or functools.partial(compile_graph, options=chosen)
    return compile_with_autograd(
        pre_grad_pass(gm) if pre_grad_pass else gm,
        list(example_inputs),
        fw_compiler=_after_pass(compiler, post_partition_pass),
        partition_fn=_partition(chosen, joint_pass),
        decompositions=_own_decompositions() if decompositions is None else decompositions,
        options=chosen,
    )


def _own_decompositions() -> dict[Any, Callable[..., Any]]:
    return {op: rule for op, rule in own_decompositions().items() if str(op) not in KEPT}


def _after_pass(compiler: Compiler, graph_pass: GraphPass | None) -> Compiler:
    if graph_pass is None:
        return compiler
    return lambda gm, inputs: compiler(graph_pass(gm), inputs)


def _partition(options: Options, joint_pass: GraphPass | None) -> Callable[..., Any]:
    cut = functools.partial(min_cut_partition, memory_budget=options.memory_budget)
    if joint_pass is None:
        return cut
    return lambda joint, inputs, **keywords: cut(joint_pass(joint), inputs, **keywords)
