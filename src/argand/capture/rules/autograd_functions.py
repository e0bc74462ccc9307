"""capture.rules.autograd_functions: `torch.autograd.Function.apply` is one node of the graph.

In: the class and the arguments of the call. Out: the node. Before, `forward` and `backward` are interpreted once
for the guards on what they read: what they compute is dropped. One that changes anything outside, or that
cannot be interpreted, is a graph break. With modules or other objects among the arguments, which no node takes, they are
graphs of their own (`ops.function_graphs`).
"""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from argand.capture.objects import attributes, polyfills
from argand.capture.objects.parts import GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.record.recorder import Recorder
from argand.capture.rules.branches import (
    Branch,
    BranchRecorder,
    check_own,
    close_branch,
    refused,
    trace_branch,
)
from argand.capture.rules.control_flow import joined
from argand.capture.sizes.frame_sizes import tensors_in
from argand.ops.function_graphs import OF_USERS, apply_graphs
from argand.support.errors import Break, CaptureBreak

_BASE: Final = torch.autograd.Function
APPLY: Final = torch.autograd.Function.__dict__["apply"].__func__


@functools.lru_cache(maxsize=256)
def _apply_of(kind: Any) -> Any:
    """`kind.apply` under a name that generated graph code can print."""

    def apply(*args: Any) -> Any:
        return kind.apply(*args)

    apply.__name__ = apply.__qualname__ = f"{kind.__name__}_apply"
    apply.__module__ = OF_USERS
    return apply


def call(tracer: Tracer, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`kind.apply(*args)`."""
    if not kwargs and not all(_fits(tracer, value) for value in args):
        return _by_interpreting(tracer, kind, args)
    recorder, before, last = tracer.recorder, tracer.written(), tracer.recorder.graph._root.prev
    kept, nodes = (
        (set(recorder.keep), recorder.calls, recorder.mutated_inputs),
        dict(recorder.nodes),
    )
    own = _own(recorder, args)
    rehearsed, gradients = _rehearse(tracer, kind, args)
    reads_more = _reads_more(recorder, last, own, (args, rehearsed, gradients))
    # So that the nodes of the rehearsal are dead; a tensor that it changed in place is what it was before.
    recorder.keep, recorder.calls, recorder.mutated_inputs = kept
    recorder.nodes.update(nodes)
    if tracer.written() != before:
        broken = CaptureBreak(
            Break.B013, None, what=f"{kind.__name__}, which changes things outside"
        )
        broken.native = True
        raise broken
    if reads_more and not kwargs:
        return _by_interpreting(tracer, kind, args)
    return _with_numbers(recorder.call_function(_apply_of(kind), args, kwargs), rehearsed)


def _by_interpreting(tracer: Tracer, kind: Any, args: tuple[Any, ...]) -> Any:
    """`apply` of what is more than a node of its arguments."""
    if _is_recorded(args):
        return _as_graphs(tracer, kind, args)
    return _without_gradients(tracer, kind, args)


def _own(recorder: Recorder, args: tuple[Any, ...]) -> set[torch.fx.Node]:
    """The nodes of arguments."""
    own: set[torch.fx.Node] = set()
    torch.fx.node.map_arg(recorder.argument(args), own.add)
    return own


def _reads_more(
    recorder: Recorder, last: torch.fx.Node, own: set[torch.fx.Node], given_back: Any
) -> bool:
    """Whether what was recorded after a node, or is given back, has tensors or sizes that are neither arguments nor made there."""
    node, root = last.next, recorder.graph._root
    while node is not root:
        if node.op != "placeholder":
            if not own.issuperset(node.all_input_nodes):
                return True
            own.add(node)
        node = node.next
    return any(recorder.nodes.get(id(value)) not in own for value in tensors_in(given_back))


def _with_numbers(made: Any, rehearsed: Any) -> Any:
    """Tensors of the node; numbers and other objects of the rehearsal: the node has those of a sample of sizes."""
    if isinstance(made, torch.Tensor):
        return made
    if type(made) in (tuple, list) and type(rehearsed) is type(made):
        return type(made)(map(_with_numbers, made, rehearsed))
    return rehearsed


def _is_recorded(args: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in args
    )


def _fits(state: GraphState, value: Any) -> bool:
    """Whether a value can be an argument of a node."""
    try:
        state.recorder.argument(value)
    except CaptureBreak as cause:
        if cause.row is Break.B009:  # a module, a function, another object
            return False
        raise
    return True


def _without_gradients(tracer: Tracer, kind: Any, args: tuple[Any, ...]) -> Any:
    """`apply` of which no gradient is recorded is `forward`, with gradients off; modules among the arguments are read there."""
    context: Any = torch.autograd.function.FunctionCtx()
    context.needs_input_grad, context.to_save = (False,) * len(args), ()
    combined = kind.setup_context is torch.autograd.Function.setup_context
    forward = attributes.load(tracer, kind, "forward")
    result = tracer.sealed(
        polyfills.without_gradients, (forward, (context, *args) if combined else args), {}
    )
    if not combined:
        tracer.sealed(attributes.load(tracer, kind, "setup_context"), (context, args, result), {})
    results = result if isinstance(result, tuple) else (result,)
    if any(
        value is given for value in results for given in args if isinstance(given, torch.Tensor)
    ):
        broken = CaptureBreak(
            Break.B013, None, what=f"{kind.__name__}, which gives back what it was given"
        )
        broken.native = True  # eager gives a view of it
        raise broken
    return result


def _rehearse(tracer: Tracer, kind: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Interpret `forward` and `backward`; what they give."""
    context: Any = torch.autograd.function.FunctionCtx()
    differentiable = [isinstance(value, torch.Tensor) and value.requires_grad for value in args]
    context.needs_input_grad, context.to_save = tuple(differentiable), ()
    recorded, base = torch.is_grad_enabled() and any(differentiable), torch.autograd.Function
    with torch.no_grad():
        if kind.setup_context is base.setup_context:
            result = tracer.sealed(attributes.load(tracer, kind, "forward"), (context, *args), {})
        else:
            result = tracer.sealed(attributes.load(tracer, kind, "forward"), args, {})
            tracer.sealed(
                attributes.load(tracer, kind, "setup_context"), (context, args, result), {}
            )
    if not recorded:
        return result, None
    context.saved_tensors = context.to_save
    results = result if isinstance(result, tuple) else (result,)
    like = tracer.recorder.call_function
    grads = [
        like(torch.empty_like, (value,), {}) if isinstance(value, torch.Tensor) else None
        for value in results
    ]
    backward = "backward" if kind.vjp is base.vjp else "vjp"
    return result, tracer.sealed(attributes.load(tracer, kind, backward), (context, *grads), {})


def _as_graphs(tracer: Tracer, kind: Any, args: tuple[Any, ...]) -> Any:
    """`apply` with arguments that are no values of a graph: its forward and its backward are graphs of their own."""
    name, recorder = kind.__name__, tracer.recorder
    if _says_once(kind):
        raise refused(name, "its backward cannot be differentiated, and says so when it is")
    places = [place for place, value in enumerate(args) if isinstance(value, torch.Tensor)]
    given = [args[place] for place in places]
    context: Any = torch.autograd.function.FunctionCtx()
    needs = [isinstance(value, torch.Tensor) and value.requires_grad for value in args]
    context.needs_input_grad, context.to_save = tuple(needs), ()

    def kept(inner: BranchRecorder) -> list[torch.Tensor]:
        held = tensors_in((context.to_save, list(vars(context).values())))
        own = [value for value in held if id(value) in inner.nodes and not inner.outer.knows(value)]
        return list({id(value): value for value in own}.values())

    with torch.no_grad():
        forward = trace_branch(
            tracer, name, *_forward_of(tracer, kind, context, args), given, kept=kept
        )
        count = forward.structure.num_leaves
        check_own(name, forward._replace(results=forward.results[:count]))
        results = _checked_results(name, context, forward.results[:count])
        tangents = [torch.empty_like(value) for value in results]
        context.saved_tensors = context.to_save
        backward = trace_branch(
            tracer,
            name,
            attributes.load(tracer, kind, "backward" if kind.vjp is _BASE.vjp else "vjp"),
            (context, *tangents),
            (*tangents, *forward.results),
        )
    found = _gradients_of(name, backward, [needs[place] for place in places], places, len(args))
    return _emit(recorder, forward, backward, given, found)


def _says_once(kind: Any) -> bool:
    """Whether the backward is under `once_differentiable`."""
    code = getattr(kind.backward, "__code__", None)
    return code is not None and code.co_qualname.startswith("once_differentiable.")


def _forward_of(
    tracer: Tracer, kind: Any, context: Any, args: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...]]:
    """What is called, and with what."""
    forward = attributes.load(tracer, kind, "forward")
    if kind.setup_context is _BASE.setup_context:
        return forward, (context, *args)
    setup = attributes.load(tracer, kind, "setup_context")
    return polyfills.forward_and_context, (forward, setup, context, args)


