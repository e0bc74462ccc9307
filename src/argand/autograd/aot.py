"""autograd.aot: the entry of the room.

In: a torch-level GraphModule and example inputs. Out: a callable on the same inputs that runs compiled
aten graphs and behaves under torch's autograd, to any order, as if eager had run. Falls back to
the captured graph itself when a program cannot be traced soundly (counted, with the reason).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import torch
from torch.fx import Graph, GraphModule

from argand.autograd.bodies import below_autograd
from argand.autograd.compilers import CompiledProgram, Compilers, Recorded, can_repeat
from argand.autograd.graphs import extract, flat_outputs, make_module, readable
from argand.autograd.kept import parts_of
from argand.autograd.outputs import Traced, Untraceable
from argand.autograd.partition import default_partition, min_cut_partition
from argand.autograd.programs import Flat, Program, has_own_formula, run_graph
from argand.autograd.runtime import (
    MOST_BACKWARDS,
    Asked,
    full_backward,
    run_inference,
    run_training,
)
from argand.autograd.sizes import ProgramSizes
from argand.autograd.switch import LinkSwitch
from argand.autograd.trace import ambient_autocast, trace
from argand.ops.fakes import DataDependent
from argand.ops.unreadable import unreadable_fakes
from argand.protocol import (
    PLAIN,
    Boxed,
    Bypass,
    CompiledGraph,
    GraphContext,
    PlainCompiler,
    adapted,
    settled,
)
from argand.runtime import quiet
from argand.sizes.refusals import NeedFacts, Refusal, Stop, or_refusal
from argand.support import events
from argand.support.dataclass import replace
from argand.support.errors import InternalError
from argand.support.later import later
from argand.support.locks import Turns
from argand.support.options import Options

if TYPE_CHECKING:
    from argand.autograd import higher_order, linked, pieces
else:
    higher_order = later("argand.autograd.higher_order")
    linked = later("argand.autograd.linked")
    pieces = later("argand.autograd.pieces")


def compile_with_autograd(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    context: GraphContext = PLAIN,
    *,
    fw_compiler: PlainCompiler,
    bw_compiler: PlainCompiler | None = None,
    inference_compiler: PlainCompiler | None = None,
    partition_fn: Callable[..., tuple[GraphModule, GraphModule]] | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    keep_inference_input_mutations: bool = False,
    options: Options | None = None,
) -> Callable[..., Any]:
    """A callable that runs the graph compiled, forward and backward."""
    compilers = Compilers(
        forward=adapted(fw_compiler),
        backward=adapted(bw_compiler or fw_compiler),
        inference=adapted(inference_compiler or fw_compiler),
        partition=partition_fn or default_partition,
        decompositions=decompositions,
        keep_mutations=keep_inference_input_mutations,
        options=options or Options(),
    )
    compiled = _settled(compile_program(gm, example_inputs, context, compilers))
    if compiled.facts:  # a callable cannot tell of them: they have to be known before
        raise Stop(NeedFacts(compiled.facts))
    return compiled.call


def _settled(compiled: CompiledProgram | Refusal) -> CompiledProgram:
    """A program for somebody who knows nothing of refusals, as `protocol.settled`."""
    if isinstance(compiled, CompiledProgram):
        return compiled
    raise Stop(compiled)


def compile_program(
    gm: GraphModule, example_inputs: Sequence[Any], context: GraphContext, compilers: Compilers
) -> CompiledProgram | Refusal:
    """The same, with everything the caller wants in one object."""
    if context.sizes is not None and context.sizes.unbacked:
        events.count("autograd.fallback", detail="sizes that depend on data")
        return CompiledProgram(gm.forward, Bypass("sizes that depend on data"))
    flat = Flat(run_graph(gm, loops=compilers.loops))
    compilers = replace(compilers, sizes=ProgramSizes.of(gm, context.sizes))
    traced = _try_trace(flat.program, example_inputs, compilers, strict=context.strict)
    if traced is None:
        return CompiledProgram(gm.forward, Bypass("it cannot be traced"))
    if not isinstance(traced, Traced):
        return traced
    if traced.training and traced.bent:
        return _in_pieces(gm, traced, context, compilers)
    made = compile_traced(flat.program, traced, compilers)
    if not isinstance(made, CompiledProgram):
        return made
    if compilers.sizes is not None:
        made = made._replace(facts=compilers.sizes.facts)
    if flat.nested is None:
        return made
    nested = Bypass("results that are no flat tuple")
    return made._replace(call=flat.rebuilt(made.call), origin=nested)


def _in_pieces(
    gm: GraphModule, traced: Traced, context: GraphContext, compilers: Compilers
) -> CompiledProgram:
    """A program with formulas of users, which torch's engine has to call."""
    reason = Bypass("a backward of the user's that may not be linear in the gradient")

    def compile(piece: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return _settled(compile_program(piece, inputs, context, compilers)).call

    call = None if compilers.sizes is not None else pieces.in_pieces(gm, has_own_formula, compile)
    if call is None:
        events.count("autograd.fallback", detail=reason.reason)
    return CompiledProgram(call or gm.forward, reason, traced.random)


def _try_trace(
    program: Program,
    inputs: Sequence[Any],
    compilers: Compilers,
    only: int = -1,
    *,
    strict: bool = False,
) -> Traced | Refusal | None:
    """The traced program; None, with a count of why, when only eager is right for it.

    A refusal where sizes cannot stay open: what stopped the trace from inside of torch is a value from here on.
    """
    try:
        with events.stage("autograd.trace"), unreadable_fakes(compilers.options.verify == "forms"):
            draws = compilers.options.fallback_random
            return or_refusal(
                lambda: trace(
                    program, inputs, compilers.decompositions, only, compilers.sizes, draws
                )
            )
    except Exception as reason:
        if compilers.sizes is not None:  # perhaps only the sizes of the fakes are to blame
            return compilers.sizes.refusal(f"{type(reason).__name__}: {reason}")
        # what eager alone can do right is no failure
        if (strict or compilers.options.strict) and not isinstance(
            reason, Untraceable | DataDependent
        ):
            raise
        events.count("autograd.fallback", detail=f"{type(reason).__name__}: {reason}")
        return None


def compile_traced(
    program: Program, traced: Traced, compilers: Compilers
) -> CompiledProgram | Refusal:
    """Hand the graphs of a traced program to the compilers."""
    if not traced.training:
        return _compile_inference(traced, compilers)
    joint = make_module(traced.graph, traced.constants, "Joint")
    context = _context(compilers)
    events.artifact("aot_joint_graph", lambda: readable(joint))
    with events.stage("autograd.partition"):
        forward, backward = _partition(joint, traced, compilers)
    traced.parts = parts_of(backward.graph)
    traced.graph = Graph()  # the fakes of the joint graph are not needed again
    events.artifact("aot_graphs", lambda: readable(forward), "forward")
    events.artifact("aot_graphs", lambda: readable(backward), "backward")
    compiled = compilers.forward(forward, traced.inputs, context)
    if not isinstance(compiled, CompiledGraph):
        return compiled
    switch = LinkSwitch(_linking(program, compilers))
    late, again = _halves(program, traced, backward, context, compilers)
    switch.run = run_training(
        traced, below_autograd(compiled, forward), late, switch.noticing(again)
    )
    # now, not when somebody waits for it
    if compilers.options.background or compilers.options.compile_seconds:
        late(full_backward(traced), ())
    return CompiledProgram(switch, _origin(compiled, traced, backward, context), traced.random)


def _context(compilers: Compilers) -> GraphContext:
    """What is known of the aten graphs of a program, as soon as it is traced."""
    return PLAIN if compilers.sizes is None else GraphContext(compilers.sizes.frozen())


@final
class _Tools:
    """What linked programs are made with."""

    def __init__(self, compilers: Compilers) -> None:
        self.compilers = compilers
        # Eager's ops as they are: the derivative of a decomposition is another one at the edges, where it exists at all.
        self.whole = replace(compilers, decompositions=None)

    def trace(self, program: Program, inputs: Sequence[Any], only: int = -1) -> Traced | None:
        """Trace a program that will be differentiated: its ops stay whole."""
        with torch.enable_grad():
            traced = _try_trace(program, inputs, self.whole, only)
        return traced if isinstance(traced, Traced) else None

    def halves(self, traced: Traced) -> tuple[GraphModule, GraphModule]:
        """Cut it in two."""
        return _partition(
            make_module(traced.graph, traced.constants, "Joint"), traced, self.compilers
        )

    def compile(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph for these inputs; differentiable in grad mode."""
        program = run_graph(module)
        traced = _try_trace(program, inputs, self.compilers)
        if not isinstance(traced, Traced):
            return module
        return _settled(compile_traced(program, traced, self.compilers)).call

    def code(self, module: GraphModule) -> Boxed:
        """Compile a graph that nobody differentiates."""
        if not self.compilers.decompositions:
            return below_autograd(
                settled(self.compilers.backward(module, _examples(module), PLAIN)), module
            )
        with torch.no_grad():
            call = self.compile(module, _examples(module))
        return lambda values: call(*values)


def _linking(
    program: Program, compilers: Compilers
) -> Callable[[Sequence[Any]], Callable[..., Any] | None]:
    def make(inputs: Sequence[Any]) -> Callable[..., Any] | None:
        with events.stage("autograd.link"):
            return (
                None
                if compilers.sizes is not None
                else linked.link(program, inputs, _Tools(compilers))
            )

    return make


def _origin(
    forward: CompiledGraph, traced: Traced, backward: GraphModule | None, context: GraphContext
) -> Recorded | Bypass:
    """What the disk cache needs to keep a program."""
    if isinstance(forward.key, Bypass):
        return forward.key
    if traced.absolute or traced.bits:
        return Bypass("offsets in storages of the caller")
    return Recorded(traced, forward.key, backward, context)


def late_halves(
    gm: GraphModule,
    traced: Traced,
    backward: GraphModule,
    context: GraphContext,
    compilers: Compilers,
) -> tuple[Any, Any, Any]:
    """What a program restored from disk needs beyond its forward."""
    compilers = replace(compilers, sizes=ProgramSizes.of(gm, context.sizes))
    program = Flat(run_graph(gm)).program
    return *_halves(program, traced, backward, context, compilers), _linking(program, compilers)


def _halves(
    program: Program,
    traced: Traced,
    backward: GraphModule,
    context: GraphContext,
    compilers: Compilers,
) -> tuple[Any, Any]:
    return (
        _compile_later(program, traced, backward, context, compilers),
        _differentiate_later(program, traced, replace(compilers, sizes=None)),
    )


def _compile_inference(traced: Traced, compilers: Compilers) -> CompiledProgram | Refusal:
    in_graph = compilers.keep_mutations and bool(traced.effects.mutations) and not traced.bits
    if in_graph:
        keep_writes(traced)
    module = make_module(traced.graph, traced.constants, "Inference")
    context = _context(compilers)
    if not in_graph:
        odd = traced.bits  # what is written to them is not what comes to lie in their memory
        writes = (
            -1 if m.differentiable or m.index in odd else m.index for m in traced.effects.mutations
        )
        context = replace(context, writes=tuple(writes))
    if not traced.effects.mutations:
        context = replace(context, steady=_parameters(module))
    events.artifact("aot_graphs", lambda: readable(module), "inference")
    compiled = compilers.inference(module, traced.inputs, context)
    if not isinstance(compiled, CompiledGraph):
        return compiled
    run = run_inference(traced, below_autograd(compiled, module), written_in_graph=in_graph)
    origin = (
        Bypass("writes to inputs in the graph")
        if in_graph
        else _origin(compiled, traced, None, context)
    )
    return CompiledProgram(run, origin, traced.random, repeatable=can_repeat(traced, compiled))


def _parameters(module: GraphModule) -> tuple[int, ...]:
    """The inputs of a graph that are parameters."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    return tuple(k for k, node in enumerate(inputs) if node.meta.get("parameter"))


def keep_writes(traced: Traced) -> None:
    """Mutations as ``copy_`` at the end of an inference graph, instead of outputs."""
    graph = traced.graph
    outputs = flat_outputs(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    end = graph.output_node()
    mutations = traced.effects.mutations
    with graph.inserting_before(end):
        for mutation, value in zip(mutations, outputs, strict=False):
            target = placeholders[mutation.index]
            write = graph.call_function(torch.ops.aten.copy_.default, (target, value))
            write.meta = {"val": target.meta["val"], "stack_trace": None}
    end.args = (outputs[len(mutations) :],)


def _partition(
    joint: GraphModule, traced: Traced, compilers: Compilers
) -> tuple[GraphModule, GraphModule]:
    extra: dict[str, Any] = {}
    if compilers.partition is min_cut_partition:
        extra["memory_budget"] = compilers.options.memory_budget
    inputs = (traced.inputs, traced.tangent_fakes)
    return compilers.partition(joint, inputs, num_fwd_outputs=traced.results, **extra)


def _compile_later(
    program: Program,
    traced: Traced,
    module: GraphModule,
    context: GraphContext,
    compilers: Compilers,
) -> Callable[[Asked, Sequence[Any]], Boxed | None]:
    """The backward for what is asked, compiled when it first runs.

    None when there is no special one: then the full backward takes zeros for what is missing.
    """
    turns = Turns()
    known: dict[Asked, Boxed | None] = {}
    every = full_backward(traced)

    def get(asked: Asked, primals: Sequence[Any]) -> Boxed | None:
        if asked not in known and len(known) >= MOST_BACKWARDS:
            asked = asked._replace(gradients=every.gradients)
        if asked not in known:
            with turns.take("backward"), quiet.compiling():
                if asked not in known:
                    full = asked.tangents == every.tangents
                    chosen = (
                        module
                        if full
                        else _part(program, traced, module, compilers, asked.tangents, primals)
                    )
                    if chosen is not None and asked.gradients != every.gradients:
                        chosen = _only(chosen, asked.gradients)
                    # a trace of its own has learnt more of sizes inside of it
                    known_sizes = context if full else _context(compilers)
                    known[asked] = chosen and _compile_backward(chosen, known_sizes, compilers)
        return known[asked]

    return get


def _only(backward: GraphModule, gradients: int) -> GraphModule:
    """A backward that computes some of its gradients only."""
    nodes = list(backward.graph.nodes)
    outputs = [
        value if gradients >> bit & 1 else None
        for bit, value in enumerate(flat_outputs(backward.graph))
    ]
    graph = extract(
        nodes, [node for node in nodes if node.op == "placeholder"], outputs, forward=False
    )
    constants = {
        str(node.target): getattr(backward, str(node.target))
        for node in nodes
        if node.op == "get_attr"
    }
    return make_module(graph, constants, "PartialBackward")


def _compile_backward(module: GraphModule, context: GraphContext, compilers: Compilers) -> Boxed:
    compiled = compilers.backward(module, _examples(module), context)
    if not isinstance(compiled, CompiledGraph):  # too late to compile anew: torch runs the graph
        compiled = CompiledGraph(torch.fx.Interpreter(module).run)
    return below_autograd(compiled, module)


def _examples(module: GraphModule) -> list[Any]:
    return [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]


def _part(
    program: Program,
    traced: Traced,
    module: GraphModule,
    compilers: Compilers,
    present: int,
    primals: Sequence[Any],
) -> GraphModule | None:
    """The backward of some of the results, from what the forward has saved for all of them.

    The forward half of a second trace has the node names of the first, so what was saved is known
    by name.
    """
    known = () if compilers.sizes is None else compilers.sizes.facts
    with torch.enable_grad(), ambient_autocast(traced.autocast):
        part = _try_trace(program, primals, compilers, present)
    if not isinstance(part, Traced):
        return None
    if compilers.sizes is not None and compilers.sizes.facts != known:
        return None  # it relies on more than the guards say
    nodes = {node.name: node for node in part.graph.nodes}
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    saved = [nodes.get(n.name, n) for n in places if not str(n.target).startswith("tangents")]
    tangents = [node for name, node in nodes.items() if name.startswith("tangents")]
    backward = [node for node in part.graph.nodes if node.meta.get("is_backward")]
    gradients = flat_outputs(part.graph)[part.results :]
    try:
        graph = extract(backward, [*saved, *tangents], gradients, forward=False)
    except InternalError:  # it needs something the full backward does without
        return None
    return make_module(graph, part.constants, "PartialBackward")


def _differentiate_later(
    program: Program, traced: Traced, compilers: Compilers
) -> Callable[[Sequence[Any], Sequence[Any], Asked], Sequence[Any]]:
    """The backward as a program of its own, traced and compiled when ``create_graph`` asks for it."""
    turns = Turns()
    known: dict[tuple[int, ...], Callable[..., Any]] = {}

    def gradients(primals: Sequence[Any], tangents: Sequence[Any], asked: Asked) -> Sequence[Any]:
        values = [*primals, *tangents]
        if len(known) >= MOST_BACKWARDS:
            asked = asked._replace(gradients=full_backward(traced).gradients)
        key: tuple[int, ...] = (
            *asked,
            torch.is_grad_enabled(),
            *(tangent.requires_grad for tangent in tangents),
        )
        if traced.sizes is not None:  # one program for each combination of sizes
            key = (*key, *traced.sizes.values(primals).values())
        if key not in known:
            with turns.take("again"), quiet.compiling():
                if key not in known:
                    again = higher_order.gradient_program(program, traced, asked)
                    second = _try_trace(again, values, compilers)
                    # functions inside of backwards may not be linear, which only now is to be seen
                    if isinstance(second, Traced) and not (second.training and second.bent):
                        known[key] = _settled(compile_traced(again, second, compilers)).call
                    else:
                        known[key] = functools.partial(higher_order.run_eagerly, again)
        return known[key](*values)

    return gradients
