"""backends.argand_backend: Argand's own backend: ahead-of-time autograd, then the native compiler.

Also offered to torch.compile through the entry point group ``torch_dynamo_backends`` (design D9), and
by hand as ``compile_fx``, with the user's own passes between the stages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, final, runtime_checkable

from torch.fx import GraphModule

from argand.autograd.compilers import CompiledProgram, Compilers
from argand.autograd.program_cache import ProgramStage, forget
from argand.autograd.program_cache import restore as restore_program
from argand.backends.trial import can_try, never_slower
from argand.native.graph_cache import GraphCompiler
from argand.protocol import Bypass, CompiledGraph, Compiler, GraphContext, PlainCompiler, adapted
from argand.runtime.disk.stage import run_stage
from argand.sizes.refusals import Refusal
from argand.support.dataclass import dataclass
from argand.support.options import Options, make_options
from argand.support.switches import is_off

GraphPass: TypeAlias = Callable[[GraphModule], GraphModule]


@runtime_checkable
class NamedPass(Protocol):
    """A pass that says by a text what it does, so that what comes after it can be cached."""

    cache_id: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """What the caller of ``compile_fx`` puts in the place of ours, or between our stages."""

    compiler: PlainCompiler | None = None  # of aten graphs
    decompositions: Mapping[Any, Callable[..., Any]] | None = None
    joint: GraphPass | None = None  # on forward and backward in one aten graph
    after: GraphPass | None = None  # on each aten graph before its compiler
    # a text that changes when the joint pass does; empty: programs are not cached
    joint_id: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether all of it is ours."""
        return self == OURS


OURS: Final = Custom()


def argand(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[..., Any]:
    """Compile a torch-level graph to machine code, training included. The callable takes inputs of any kind."""
    return compile_fx(gm, example_inputs, mode=mode, options=options)


def compile_fx(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    inner_compile: PlainCompiler | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    pre_grad_pass: GraphPass | None = None,
    joint_pass: GraphPass | None = None,
    post_partition_pass: GraphPass | None = None,
) -> Callable[..., Any]:
    """Compile a torch-level or aten graph by hand.

    ``pre_grad_pass`` sees the graph as given, ``joint_pass`` forward and backward in one aten graph,
    ``post_partition_pass`` each aten graph before ``inner_compile`` (the native compiler). A joint
    pass with a ``cache_id``, a text that changes when the pass does, keeps the disk cache of programs.
    The callable takes inputs of any kind: for another than that of the examples the graph is compiled again.
    """
    custom = Custom(
        compiler=inner_compile,
        decompositions=decompositions,
        joint=joint_pass,
        after=post_partition_pass,
        joint_id=joint_pass.cache_id if isinstance(joint_pass, NamedPass) else "",
    )
    from argand.backends.foreign import checked  # noqa: PLC0415  # graphs of our own captures need no checks

    graph = pre_grad_pass(gm) if pre_grad_pass else gm
    compiler = functools.partial(compile_graph, options=make_options(mode, options), custom=custom)
    return checked(graph, example_inputs, compiler)


def compile_graph(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    context: GraphContext,
    options: Options,
    custom: Custom = OURS,
) -> CompiledGraph | Refusal:
    """Compile a torch-level graph, or find it on disk. The caller sees to it that it is called with inputs like these."""
    if is_off(options, "autograd"):
        return CompiledGraph(gm.forward)
    make = functools.partial(make_compilers, options, custom)
    program, key = run_stage(
        ProgramStage(gm, example_inputs, context, options, make, _joint_pass(custom)), options
    )
    if not isinstance(program, CompiledProgram):
        return program
    if isinstance(program.origin, str):
        key = program.origin  # where it lies, not what led there
    compiled = CompiledGraph(
        program.call,
        key=key,
        draws=program.draws,
        facts=program.facts,
        repeatable=program.repeatable,
    )
    if custom.is_empty and not has_branches(gm) and can_try(compiled, example_inputs, options):
        return never_slower(gm, compiled, functools.partial(forget, compiled.key, options))
    return compiled


def has_branches(gm: GraphModule) -> bool:
    """Whether operators of a graph take graphs: eager runs these by Python, and differentiates them by other compilers."""
    return any(isinstance(inner, GraphModule) for _, inner in gm.named_children())


def _joint_pass(custom: Custom) -> str | Bypass:
    """What the key of a program says of the caller's passes, or why there is no key. Graphs are cached all the same."""
    if custom.compiler or custom.after or custom.decompositions is not None:
        return Bypass("a compiler, pass or decompositions of the caller")
    if custom.joint is None:
        return "none"
    return custom.joint_id or Bypass("a joint pass without a cache_id")


def restore(key: str, options: Options) -> CompiledGraph | None:
    """The graph of a key, perhaps of another process; the caller's guards must say that the inputs are as they were."""
    return restore_program(key, options, functools.partial(make_compilers, options))


def make_compilers(options: Options, custom: Custom = OURS) -> Compilers:
    """What autograd has to do with the graphs."""
    # all of the compiler: a program from the disk cache does without
    from argand.autograd.partition import default_partition, min_cut_partition  # noqa: PLC0415
    from argand.native.lower.table import KEPT  # noqa: PLC0415
    from argand.ops.decompositions import decompositions as own_decompositions  # noqa: PLC0415

    compiler: Compiler = adapted(custom.compiler) if custom.compiler else GraphCompiler(options)
    if is_off(options, "native"):
        compiler = _run_by_torch
    if custom.after is not None:
        compiler = _after_pass(compiler, custom.after)
    cut: Callable[..., Any] = functools.partial(
        min_cut_partition, memory_budget=options.memory_budget
    )
    if is_off(options, "partition"):
        cut = default_partition
    rules = own_decompositions().items()
    own = {
        op: r
        for op, r in rules
        if str(op) not in KEPT and not is_off(options, "decomposition", str(op))
    }
    return Compilers(
        forward=compiler,
        backward=compiler,
        inference=compiler,
        partition=cut if custom.joint is None else _before_cut(cut, custom.joint),
        decompositions=own if custom.decompositions is None else custom.decompositions,
        keep_mutations=False,
        loops=custom == OURS and not is_off(options, "native"),
        options=options,
    )


def _run_by_torch(
    gm: GraphModule, example_inputs: Sequence[Any], context: GraphContext
) -> CompiledGraph:
    return CompiledGraph(gm.forward)


def _before_cut(cut: Callable[..., Any], joint_pass: GraphPass) -> Callable[..., Any]:
    return lambda joint, inputs, **keywords: cut(joint_pass(joint), inputs, **keywords)


def _after_pass(compiler: Compiler, graph_pass: GraphPass) -> Compiler:
    return lambda gm, inputs, context: compiler(graph_pass(gm), inputs, context)
