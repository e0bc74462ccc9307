"""autograd.bodies: branches of operators that take graphs, as aten graphs of their own.

In: a program (a branch as captured, or the gradient of one) and fakes of what it is called with. Out: ``BranchGraph``: an aten
graph, functional, whose results lie dense in memory of their own; or ``Halves``: its forward and backward with what is
kept in between. The recorder of the graph around it is set aside while the branch is traced by one of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, final

import torch
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _pop_mode, _push_mode

from argand.autograd.geometry import aten
from argand.autograd.graphs import flat_outputs, is_view, make_module, remove_dead
from argand.autograd.nodes import hold
from argand.autograd.outputs import Untraceable
from argand.autograd.partition import min_cut_partition
from argand.autograd.recorder import AtenRecorder
from argand.autograd.recording import (
    NoPeeking,
    drop_history,
    own_memory,
    record_backward,
    run_engine,
)
from argand.ops.fakes import fake_of
from argand.ops.layout import contiguous
from argand.protocol import Boxed, CompiledGraph
from argand.runtime import _native
from argand.runtime.disk.graphs import constants_of
from argand.sizes.expressions import SizeInt

Program = Callable[[AtenRecorder, list[Any]], Sequence[Any]]


@final
class BranchGraph(NamedTuple):
    """A branch as an aten graph; it takes tensors, and then all open sizes of the program around it."""

    module: GraphModule
    results: list[torch.Tensor]


@final
class Saved(NamedTuple):
    """Where the backward of a branch gets a value from: an input of the forward, or something it kept."""

    source: str  # input, kept, size
    place: int
    size: Any = None


@final
class Halves(NamedTuple):
    """A branch cut in two: the forward gives its results and then what it keeps."""

    forward: Program
    backward: GraphModule  # takes what is saved, in this order, and then the tangents
    saved: list[Saved]
    kept: int
    tangents: list[int]  # results that take a gradient


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Without the modes that watch the program around: as inside of their own handlers."""
    modes = []
    while torch._C._len_torch_dispatch_stack():
        modes.append(_pop_mode())
    try:
        yield
    finally:
        for mode in reversed(modes):
            _push_mode(mode)


def sizes_of(recorder: AtenRecorder) -> list[Node]:
    """The inputs of a graph that are open sizes."""
    places = [node for node in recorder.graph.nodes if node.op == "placeholder"]
    return [node for node in places if isinstance(node.meta.get("val"), SizeInt)]


def _start(
    outer: AtenRecorder, inputs: Sequence[torch.Tensor], wanted: Sequence[int]
) -> tuple[AtenRecorder, list[Any]]:
    """A recorder for a branch, and the fakes of its inputs."""
    recorder = AtenRecorder(outer.decompositions, outer.sizes, eager_draws=outer.eager_draws)
    recorder.open = set(outer.open)
    fakes = []
    for number, value in enumerate(inputs):
        fake = fake_of(value.detach())
        recorder.input(fake.requires_grad_() if number in wanted else fake, f"primals_{number + 1}")
        fakes.append(fake)
    for number, size in enumerate(sizes_of(outer), len(fakes) + 1):
        recorder.input(size.meta["val"], f"primals_{number}")
    return recorder, fakes


def _finish(outer: AtenRecorder, recorder: AtenRecorder, outputs: Any, name: str) -> GraphModule:
    if any(m.source == "input" and m.version for m in recorder.aliasing.memories.values()):
        raise Untraceable("a branch writes to what it is given")
    recorder.graph.output(outputs)
    remove_dead(recorder.graph)
    drop_history(recorder.graph)
    outer.draws += recorder.draws
    return make_module(recorder.graph, recorder.constants, name)


def _dense_results(recorder: AtenRecorder, results: Sequence[torch.Tensor]) -> list[Node]:
    """Nodes of results, each computed into dense memory of its own."""
    nodes = own_memory(recorder, results, 0)
    for place, (node, value) in enumerate(zip(nodes, results, strict=True)):
        if is_view(node) or node.meta["val"].stride() != contiguous(value.shape):
            tail = {"memory_format": torch.contiguous_format}
            nodes[place] = recorder.emit(aten.clone.default, (node,), tail, share=False)
    return nodes


def trace_body(
    outer: AtenRecorder, program: Program, inputs: Sequence[torch.Tensor], *, single: bool = False
) -> BranchGraph:
    """A branch as it is, without gradients; ``single``: it gives a tensor, no tuple."""
    with aside(), torch.no_grad():
        recorder, fakes = _start(outer, inputs, ())
        with recorder, NoPeeking():
            results = list(program(recorder, fakes))
        nodes = _dense_results(recorder, results)
        module = _finish(outer, recorder, nodes[0] if single else tuple(nodes), "BranchGraph")
        return BranchGraph(module, [node.meta["val"] for node in nodes])


