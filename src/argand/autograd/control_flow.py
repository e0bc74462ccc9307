"""autograd.control_flow: operators that take graphs, traced with their gradients.

In: a call of `torch.ops.higher_order.cond` or `while_loop` on fakes (`scan` and `map_impl`: autograd.scans), while a
recorder watches. Out: fakes, and one node over aten bodies. Where something needs a gradient the call is an autograd
function whose backward is a call of the same operator over the backwards of the bodies. When the gradient itself is to
be differentiated, the backward is a program in terms of the operators themselves, so there are derivatives of any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import torch

from argand.autograd.bodies import (
    Halves,
    Program,
    RunBody,
    aside,
    emit_call,
    gradient_of,
    halve,
    is_float,
    needs_gradient,
    only_tensors,
    trace_body,
)
from argand.autograd.nodes import fresh_like
from argand.autograd.outputs import Untraceable
from argand.autograd.recorder import AtenRecorder
from argand.autograd.scans import map_rows, scan
from argand.ops.control_flow import COND, MAP, SCAN, WHILE_LOOP

# -- cond ------------------------------------------------------------------------------------------


def _cond(
    recorder: AtenRecorder, run: RunBody, pred: Any, true: Any, false: Any, operands: Sequence[Any]
) -> tuple[Any, ...]:
    if not isinstance(pred, torch.Tensor):
        return tuple(run(true if pred else false)(recorder, list(operands)))
    pred = pred if pred.dtype is torch.bool else pred != 0
    programs: list[Program] = []
    tensors: list[torch.Tensor] = []
    for graph in (true, false):
        program, tensors = only_tensors(run(graph), operands)
        programs.append(program)
    return apply_cond(recorder, run, pred, programs, tensors)


def apply_cond(
    recorder: AtenRecorder,
    run: RunBody,
    pred: torch.Tensor,
    programs: Sequence[Program],
    tensors: Sequence[torch.Tensor],
) -> tuple[Any, ...]:
    """One of two programs."""
    if needs_gradient(tensors):
        return tuple(_Cond.apply(recorder, run, programs, pred, *tensors))
    return tuple(_emit_cond(recorder, pred, programs, tensors))


def _emit_cond(
    recorder: AtenRecorder,
    pred: torch.Tensor,
    programs: Sequence[Program],
    tensors: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    bodies = [trace_body(recorder, program, tensors) for program in programs]
    with aside():
        results = [fresh_like(value) for value in bodies[0].results]
        nodes = [recorder.node_of(value) for value in tensors]
        condition = recorder.node_of(pred)
        return emit_call(
            recorder,
            COND,
            bodies,
            lambda graphs, sizes: (condition, *graphs, (*nodes, *sizes)),
            results,
        )


@final
class _Cond(torch.autograd.Function):
    """A condition; what the branches keep for the backward are results of both."""

    @staticmethod
    def forward(
        ctx: Any,
        recorder: AtenRecorder,
        run: RunBody,
        programs: Sequence[Program],
        pred: torch.Tensor,
        *tensors: torch.Tensor,
    ) -> Any:
        """Record the call."""
        wanted = [k for k, value in enumerate(tensors) if value.requires_grad and is_float(value)]
        halves = [halve(recorder, program, tensors, wanted, run) for program in programs]
        likes = [_kept(recorder, half, tensors) for half in halves]
        count = len(likes[0]) - halves[0].kept
        kept = [like[count:] for like in likes]
        both = [_padded(half.forward, count, kept, which) for which, half in enumerate(halves)]
        made = _emit_cond(recorder, pred, both, tensors)
        results = made[:count]
        ctx.mark_non_differentiable(*(value for value in results if not is_float(value)))
        ctx.save_for_backward(pred, *tensors)
        ctx.call = (recorder, run, programs, halves, wanted)
        ctx.kept = made[count:]
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Record the call of the backwards."""
        recorder, run, programs, halves, wanted = ctx.call
        pred, *tensors = ctx.saved_tensors
        tangents = sorted({k for half in halves for k in half.tangents})
        given = [grads[k] for k in tangents]
        if torch.is_grad_enabled():
            again = [gradient_of(program, len(tensors), wanted, tangents) for program in programs]
            found = apply_cond(recorder, run, pred, again, [*tensors, *given])
        else:
            split = halves[0].kept
            kept = (ctx.kept[:split], ctx.kept[split:])
            inputs = [*tensors, *ctx.kept, *given]
            places = [(len(tensors), split), (len(tensors) + split, len(kept[1]))]
            backs = [
                _backward_of(half, place, wanted, tangents, len(inputs) - len(given), run)
                for half, place in zip(halves, places, strict=True)
            ]
            found = tuple(_emit_cond(recorder, pred, backs, inputs))
        answer: list[Any] = [None] * len(tensors)
        for place, gradient in zip(wanted, found, strict=True):
            answer[place] = gradient
        return (None, None, None, None, *answer)


