"""backends.argand_backend: Argand's own backend: ahead-of-time autograd, then the native compiler.

Also offered to torch.compile through the entry point group ``torch_dynamo_backends`` (design D9), and
by hand as ``compile_fx``, with the user's own passes between the stages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from torch.fx import GraphModule

from argand.autograd.stored import Place, bypass, forget, place_of, restore
from argand.backends.trial import can_try, never_slower
from argand.native.stored import GraphCompiler
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
    ``post_partition_pass`` each aten graph before ``inner_compile`` (the native compiler). A joint
    pass with a ``cache_id``, a text that changes when the pass does, keeps the disk cache of programs.
    """
    chosen = make_options(mode, options)
    graph = pre_grad_pass(gm) if pre_grad_pass else gm
    given = (inner_compile, decompositions, joint_pass, post_partition_pass)
    make = functools.partial(make_compilers, chosen, *given)
    place = None
    name = "none" if joint_pass is None else getattr(joint_pass, "cache_id", "")
    if inner_compile or post_partition_pass or decompositions is not None:
        bypass("a compiler, pass or decompositions of the caller")  # graphs are cached all the same
    elif not name:
        bypass("a joint pass without a cache_id")
    else:
        place = place_of(graph, example_inputs, chosen, name)
    run = restore(place.key, chosen, make, place.table) if place else None
    if run is None:
        from argand.autograd.aot import compile_program  # noqa: PLC0415  # only on a miss

        run = compile_program(graph, list(example_inputs), make(place))
    tried = not any((*given, pre_grad_pass)) and can_try(graph, example_inputs, chosen)
    return never_slower(graph, run, lambda key: forget(key, chosen)) if tried else run


def make_compilers(
    options: Options,
    inner: Compiler | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    joint_pass: GraphPass | None = None,
    post_pass: GraphPass | None = None,
    remember: Place | None = None,
) -> Any:
    """What autograd has to do with the graphs."""
    # all of the compiler: a program from the disk cache does without
    from argand.autograd.aot import Compilers  # noqa: PLC0415
    from argand.autograd.partition import min_cut_partition  # noqa: PLC0415
    from argand.native.lower.table import KEPT  # noqa: PLC0415
    from argand.ops.decompositions import decompositions as own_decompositions  # noqa: PLC0415

    compiler = _after_pass(inner or GraphCompiler(options), post_pass)
    cut = functools.partial(min_cut_partition, memory_budget=options.memory_budget)
    own = {op: rule for op, rule in own_decompositions().items() if str(op) not in KEPT}
    return Compilers(
        forward=compiler,
        backward=compiler,
        inference=compiler,
        partition=cut if joint_pass is None else _before_cut(cut, joint_pass),
        decompositions=own if decompositions is None else decompositions,
        keep_mutations=False,
        options=options,
        remember=remember,
    )


def _before_cut(cut: Callable[..., Any], joint_pass: GraphPass) -> Callable[..., Any]:
    return lambda joint, inputs, **keywords: cut(joint_pass(joint), inputs, **keywords)


def _after_pass(compiler: Compiler, graph_pass: GraphPass | None) -> Compiler:
    if graph_pass is None:
        return compiler
    return lambda gm, inputs: compiler(graph_pass(gm), inputs)