def _checked_results(name: str, context: Any, results: list[Any]) -> list[torch.Tensor]:
    """The results, if they are floats, new, and nothing else is said of them."""
    said = {"dirty_tensors", "non_differentiable", "materialize_grads"} & vars(context).keys()
    if said or not all(
        isinstance(value, torch.Tensor) and value.is_floating_point() for value in results
    ):
        raise refused(name, "its context says more of its results, or they are no floats")
    return results


def _gradients_of(
    name: str, backward: Branch, needs: list[bool], places: list[int], count: int
) -> list[int]:
    """The tensors among the arguments that get a gradient; the backward gives no others from now on."""
    listed = backward.results if isinstance(backward.results, list) else [backward.results]
    if len(listed) != count:
        raise refused(name, f"its backward gives {len(listed)} gradients for {count} arguments")
    found = [
        index
        for index, place in enumerate(places)
        if needs[index] and isinstance(listed[place], torch.Tensor)
    ]
    (output,) = [node for node in backward.graph.nodes if node.op == "output"]
    nodes: Any = output.args[0]
    output.args = (tuple(nodes[places[index]] for index in found),)
    return found


def _emit(
    recorder: Recorder,
    forward: Branch,
    backward: Branch,
    given: list[torch.Tensor],
    wanted: list[int],
) -> Any:
    graphs, operands = [], [recorder.node_of(value) for value in given]
    for name, branch in (("forward", forward), ("backward", backward)):
        lifted = [(key, outer) for key, (_, outer) in branch.lifted.items()]
        graphs.append(recorder.submodule(name, close_branch(branch, lifted, name)))
        operands += [outer for _, outer in lifted]
    first, count = len(given) + len(forward.lifted), forward.structure.num_leaves
    made = joined(forward.results[:count], given)
    target_args = (*graphs, first, count, tuple(wanted), *operands)
    recorder.add_call(apply_graphs, target_args, tuple(made))
    return pytree.tree_unflatten(made, forward.structure)