def _kept(
    recorder: AtenRecorder, half: Halves, tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    return trace_body(recorder, half.forward, tensors).results


def _padded(
    forward: Program, count: int, kept: Sequence[Sequence[torch.Tensor]], which: int
) -> Program:
    """A forward that gives something for what the other branch keeps."""

    def program(recorder: AtenRecorder, inputs: list[Any]) -> Sequence[Any]:
        results = list(forward(recorder, inputs))
        own, mine = results[:count], results[count:]
        others = [torch.zeros(like.shape, dtype=like.dtype) for like in kept[1 - which]]
        return [*own, *mine, *others] if which == 0 else [*own, *others, *mine]

    return program


def _backward_of(
    half: Halves,
    place: tuple[int, int],
    wanted: Sequence[int],
    tangents: Sequence[int],
    before: int,
    run: RunBody,
) -> Program:
    """The backward of a branch as a program of (inputs, kept of both, tangents)."""
    backward = run(half.backward)

    def program(recorder: AtenRecorder, values: list[Any]) -> Sequence[Any]:
        given = dict(zip(tangents, values[before:], strict=True))
        saved = [_find(s, values, place[0]) for s in half.saved]
        found = (
            backward(recorder, [*saved, *(given[k] for k in half.tangents)])
            if half.tangents
            else ()
        )
        listed = list(found) or [None] * len(wanted)
        return [
            torch.zeros_like(values[k]) if g is None else g
            for k, g in zip(wanted, listed, strict=True)
        ]

    return program


def _find(saved: Any, values: Sequence[Any], kept_from: int) -> Any:
    if saved.source == "size":
        return saved.size
    return values[saved.place if saved.source == "input" else kept_from + saved.place]


# -- while_loop ------------------------------------------------------------------------------------


def _while_loop(
    recorder: AtenRecorder,
    run: RunBody,
    test: Any,
    body: Any,
    carried: Sequence[Any],
    more: Sequence[Any] = (),
) -> tuple[Any, ...]:
    programs: list[Program] = []
    tensors: list[torch.Tensor] = []
    for graph in (test, body):
        program, tensors = only_tensors(run(graph), [*carried, *more])
        programs.append(program)
    if needs_gradient(tensors):
        raise Untraceable("the gradient of while_loop")
    count = len(carried)
    with torch.no_grad(), aside():
        values = [torch.empty(x.shape, dtype=x.dtype) for x in tensors[:count]] + tensors[count:]
        condition = trace_body(recorder, programs[0], values, single=True)
        once = trace_body(recorder, programs[1], values)
        nodes = [recorder.node_of(value) for value in tensors]
        made = emit_call(
            recorder,
            WHILE_LOOP,
            [condition, once],
            lambda graphs, sizes: (*graphs, tuple(nodes[:count]), (*nodes[count:], *sizes)),
            [fresh_like(value) for value in once.results],
        )
    return tuple(made)


RULES: Final[Mapping[Any, Callable[..., Any]]] = {
    COND: _cond,
    SCAN: scan,
    MAP: map_rows,
    WHILE_LOOP: _while_loop,
}
