"""backends.trial: never slower than eager. In: the captured graph and what was made of it. Out: a callable.

The first calls take turns between the two; from then on the faster one runs. Each call runs once, on one
of them, so a trial costs nothing and graphs with effects may take part. A call that trains is timed with
its backward pass, from the first gradient of a result to the last one of an input. Not tried: what draws
random numbers (a seed must give the same numbers again), what was compiled to need less memory or is called
under a checkpoint, what is differentiated twice, and what is too short for the difference to matter.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.autograd.graph import get_gradient_edge
from torch.fx import GraphModule

from argand.protocol import CompiledGraph
from argand.support import events
from argand.support.dataclass import replace
from argand.support.options import Options

SHORT: Final = 2e-4  # seconds below which compiled code wins by its overhead alone
MARGIN: Final = 1.05  # eager must be faster by this much: below, it is the noise of the machine
TURNS: Final = 3  # timed calls of each
SURE: Final = 8  # the same before compiled code is given up: a few slow calls may be the machine's
PATIENCE: Final = 8  # calls to wait for the backward pass of one


def can_try(compiled: CompiledGraph, example_inputs: Sequence[Any], options: Options) -> bool:
    """Whether calls of a graph that was compiled to this may take turns."""
    if not options.measure or torch.are_deterministic_algorithms_enabled():
        return False
    if options.memory_budget < 1 and _trains(example_inputs):
        return False
    return not compiled.draws and not compiled.repeatable  # eager's turn could not begin anew


def never_slower(
    graph: GraphModule, compiled: CompiledGraph, forget: Callable[[], None]
) -> CompiledGraph:
    """The faster of a graph and its compiled form, found out in the first calls.

    Compiled code that lost is to ``forget``: what is restored from disk is not tried again.
    """
    trial = _Trial(
        graph.forward, compiled.takes_inputs, forget, functools.partial(_first_line, graph)
    )

    def run(*inputs: Any) -> Any:
        return trial.chosen(*inputs) if trial.chosen else trial.turn(inputs)

    return replace(compiled, call=run, boxed=False)


class _Trial:
    """Two callables taking turns until one is chosen."""

    def __init__(
        self,
        eager: Callable[..., Any],
        compiled: Callable[..., Any],
        forget: Callable[[], None],
        origin: Callable[[], str] = str,
    ) -> None:
        self._origin = origin
        self.chosen: Callable[..., Any] | None = None
        self._eager, self._compiled, self._forget = eager, compiled, forget
        self._turns = 0
        self._waited = -1  # calls since the one whose backward pass has not come; -1: none is out
        self._seconds: dict[bool, list[float]] = {True: [], False: []}  # of eager, and ours

    def turn(self, inputs: tuple[Any, ...]) -> Any:
        """Run one of the two under the clock."""
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            # torch.utils.checkpoint
            self._give_up("what is saved may be computed again, in the same way")
            return self._compiled(*inputs)
        if self._waited >= 0:  # one step at a time
            self._waited += 1
            if self._waited > PATIENCE:
                self._give_up("no backward pass came")
            return self._compiled(*inputs)
        turn, self._turns = self._turns, self._turns + 1
        # compiled twice, then in turns; the first of each warms up
        eager = turn >= 2 and turn % 2 == 0
        events.count("native.turn", detail="eager" if eager else "compiled")
        begin = time.perf_counter()
        run = self._eager if eager else self._compiled
        result = run(*inputs)
        forward = time.perf_counter() - begin

        def finish(backward: float | None) -> None:
            self._waited = -1
            if backward is None:
                self._give_up("gradients of gradients")
            elif turn not in (0, 2) and self.chosen is None:
                self._seconds[eager].append(forward + backward)
                self._choose()

        if _trains(inputs):
            self._waited = 0
            time_backward(inputs, result, finish)
        else:
            finish(0.0)
        return result

    def _choose(self) -> None:
        ours, eager = (min(self._seconds[which], default=1e9) for which in (False, True))
        if ours < SHORT:
            self.chosen = self._compiled
            return
        turns, fast = min(map(len, self._seconds.values())), eager * MARGIN > ours
        if turns >= (TURNS if fast else SURE):
            events.count(
                "native.faster" if fast else "native.slower", detail=f"{ours:.2e} {eager:.2e} s"
            )
            self.chosen = self._compiled if fast else self._eager
            events.record(
                "trial",
                lambda: {"fast": fast, "ours": ours, "eager": eager, "origin": self._origin()},
            )
            events.artifact("perf_hints", _verdict(fast, ours, eager).__str__, "compiled or eager")
            if not fast:
                self._forget()

    def _give_up(self, reason: str) -> None:
        self.chosen = self._compiled
        events.count("native.not_tried", detail=reason)


def _first_line(graph: GraphModule) -> str:
    """The user's line of the first operation of a graph."""
    return next((text for node in graph.graph.nodes if (text := node.meta.get("stack_trace"))), "")


def _verdict(fast: bool, ours: float, eager: float) -> str:
    used = (
        "the compiled graph is used"
        if fast
        else "eager is used, the compiled graph is slower (options measure=False: never)"
    )
    return f"{used} from now on: {ours * 1e3:.3f} ms compiled, {eager * 1e3:.3f} ms in eager"


def _trains(inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(x, torch.Tensor) and x.requires_grad for x in inputs
    )


def time_backward(
    inputs: Sequence[Any], results: Any, then: Callable[[float | None], None]
) -> None:
    """Call ``then`` with the seconds of the next backward pass, None if that is to be differentiated itself.

    Hooks are set on the nodes of autograd, not on the user's tensors.
    """
    leaves = (x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad)
    last = {get_gradient_edge(x).node for x in leaves}
    tensors = [results] if isinstance(results, torch.Tensor) else results
    first = {r.grad_fn for r in tensors if isinstance(r, torch.Tensor) and r.grad_fn} - last
    if not first:
        then(0.0)
        return
    begin = end = 0.0
    twice = False

    def start(_: Any) -> None:
        nonlocal begin, end, twice
        if not begin:
            twice = torch.is_grad_enabled()
            begin = end = time.perf_counter()
            torch.autograd.Variable._execution_engine.queue_callback(finish)

    def arrive(_: Any) -> None:
        nonlocal end
        end = time.perf_counter()

    def finish() -> None:
        for handle in handles:
            handle.remove()
        stop = end if end > begin else time.perf_counter()  # autograd.grad: gradients reach no leaf
        then(None if twice else stop - begin)

    handles = [node.register_prehook(start) for node in first]
    handles += [node.register_prehook(arrive) for node in last]
