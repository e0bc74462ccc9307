"""backends.verified: each call of a compiled graph compared with the same graph run by torch. For ``verify="results"``.

In: a compiler. Out: a compiler of graphs that compare themselves: results, inputs that were written, gradients, metadata and
shared memory, on copies of the inputs and with the same random numbers; then the call itself runs. What rounding may do is
measured (`differences.values`) when something differs at all.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, final

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from argand.differences.copies import copy_inputs, in_double, moved_a_bit, refusal
from argand.differences.runs import DrawnNumbers, Run, make_tangents, run
from argand.differences.telling import EQUAL, location, tell
from argand.differences.values import (
    NO_ORACLE,
    Difference,
    Noise,
    compare_metadata,
    compare_values,
    unequal,
)
from argand.protocol import CompiledGraph, Compiler, GraphContext
from argand.runtime import state
from argand.sizes.refusals import Refusal
from argand.support import events
from argand.support.dataclass import replace
from argand.support.errors import Location
from argand.support.options import Options

TURNS: Final = 6  # of each, when times are compared; the first one warms up
SLOWER: Final = 1.5  # times as long as eager is worth telling
LEAST_SECONDS: Final = 2e-4  # and by this much


def verified(compiler: Compiler, options: Options) -> Compiler:
    """The compiler of graphs that are compared with eager at each call."""

    def compile_graph(
        gm: GraphModule, example_inputs: Sequence[Any], context: GraphContext
    ) -> CompiledGraph | Refusal:
        _offer("compiling", gm, [example_inputs], context)
        compiled = compiler(gm, example_inputs, context)
        if not isinstance(compiled, CompiledGraph):
            return compiled
        return replace(
            compiled,
            call=VerifiedGraph(gm, compiled, options, example_inputs, context),
            boxed=False,
        )

    return compile_graph


def _offer(
    moment: str, graph: GraphModule, calls: Sequence[Sequence[Any]], context: GraphContext
) -> None:
    """A graph and its inputs, for whoever looks for what fails: before something may fail, and when it did."""
    is_open, grad = context.sizes is not None, torch.is_grad_enabled()
    events.record(
        "program",
        lambda: {
            "moment": moment,
            "graph": graph,
            "calls": calls,
            "dynamic": is_open,
            "grad": grad,
        },
    )


@final
class VerifiedGraph:
    """A graph and its compiled form."""

    def __init__(
        self,
        graph: GraphModule,
        compiled: CompiledGraph,
        options: Options,
        examples: Sequence[Any],
        context: GraphContext,
    ) -> None:
        self.graph, self.options, self.context = graph, options, context
        # a graph with open sizes was compiled for others than those it may fail on
        self.examples = (
            copy_inputs(examples).values
            if context.sizes is not None and not refusal(examples)
            else []
        )
        self.compiled: Callable[..., Any] = compiled.takes_inputs
        self.draws = compiled.draws
        self.by_torch = False  # while what surrounds the graph is compared
        self.calls = 0
        nodes = list(graph.graph.nodes)
        self.inputs = [str(node.name) for node in nodes if node.op == "placeholder"]
        self.outputs = [
            leaf for leaf in pytree.tree_leaves(nodes[-1].args[0]) if isinstance(leaf, Node)
        ]
        traces = (location(node.meta.get("stack_trace")) for node in nodes)
        self.where = next((place for place in traces if place is not None), None)

    def __call__(self, *inputs: Any) -> Any:
        """Compare, then run."""
        if self.by_torch:
            return self.graph.forward(*inputs)
        self.calls += 1
        reason = refusal(inputs) or _not_now()
        if reason:
            events.count("verify.skipped", detail=reason)
        else:
            random = torch.get_rng_state()
            self._offer("calling", inputs)
            try:
                if self.options.verify == "times":
                    self._time(inputs, random)
                else:
                    self._verify(inputs, random)
            finally:
                torch.set_rng_state(random)
        return self.compiled(*inputs)

    def _offer(self, moment: str, inputs: Sequence[Any]) -> None:
        _offer(
            moment, self.graph, [self.examples, inputs] if self.examples else [inputs], self.context
        )

    def _verify(self, inputs: Sequence[Any], random: torch.Tensor) -> None:
        draws = DrawnNumbers() if self.draws else None
        try:
            eager = run(_under(draws, self.graph.forward), copy_inputs(inputs), random, None)
        except Exception as error:  # the user's: the call itself raises it
            events.count("verify.skipped", detail=f"eager raises {type(error).__name__}")
            return
        events.count("verify.calls")
        tangents = make_tangents(eager.results)
        try:
            ours = run(self.compiled, copy_inputs(inputs), random, tangents)
        except Exception as error:
            raised = Difference(
                "the call", "outcomes", "returns", f"raises {type(error).__name__}: {error}"
            )
            self._offer("differs", inputs)
            tell(self.options, "a compiled graph", self.where, raised, self.calls)
            return
        oracle = _Oracle(self.graph, inputs, random, tangents, [] if draws is None else draws.kept)
        for where, difference in self._differences(eager, ours, oracle):
            self._offer("differs", inputs)
            tell(self.options, "a compiled graph", where, difference, self.calls)
            return
        events.artifact(
            "differences", lambda: f"call {self.calls} of the graph at {self.where}: equal", EQUAL
        )

    def _time(self, inputs: Sequence[Any], random: torch.Tensor) -> None:
        """Tell when the compiled form takes longer than the graph; both take turns."""
        events.count("verify.calls")
        runners = {"eager": self.graph.forward, "compiled": self.compiled}
        best = dict.fromkeys(runners, float("inf"))
        for turn in range(TURNS):
            for name, call in runners.items():
                copies = copy_inputs(inputs)
                begin = time.perf_counter()
                run(call, copies, random, None)
                if turn:
                    best[name] = min(best[name], time.perf_counter() - begin)
        if best["compiled"] > max(best["eager"] * SLOWER, best["eager"] + LEAST_SECONDS):
            self._offer("differs", inputs)
            eager, ours = (f"{best[name] * 1e3:.3f} ms" for name in runners)
            tell(
                self.options,
                "a compiled graph",
                self.where,
                Difference("the call", "times", eager, ours),
                self.calls,
            )

    def _differences(
        self, eager: Run, ours: Run, oracle: _Oracle
    ) -> Iterator[tuple[Location | None, Difference]]:
        lists = (
            ("results", [f"result {k} ({n.name})" for k, n in enumerate(self.outputs)]),
            (
                "inputs",
                [f"input {k} ({name}) after the call" for k, name in enumerate(self.inputs)],
            ),
            ("gradients", [f"gradient {k}" for k in range(len(eager.gradients))]),
        )
        for kind, names in lists:
            for number, (expected, found) in enumerate(
                zip(getattr(eager, kind), getattr(ours, kind), strict=False)
            ):
                place = names[number] if number < len(names) else f"{kind} {number}"
                difference = _compare(
                    place, expected, found, functools.partial(oracle.noise, kind, number)
                )
                if difference is not None:
                    where = self._line(number) if kind == "results" else self.where
                    yield where, difference
        for number, (expected, found) in enumerate(zip(eager.aliases, ours.aliases, strict=False)):
            if expected != found:
                yield (
                    self._line(number),
                    Difference(f"result {number}", "memories", expected, found),
                )
        if len(eager.results) != len(ours.results):
            counts = str(len(eager.results)), str(len(ours.results))
            yield self.where, Difference("the call", "numbers of results", *counts)

    def _line(self, number: int) -> Location | None:
        if number >= len(self.outputs):
            return self.where
        return location(self.outputs[number].meta.get("stack_trace")) or self.where


@final
class _Oracle:
    """Eager in double precision, and on inputs moved by a bit: run when something differs."""

    def __init__(
        self,
        graph: GraphModule,
        inputs: Sequence[Any],
        random: torch.Tensor,
        tangents: Sequence[torch.Tensor | None],
        drawn: list[torch.Tensor],
    ) -> None:
        self.graph, self.inputs, self.random, self.tangents, self.drawn = (
            graph,
            inputs,
            random,
            tangents,
            drawn,
        )
        self._runs: tuple[Run | None, Run | None] | None = None

    def noise(self, kind: str, number: int) -> Noise:
        """What is known of one value."""
        if self._runs is None:
            exact = self._run(DrawnNumbers(self.drawn, double=True), in_double)
            self._runs = (
                exact,
                self._run(DrawnNumbers(self.drawn) if self.drawn else None, moved_a_bit),
            )
        values = [
            None if made is None else _nth(getattr(made, kind), number) for made in self._runs
        ]
        return Noise(*values) if any(value is not None for value in values) else NO_ORACLE

    def _run(
        self, draws: DrawnNumbers | None, change: Callable[[torch.Tensor], torch.Tensor]
    ) -> Run | None:
        try:
            copies = copy_inputs(self.inputs, change)
            return run(_under(draws, self.graph.forward), copies, self.random, self.tangents)
        # ops that have no double precision: the tolerance of the type has to do
        except Exception as error:
            events.count("verify.no_oracle", detail=f"{type(error).__name__}: {error}")
            return None


def _nth(values: Sequence[Any], number: int) -> torch.Tensor | None:
    value = values[number] if number < len(values) else None
    return value if isinstance(value, torch.Tensor) else None


def _under(draws: DrawnNumbers | None, graph: Callable[..., Any]) -> Callable[..., Any]:
    """The graph in a mode."""
    if draws is None:
        return graph

    def call(*inputs: Any) -> Any:
        with draws:
            return graph(*inputs)

    return call


def _compare(
    place: str, expected: Any, found: Any, noise: Callable[[], Noise]
) -> Difference | None:
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        same = type(expected) is type(found) and (expected == found or expected != expected)
        return None if same else Difference(place, "values", repr(expected), repr(found))
    difference = compare_metadata(place, expected, found)
    if difference is not None:
        return difference
    expected, found = expected.detach(), found.detach()
    if (
        expected.layout is torch.strided
        and not expected.is_quantized
        and not bool(unequal(expected, found).any())
    ):
        return None
    return compare_values(place, expected, found, noise())


def _not_now() -> str:
    """Why a call cannot be run more than once."""
    if state.is_watched():
        return "a mode or a transform follows each operation"
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return "hooks of saved tensors"
    return ""