def halve(
    outer: AtenRecorder,
    program: Program,
    inputs: Sequence[torch.Tensor],
    wanted: Sequence[int],
    run: Any,
) -> Halves:
    """A branch with its derivative by the inputs in ``wanted``, cut in two. ``run`` makes programs of graphs."""
    with aside():
        recorder, fakes = _start(outer, inputs, wanted)
        with torch.enable_grad(), recorder, NoPeeking():
            results = list(program(recorder, fakes))
        nodes = own_memory(recorder, results, 0)
        tangents = [k for k, value in enumerate(results) if value.requires_grad]
        leaves = [fakes[index] for index in wanted]
        gradients, tangent_fakes = record_backward(
            recorder, results, tangents, leaves, accumulate=False
        )
        gradients = gradients or [None] * len(wanted)
        joint = _finish(outer, recorder, [*nodes, *gradients], "Joint")
        places = [node for node in joint.graph.nodes if node.op == "placeholder"]
        forward, backward = min_cut_partition(
            joint, [*fakes, *tangent_fakes], num_fwd_outputs=len(nodes)
        )
    saved, chosen = _read_saved(forward, [node.name for node in places], len(fakes), len(nodes))
    picked = [*range(len(nodes)), *chosen]
    run_forward = run(forward)

    def program_of_forward(inner: AtenRecorder, values: list[Any]) -> Sequence[Any]:
        every = run_forward(inner, [*values, *(node.meta["val"] for node in sizes_of(inner))])
        return [every[k] for k in picked]

    return Halves(program_of_forward, backward, saved, len(chosen), tangents)


def _read_saved(
    forward: GraphModule, names: list[str], inputs: int, count: int
) -> tuple[list[Saved], list[int]]:
    """What the backward takes, and which outputs of the forward that are no inputs."""
    saved: list[Saved] = []
    chosen: list[int] = []
    for place, node in enumerate(flat_outputs(forward.graph)[count:], count):
        if node.op != "placeholder":
            saved.append(Saved("kept", len(chosen)))
            chosen.append(place)
        elif isinstance(node.meta["val"], SizeInt):
            saved.append(Saved("size", 0, node.meta["val"]))
        else:
            index = names.index(node.name)
            assert index < inputs
            saved.append(Saved("input", index))
    return saved, chosen


def emit_call(
    outer: AtenRecorder,
    target: Any,
    bodies: Sequence[BranchGraph],
    arrange: Callable[..., Any],
    results: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """A node of an operator over bodies. ``arrange``: its arguments, of the nodes of the graphs and of all sizes."""
    graphs = []
    for body in bodies:
        name = f"body_{len(outer.constants)}"
        outer.constants[name] = body.module
        node = outer.graph.create_node("get_attr", name, name=name)
        node.meta["is_backward"] = outer.backward
        graphs.append(node)
    held = [hold(value) for value in results]
    node = outer.emit(target, arrange(graphs, sizes_of(outer)), {}, tuple(held), share=False)
    outer.own(node, tuple(held))
    return list(results)


def below_autograd(compiled: CompiledGraph, module: GraphModule) -> Boxed:
    """The call of a compiled graph. Operators that take graphs ask their arguments whether autograd is wanted.

    So where somebody else than our launcher runs them, autograd is taken out of the way.
    """
    call = compiled.takes_list
    inner = any(isinstance(found, GraphModule) for found in constants_of(module).values())
    if not inner or isinstance(compiled.call, _native.Plan):
        return call

    def run(inputs: list[Any]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return call(inputs)

    return run


RunBody = Callable[[Any], Program]


def is_float(value: Any) -> bool:
    """Whether a value is a tensor that can have a gradient."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def needs_gradient(values: Sequence[Any]) -> bool:
    """Whether autograd follows what is computed from these now."""
    return torch.is_grad_enabled() and any(
        isinstance(v, torch.Tensor) and v.requires_grad for v in values
    )


def only_tensors(program: Program, operands: Sequence[Any]) -> tuple[Program, list[torch.Tensor]]:
    """A program of the tensors among its operands; the sizes are what they are."""
    places = [k for k, value in enumerate(operands) if isinstance(value, torch.Tensor)]
    others = list(operands)

    def of_tensors(recorder: AtenRecorder, inputs: list[Any]) -> Sequence[Any]:
        values = list(others)
        for place, value in zip(places, inputs, strict=True):
            values[place] = value
        result = program(recorder, values)
        return (result,) if isinstance(result, torch.Tensor) else result

    return of_tensors, [operands[k] for k in places]


def gradient_of(
    program: Program, count: int, wanted: Sequence[int], tangents: Sequence[int]
) -> Program:
    """(inputs, tangents) -> the gradients of the inputs in ``wanted``, zeros where there is none."""

    def gradients(recorder: AtenRecorder, values: list[Any]) -> Sequence[Any]:
        inputs, given = values[:count], dict(zip(tangents, values[count:], strict=True))
        again = any(value.requires_grad for value in values)
        with torch.enable_grad():
            leaves = [
                x if x.requires_grad else x.detach().requires_grad_()
                for x in (inputs[i] for i in wanted)
            ]
            for place, leaf in zip(wanted, leaves, strict=True):
                inputs[place] = leaf
            results = list(program(recorder, inputs))
            chosen = [k for k in given if results[k].requires_grad]
            ends, starts = [results[k] for k in chosen], [given[k] for k in chosen]
            found = (
                run_engine(ends, starts, leaves, create_graph=again)
                if ends
                else [None] * len(leaves)
            )
        return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]

    return gradients
