"""autograd.linked: programs whose gradients are differentiated again (``create_graph=True``), at the price of eager.

What the backward reads of the forward are results of the graph here, which autograd knows. So gradients are a
program of them and of the tangents that need not run the forward again, and whatever flows back into them reaches
the forward once. In: a program that trains, and its inputs. Out: a callable like that of ``runtime.run_training``;
None for programs that write to inputs, return views or draw random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, final

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from argand.autograd.graphs import extract, flat_outputs, make_module
from argand.autograd.outputs import Traced
from argand.autograd.programs import Program, run_graph
from argand.autograd.runtime import MOST_BACKWARDS, Asked, full_backward
from argand.autograd.tangents import Places
from argand.ops.fakes import FakeMode, fake_of
from argand.protocol import Boxed
from argand.runtime import _native, quiet
from argand.support.locks import Turns

_SCATTERS: Final = frozenset(
    getattr(torch.ops.aten, f"{name}_scatter").default
    for name in ("select", "diagonal", "as_strided")
) | {torch.ops.aten.slice_scatter.default}

# Torch's derivative of it keeps what was overwritten and drops the rest. Eager never asks for it: writes to views have
# a history of their own there, which becomes this op when it is recorded.
_WRONG_DERIVATIVES: Final = frozenset({torch.ops.aten.as_strided_scatter.default})


class Tools(Protocol):
    """What ``autograd.aot`` does for a program."""

    def trace(self, program: Program, inputs: Sequence[Any], only: int = -1) -> Traced | None:
        """A traced program, for some of its tangents, in ops that autograd knows; None if that cannot be."""

    def halves(self, traced: Traced) -> tuple[GraphModule, GraphModule]:
        """Its forward and backward."""

    def compile(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """A callable that can be differentiated."""

    def code(self, module: GraphModule) -> Boxed:
        """A compiled graph."""


def link(program: Program, inputs: Sequence[Any], tools: Tools) -> Callable[..., Any] | None:
    """The program for these inputs with linked gradients."""
    traced = tools.trace(program, inputs)
    if (
        traced is None
        or not _is_plain(traced)
        or not all(isinstance(x, torch.Tensor) for x in inputs)
    ):
        return None
    forward, _ = tools.halves(traced)
    outputs = flat_outputs(forward.graph)
    kept = [node for node in dict.fromkeys(outputs[traced.results :]) if node.op != "placeholder"]
    places = [node for node in forward.graph.nodes if node.op == "placeholder"]
    graph = extract(forward.graph.nodes, places, [*outputs[: traced.results], *kept], forward=True)
    wider = run_graph(make_module(graph, traced.constants, "Linked"))
    whole = tools.trace(wider, inputs)
    if (
        whole is None
        or not _can_be_differentiated(whole)
        or not _is_plain(whole)
        or traced.tangents != [k for k in whole.tangents if k < traced.results]
    ):
        return None  # a result that was overwritten has a history all the same, which aten does not tell
    gradients = _Gradients(wider, inputs, whole, tools)
    # torch takes other formulas where what is kept has no tangent, as when only results are differentiated
    usual = gradients.part((1 << len(traced.tangents)) - 1)
    if not _have_derivatives(_behind(usual)):
        return None
    apply = _make_function(gradients)
    return lambda *values: apply(*values)[: traced.results]


def _can_be_differentiated(whole: Traced) -> bool:
    """Whether autograd knows all ops that the gradients are made of; writes in eager's formulas became some it does not."""
    if any(node.target in _WRONG_DERIVATIVES for node in whole.graph.nodes):
        return False
    ops = [
        (node.target, node.meta.get("val")) for node in _behind(whole) if node.op == "call_function"
    ]
    written = [value for op, value in ops if op in _SCATTERS and isinstance(value, torch.Tensor)]
    copies = any(op is torch.ops.aten.copy.default for op, _ in ops)
    return (
        not copies
        and not any(value.is_complex() for value in written)
        and _have_derivatives(_behind(whole))
    )


def _have_derivatives(nodes: Sequence[Node]) -> bool:
    """Whether torch can differentiate the ops; it takes others where it is asked for a history (``logit``)."""
    firsts = {node.target: node for node in reversed(nodes) if isinstance(node.target, OpOverload)}
    with torch.enable_grad(), FakeMode():
        return not any(_ends_history(node) for node in firsts.values())


def _ends_history(node: Node) -> bool:
    given = pytree.tree_map(_leaf_like, (node.args, node.kwargs))
    try:
        results = node.target(*given[0], **given[1])
    except RuntimeError:  # there is no derivative for one of its arguments
        return True
    histories = [
        t.grad_fn
        for t in pytree.tree_leaves(results)
        if isinstance(t, torch.Tensor) and t.grad_fn is not None
    ]
    return any(history.name() == "torch::autograd::NotImplemented" for history in histories)


def _leaf_like(value: Any) -> Any:
    fake = value.meta.get("val") if isinstance(value, Node) else None
    if not isinstance(fake, torch.Tensor):
        return value
    return fake.detach().requires_grad_(fake.is_floating_point() or fake.is_complex())


def _is_plain(traced: Traced) -> bool:
    """Whether the results are new tensors, whatever the inputs are, and nothing else happens."""
    odd = (
        traced.copied_inputs,
        traced.flipped_inputs,
        traced.view_results,
        traced.random,
        traced.autocast,
        traced.bits,
        traced.effects.bumps,
        traced.cut,
    )
    fresh = all(
        row.source == "fresh" and row.how == "self" and row.index == k
        for k, row in enumerate(traced.effects.rows)
    )
    return traced.training and fresh and not traced.effects.mutations and not any(odd)


@final
class _Gradients:
    """The gradients of a program from its inputs, its results and tangents: code for each question."""

    def __init__(
        self, program: Program, inputs: Sequence[Any], whole: Traced, tools: Tools
    ) -> None:
        self.program, self.whole, self.tools = program, whole, tools
        # like the inputs, which must not live as long as this
        self.examples = [fake_of(x) for x in inputs]
        joint = whole.graph
        places = [
            n
            for n in joint.nodes
            if n.op == "placeholder" and not str(n.target).startswith("tangents")
        ]
        graph = extract(joint.nodes, places, flat_outputs(joint)[: whole.results], forward=True)
        self.forward = tools.code(make_module(graph, whole.constants, "Forward"))
        self.read = _read_behind(whole)
        self.turns = Turns()
        self.parts: dict[int, Traced] = {}
        self.modules: dict[Asked, tuple[GraphModule, list[int]]] = {}
        self.plain: dict[Asked, Boxed] = {}
        self.differentiable: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def part(self, tangents: int) -> Traced:
        """The program with the gradients of some of its tangents."""
        if tangents not in self.parts:
            part = self.tools.trace(self.program, self.examples, tangents)
            assert part is not None, "some tangents of a program that has them all"
            self.parts[tangents] = part
        return self.parts[tangents]

    def module(self, asked: Asked) -> tuple[GraphModule, list[int]]:
        """(what is kept, tangents) -> gradients, as a graph, and which gradients these are."""
        if asked not in self.modules:
            part = self.part(asked.tangents)
            known, tangents, made = _ends(part)
            wanted = [bit for bit in made if asked.gradients >> bit & 1]
            given = [*(known[k] for k in self.read), *tangents]
            graph = extract(_behind(part), given, [made[bit] for bit in wanted], forward=False)
            self.modules[asked] = make_module(graph, part.constants, "Gradients"), wanted
        return self.modules[asked]

    def run(self, asked: Asked, values: list[Any]) -> list[Any]:
        """The gradients, None for those not wanted; with a history where grad mode is on."""
        if asked not in self.modules and len(self.modules) >= MOST_BACKWARDS:
            asked = asked._replace(gradients=full_backward(self.whole).gradients)
        results: list[Any] = [None] * len(self.whole.differentiable)
        made = self._run(asked, values)
        for bit, gradient in zip(self.modules[asked][1], made, strict=True):
            results[bit] = gradient
        return results

    def _run(self, asked: Asked, values: list[Any]) -> Sequence[Any]:
        if not torch.is_grad_enabled():
            if asked not in self.plain:
                with self.turns.take("link"), quiet.compiling():
                    if asked not in self.plain:
                        self.plain[asked] = self.tools.code(self.module(asked)[0])
            return self.plain[asked](values)
        key = (asked, *(value.requires_grad for value in values))
        if key not in self.differentiable:
            with self.turns.take("link"), quiet.compiling():
                if key not in self.differentiable:
                    self.differentiable[key] = self._differentiable(asked, values)
        return self.differentiable[key](*values)

    def _differentiable(self, asked: Asked, values: Sequence[Any]) -> Callable[..., Any]:
        return self.tools.compile(self.module(asked)[0], values)


def _ends(part: Traced) -> tuple[list[Node], list[Node], dict[int, Node]]:
    """Of a joint graph: its inputs and results, its tangents, and the gradients that it has by their places."""
    places = [node for node in part.graph.nodes if node.op == "placeholder"]
    outputs = flat_outputs(part.graph)
    made = {bit: node for bit, node in enumerate(outputs[part.results :]) if isinstance(node, Node)}
    return [*places[: len(part.inputs)], *outputs[: part.results]], places[len(part.inputs) :], made


def _behind(part: Traced) -> list[Node]:
    return [node for node in part.graph.nodes if node.meta.get("is_backward")]


def _read_behind(whole: Traced) -> list[int]:
    """Which of the inputs and results the gradients are made of.

    The others are not kept: a program may write to them before it asks for gradients, as it may in eager.
    """
    known, tangents, made = _ends(whole)
    graph = extract(_behind(whole), [*known, *tangents], list(made.values()), forward=False)
    places = [node for node in graph.nodes if node.op == "placeholder"]
    returned = set(flat_outputs(graph))
    return [k for k, place in enumerate(places[: len(known)]) if place.users or place in returned]


def _make_function(gradients: _Gradients) -> Callable[..., Any]:
    """``apply`` of the autograd function of a program."""
    places = Places(gradients.whole)
    constant, forward, read = places.constant, gradients.forward, gradients.read

    class LinkedFunction(torch.autograd.Function):
        """A compiled graph that keeps inputs and results, and nothing else, for its gradients."""

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            """Run the forward."""
            ctx.set_materialize_grads(False)
            outputs = tuple(forward(list(args)))
            known = (*args, *outputs)
            ctx.save_for_backward(*[known[k] for k in read])
            if constant:
                ctx.mark_non_differentiable(*[outputs[k] for k in constant])
            return outputs

        @staticmethod
        @_native.disabled  # as in `runtime`: it may compile
        def backward(ctx: Any, *grads: Any) -> Any:
            """Compute the gradients that are wanted."""
            present, tangents = places.gather(grads, None)
            if not present:
                return (None,) * places.inputs
            asked = Asked(present, places.wanted(ctx.next_functions))
            return places.scatter(
                gradients.run(asked, [*(ctx.saved_tensors if read else ()), *tangents]), present
            )

    return super(torch.autograd.Function, LinkedFunction).apply
